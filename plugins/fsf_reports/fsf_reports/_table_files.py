"""Tables as LaTeX, Markdown, CSV and HTML; names are text in each, whatever they contain."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from fsf_reports._text import plain
from fsf_reports.interfaces import TableWriter
from fsf_reports.values import Quantity, TableColumn, TableDeclaration, shown_columns
from fsframework.errors import OptionError
from fsframework.values import csv_text, inert_cell

__all__ = [
    "WRITERS",
    "PlainTables",
    "as_text",
    "caption",
    "notes",
    "to_csv",
    "to_html",
    "to_markdown",
    "to_tex",
]

_ABSENT = "–"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MOST_COLUMNS = 7
"""More do not fit a column of a page of two."""
_LONG = 34
"""Characters of a name that is broken into lines in LaTeX."""


@dataclass(frozen=True)
class _Value:
    """A value as text: the number, its interval, its mark, and the letter of a footnote."""

    number: str
    interval: str
    mark: str = ""
    note: str = ""


@dataclass(frozen=True)
class _Row:
    names: tuple[str, ...]
    values: tuple[_Value | None, ...]


def _rows(table: TableDeclaration, digits: int) -> list[_Row]:
    columns = [_values(column, table.reasons, digits) for column in shown_columns(table)]
    return [
        _Row(tuple(map(plain, names)), values)
        for names, values in zip(table.rows, zip(*columns, strict=True), strict=True)
    ]


def _values(column: TableColumn, reasons: Sequence[str], digits: int) -> Iterator[_Value | None]:
    for entry, value in zip(column.entries, column.values, strict=True):
        measured = entry if column.kind == "measured" else None
        if value is not None:
            yield _Value(*_parts(value, digits), measured.mark if measured is not None else "")
        elif measured is not None and measured.reason:
            yield _Value(_ABSENT, "", note=_letter(reasons.index(measured.reason)))
        else:
            yield None


def _letter(place: int) -> str:
    return _LETTERS[place] if place < len(_LETTERS) else str(place + 1)


def _columns(table: TableDeclaration) -> list[str]:
    """Return the heads of the columns of values."""
    return [column.name for column in shown_columns(table)]


def _parts(quantity: Quantity, digits: int) -> tuple[str, str]:
    """Return a number and its interval, ``±`` where it is symmetric, with a true minus."""
    if quantity.exact:
        return _minus(quantity.text()), ""
    digits = digits if quantity.unit else digits + 2
    number = f"{quantity.value:z.{digits}f}"
    if not quantity.unit and 0 < quantity.value < 0.5 * 10.0**-digits:
        number = f"<{10.0**-digits:.{digits}f}"
    if not quantity.has_interval:
        return _minus(number), ""
    above, below = quantity.high - quantity.value, quantity.value - quantity.low
    if abs(above - below) < 0.5 * 10.0**-digits:
        return _minus(number), f"± {quantity.half_width:.{digits}f}"
    return _minus(number), _minus(f"[{quantity.low:z.{digits}f}, {quantity.high:z.{digits}f}]")


def _minus(text: str) -> str:
    return re.sub(r"-(?=\d)", "−", text)


def caption(table: TableDeclaration) -> str:
    """Return what a caption says: the title, and what its numbers are of."""
    of = [f"{table.name} of {table.source}"] if table.source else []
    return " ".join(map(_sentence, filter(None, (*of, table.title, table.reading))))


def notes(table: TableDeclaration, best: str = "Bold") -> str:
    """Return what stands below a table: why values are missing, its notes, and its marks.

    Args:
        best: how the best value is marked.
    """
    return " ".join(filter(None, (_told(table), _marks(table, best, "~"))))


def _told(table: TableDeclaration) -> str:
    missing = (f"{_letter(i)}: {reason}" for i, reason in enumerate(table.reasons))
    return " ".join(map(_sentence, (*missing, *table.notes)))


def _marks(table: TableDeclaration, best: str, tied: str) -> str:
    """Return how the best value is marked, and those that cannot be distinguished from it."""
    marks = {entry.mark for entry in table.entries}
    if "best" not in marks:
        return ""
    others = f"; {tied}: cannot be distinguished from it" if "tied" in marks else ""
    return f"{best}: best on the same tasks{others}."


def _sentence(text: str) -> str:
    text = plain(text)
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _blocks(
    table: TableDeclaration, rows: list[_Row], grouped: bool
) -> Iterator[tuple[str, list[_Row]]]:
    """Yield a heading and its rows; a single block without a heading where nothing is grouped."""
    if not grouped or len(table.row_names) < 2:
        yield "", rows
        return
    for name, block in itertools.groupby(rows, key=lambda row: row.names[0]):
        yield f"{table.row_names[0]}: {name}", [_Row(r.names[1:], r.values) for r in block]


def _heads(table: TableDeclaration, grouped: bool) -> list[str]:
    names = table.row_names[1:] if grouped and len(table.row_names) > 1 else table.row_names
    return [plain(name) for name in names]


def as_text(table: TableDeclaration, digits: int = 1) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells for a terminal; ``*`` marks the best, ``~`` what is tied with it."""
    marks = {"best": " *", "tied": " ~", "": ""}
    rows = [
        [*row.names, *(_ABSENT if v is None else " ".join(filter(None, (v.number, v.interval,
                       v.note))) + marks[v.mark] for v in row.values)]
        for row in _rows(table, digits)
    ]  # fmt: skip
    return [*map(plain, table.row_names), *_columns(table)], rows


def to_csv(*tables: TableDeclaration, digits: int = 1, grouped: bool = False) -> str:
    """Return one row per value, unrounded, with its interval and everything known about it."""
    del digits, grouped
    rows = [
        {
            "table": table.name,
            **dict(zip(table.row_names, entry.row, strict=True)),
            **entry.to_json(),
        }
        for table in tables
        for entry in table.entries
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return csv_text(names, rows)


# --- Markdown ---------------------------------------------------------------------------------

_MARKDOWN = str.maketrans(
    {c: f"\\{c}" for c in "\\`*_{}[]#+!|~$"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
)


def _markdown(text: str) -> str:
    return plain(text).translate(_MARKDOWN)


def to_markdown(table: TableDeclaration, *, digits: int = 1, grouped: bool = False) -> str:
    """Return a table of GitHub's Markdown, its caption above and its notes below."""
    heads = [*_heads(table, grouped), *_columns(table)]
    n_names = len(heads) - len(_columns(table))
    lines = [_markdown(caption(table)), ""]
    aligned = ["---"] * n_names + ["---:"] * (len(heads) - n_names)
    lines += [_pipes(map(_markdown, heads)), _pipes(aligned)]
    for title, rows in _blocks(table, _rows(table, digits), grouped):
        if title:
            lines.append(_pipes([f"**{_markdown(title)}**", *[""] * (len(heads) - 1)]))
        lines += [
            _pipes([*map(_markdown, row.names), *map(_markdown_value, row.values)]) for row in rows
        ]
    below = (_markdown(_told(table)), _marks(table, "Bold", "~"))
    if any(below):
        lines += ["", " ".join(filter(None, below))]
    return "\n".join(lines) + "\n"


def _pipes(cells: Iterator[str] | Sequence[str] | map[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_value(value: _Value | None) -> str:
    if value is None:
        return _ABSENT
    if value.note:
        return f"{value.number} ({value.note})"
    text = " ".join(filter(None, (value.number, value.interval)))
    return {"best": f"**{text}**", "tied": f"{text} ~"}.get(value.mark, text)


# --- HTML -------------------------------------------------------------------------------------


def to_html(table: TableDeclaration, *, digits: int = 1, grouped: bool = False) -> str:
    """Return a ``table`` element with its caption, and its notes at the foot.

    Spreadsheets open such files too, so that each name is an ``inert_cell``.
    """
    heads = _heads(table, grouped)
    columns = "".join(
        f'<th scope="col">{escape(inert_cell(plain(c)))}</th>' for c in [*heads, *_columns(table)]
    )
    body = []
    for title, rows in _blocks(table, _rows(table, digits), grouped):
        body.append("<tbody>")
        if title:
            span = len(heads) + len(_columns(table))
            body.append(
                f'<tr><th scope="rowgroup" colspan="{span}">{escape(inert_cell(title))}</th></tr>'
            )
        body += [_html_row(row) for row in rows]
        body.append("</tbody>")
    above, below = escape(caption(table)), notes(table)
    if below:
        span = len(heads) + len(_columns(table))
        body.append(f'<tfoot><tr><td colspan="{span}">{escape(below)}</td></tr></tfoot>')
    return (
        f"<table>\n<caption>{above}</caption>\n<thead><tr>{columns}</tr></thead>\n"
        + "\n".join(body)
        + "\n</table>\n"
    )


def _html_row(row: _Row) -> str:
    names = "".join(f'<th scope="row">{escape(inert_cell(name))}</th>' for name in row.names)
    values = "".join(f'<td style="text-align:right">{_html_value(v)}</td>' for v in row.values)
    return f"<tr>{names}{values}</tr>"


def _html_value(value: _Value | None) -> str:
    if value is None:
        return _ABSENT
    if value.note:
        return f"{value.number} ({value.note})"
    text = escape(" ".join(filter(None, (value.number, value.interval))))
    return {"best": f"<b>{text}</b>", "tied": f"{text} ~"}.get(value.mark, text)


# --- LaTeX ------------------------------------------------------------------------------------

_TEX = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\fsfquote{}",
    "`": r"\textasciigrave{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
    "—": "---",
    "×": r"$\times$",
    "…": r"\ldots{}",
    "⟨": r"$\langle$",
    "⟩": r"$\rangle$",
}
"""Characters that mean something to LaTeX, or that it writes in another way."""

_OTHER_CHARACTERS = r"""\providecommand{\fsfother}[2]{% what pdfLaTeX has no letters for
  \ifdefined\Umathcharnumdef #1\else\texttt{[#2]}\fi}
\providecommand{\fsfquote}{\texttt{\char34}}"""

_LATIN = re.compile(r"[\x20-\x7e\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u00ff]")


def _tex(text: str) -> str:
    """Return a text so that LaTeX shows its characters; those it has no letters for by their code.

    XeLaTeX and LuaLaTeX show all characters that the font has.
    """
    parts = []
    for known, run in itertools.groupby(plain(text), key=_has_letter):
        characters = "".join(run)
        if known:
            written = (_TEX.get(c, c) for c in characters)
            parts.append("".join(written) if "--" not in characters else _apart(characters))
        else:
            codes = " ".join(f"U+{ord(c):04X}" for c in characters)
            parts.append(rf"\fsfother{{{characters}}}{{{codes}}}")
    return "".join(parts)


def _apart(text: str) -> str:
    """Return a text whose hyphens do not join to a dash."""
    ends = zip(text, [*text[1:], ""], strict=True)
    return "".join("-{}" if (c, after) == ("-", "-") else _TEX.get(c, c) for c, after in ends)


def _has_letter(char: str) -> bool:
    return char in _TEX or bool(_LATIN.fullmatch(char))


def _tex_name(text: str) -> str:
    """Return a name with places where a long one may break."""
    if len(text) <= _LONG:
        return _tex(text)
    words = (re.findall(r".{1,8}", word) for word in plain(text).split(" "))
    return r"\raggedright " + " ".join(r"\hspace{0pt}".join(map(_tex, pieces)) for pieces in words)


def to_tex(
    table: TableDeclaration, *, digits: int = 1, grouped: bool = False, label: str = ""
) -> str:
    """Return a ``table`` environment that needs ``booktabs`` and nothing else.

    A table of more than seven columns spans both columns of a page. A rule stands between rows of
    different tasks.

    Numbers have equally many decimals and are aligned at the right, intervals at their left, so
    that the decimal points of a column are below each other, also in bold.

    Args:
        label: by which the paper refers to it, by default the name of the table.
    """
    rows, heads = _rows(table, digits), _heads(table, grouped)
    start = len(table.row_names) - len(heads)
    tasks = heads.index("method") if "method" in heads else 0
    widths = [max(len(row.names[start + place]) for row in rows) for place in range(len(heads))]
    share = 0.42 / max(1, sum(width > _LONG for width in widths))
    names = [rf"p{{{share:.2f}\linewidth}}" if width > _LONG else "l" for width in widths]
    spans = [r"\multicolumn{2}{c}{" + _tex(column) + "}" for column in _columns(table)]
    environment = "table*" if len(heads) + len(spans) > _MOST_COLUMNS else "table"
    lines = [
        "% needs \\usepackage{booktabs}",
        _OTHER_CHARACTERS,
        rf"\begin{{{environment}}}[t]",
        r"\centering",
        rf"\caption{{{_tex(caption(table))}}}",
        rf"\label{{tab:{_slug(label or table.name)}}}",
        r"\smallskip",
        r"\small",
        rf"\begin{{tabular}}{{{''.join(names)}{'r@{ }l' * len(spans)}}}",
        r"\toprule",
        " & ".join([*map(_tex, heads), *spans]) + r" \\",
        r"\midrule",
    ]
    for number, (title, block) in enumerate(_blocks(table, rows, grouped)):
        if title:
            span = len(heads) + 2 * len(spans)
            lines += [r"\addlinespace"] if number else []
            lines.append(rf"\multicolumn{{{span}}}{{l}}{{\textit{{{_tex(title)}}}}} \\")
        for place, (_, own) in enumerate(itertools.groupby(block, lambda row: row.names[:tasks])):
            lines += [r"\midrule"] if place else []
            lines += [
                " & ".join([*map(_tex_name, row.names), *map(_tex_value, row.values)]) + r" \\"
                for row in own
            ]
    lines += [r"\bottomrule", r"\end{tabular}"]
    if below := _tex_notes(table):
        lines += ["", r"\smallskip", rf"\parbox{{\linewidth}}{{\footnotesize {below}}}"]
    lines.append(rf"\end{{{environment}}}")
    return "\n".join(lines) + "\n"


def _tex_notes(table: TableDeclaration) -> str:
    told, marks = _told(table), _marks(table, "Bold", r"$\dagger$")
    return " ".join(filter(None, (_tex(told), marks)))


def _tex_value(value: _Value | None) -> str:
    if value is None:
        return r"\multicolumn{2}{c}{--}"
    if value.note:
        return rf"\multicolumn{{2}}{{c}}{{--$^\mathrm{{{value.note}}}$}}"
    number, interval = _tex(value.number), _tex(value.interval)
    if value.mark == "best":
        bold = interval.replace(r"$\pm$", r"\boldmath$\pm$")
        number, interval = rf"\textbf{{{number}}}", rf"\textbf{{{bold}}}" if interval else ""
    dagger = r"$^\dagger$" if value.mark == "tied" else ""
    return f"{number} & {interval}{dagger}"


def _slug(name: str) -> str:
    plain_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain_name).strip("-") or "table"


WRITERS: Mapping[str, Callable[..., str]] = MappingProxyType(
    {".tex": to_tex, ".md": to_markdown, ".csv": to_csv, ".html": to_html}
)
"""What writes a table, by the suffix of the file."""


class PlainTables(TableWriter):
    """Tables as LaTeX (booktabs), Markdown, HTML and CSV.

    CSV has a row per value, unrounded, with everything that is known about it.

    Args:
        digits: decimals of percentages.
        grouped: whether rows with the same first name have it as a heading above them.

    Raises:
        OptionError: ``digits`` is negative.
    """

    formats: ClassVar[tuple[str, ...]] = ("tex", "md", "csv", "html")

    def __init__(self, *, digits: int = 2, grouped: bool = False) -> None:
        if digits < 0:
            raise OptionError(f"digits must be at least 0, not {digits}")
        self.digits = digits
        self.grouped = grouped

    def write(self, tables: Sequence[TableDeclaration], path: Path) -> None:
        """Write tables one below the other; CSV has one head for all."""
        suffix = path.suffix.lower()
        if suffix == ".csv":
            path.write_text(to_csv(*tables), encoding="utf-8", newline="")
            return
        parts = [self._part(table, suffix, tables[:place]) for place, table in enumerate(tables)]
        path.write_text("\n".join(parts), encoding="utf-8")

    def _part(
        self, table: TableDeclaration, suffix: str, before: Sequence[TableDeclaration]
    ) -> str:
        how: dict[str, Any] = {"digits": self.digits, "grouped": self.grouped}
        if suffix == ".tex":
            number = sum(one.name == table.name for one in before) + 1
            return to_tex(table, **how, label=f"{table.name} {number}" if number > 1 else "")
        return WRITERS[suffix](table, **how)
