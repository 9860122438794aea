"""Words in the cells of tables, as people and programs write them."""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from fsframework.errors import DataError
from fsframework.values._arrays import named
from fsframework.values._texts import normalize

__all__ = ["WordReader"]

_MISSING = {"na", "n/a", "n.a.", "#n/a", "#na", "nan", "-nan", "null", "none", "nil", "<na>", "nat"}
_MISSING |= {
    "-",
    "--",
    "–",
    "—",
    "?",
    "\\n",
    "(null)",
    "<null>",
    "<none>",
    "pd.na",
    "na_character_",
}
_MISSING |= {"#n/a n/a", "1.#qnan", "-1.#ind", "character(0)"}
_MISSING |= {"#value!", "#ref!", "#name?", "#div/0!", "#null!", "#num!"}
_QUOTES = {"'": "'", '"': '"', "`": "`", "“": "”", "‘": "’", "«": "»"}
_UNUSUAL = r"^\s*([A-Za-z_][\w.]*\()*[\[({]|^\s*\w+\(|^\s*\"|&|[\t\r\n]|\x{ff1b}|\x{61b}|\x{37e}"
"""Cells that may be more than words and separators."""
_LIST = re.compile(
    r"(?:[A-Za-z_][\w.]*\()*(?:\[(?P<list>.*)\]|\{(?P<set>.*)\}"
    r"|\((?P<tuple>\s*[ubUB]?['\"].*|[^()]*,[^()]*|\s*)\))(?:\s*,\s*dtype=[^()]*)?\)*"
    r"|(?:c|list)\((?P<call>\s*['\"].*)\)",
    re.DOTALL,
)
_ITEM = re.compile(
    r"""(?:np\.str_\(|\b[ubUB])?(?:'(?P<single>(?:[^'\\]|\\.)*)'|"(?P<double>(?:[^"\\]|\\.)*)")"""
    r"""(?P<maps>\s*:)?|(?P<bare>[^\s,;\[\](){}][^,;\[\](){}]*)""",
    re.DOTALL,
)
_MARKS = {",": "commas separate words", "|": "'|' separates words"}
_OTHER_SEPARATORS = re.compile(r"[\t\r\n\uff1b\u061b\u037e]")
"""What separates words besides a semicolon: ends of lines, and the semicolons of other scripts."""
_SCORED = r"[\s:=(]+[01]?\.\d+\)?$|:\w+$"
_NO_WORD = re.compile(
    rf"{_SCORED}|^[\"'“”‘`=*•]|[\"“”`]$|^(?:\d+[.)]|-)\s|^[(\[{{<].*[)\]}}>]$|[、，؛；]|^\W+$"
)
"""Scores, tags, list marks, and quotes and brackets that no other rule reads."""


class WordReader:
    """Reads the words of cells, and counts what was not taken as it is written.

    Words are separated by a separator, or are a list of Python, JSON or NumPy. They are compared in
    Unicode NFC and in lower case, without white space and quotes around them. What programs write
    for a missing value (``NA``, ``nan``, ``None``, ``-``, ...) is no word unless it is in quotes.

    Args:
        separator: what separates two words of a cell.

    >>> reader = WordReader()
    >>> reader.words("Grass; sky ;NA"), reader.words("['sea', 'stop sign']")
    (['grass', 'sky'], ['sea', 'stop sign'])
    >>> reader.notes()
    ["1 cell has 'NA', read as a missing value; a word that is meant stands in single quotes"]
    """

    def __init__(self, separator: str = ";") -> None:
        self._separator = separator
        self._missing: Counter[str] = Counter()
        self._spellings: dict[str, set[str]] = {}
        self._marked: dict[str, str] = {}

    @staticmethod
    def is_missing(text: str) -> bool:
        """Return whether a text is what programs write where there is none."""
        return text.strip().lower() in _MISSING

    def words(self, cell: str) -> list[str]:
        """Return the words of a cell, in its order.

        Raises:
            DataError: the cell is a mapping.
        """
        words = (self._word(part) for part in self._joined(cell).split(self._separator))
        return [word for word in words if word]

    def lists(self, cells: Any) -> Any:
        """Return the words of an Arrow array of cells, or of lists of words, as Arrow lists.

        Raises:
            DataError: a cell is a mapping.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if not hasattr(cells.type, "value_field"):  # not lists
            cells = cells.cast(pa.string())
            bracketed = pc.match_substring_regex(cells, _UNUSUAL).fill_null(False)
            if bracketed.true_count:
                joined = [self._joined(cell) for cell in cells.filter(bracketed).to_pylist()]
                cells = pc.replace_with_mask(cells, bracketed, pa.array(joined, pa.string()))
            cells = pc.split_pattern(cells, self._separator)
        elif pc.any(pc.match_substring(cells.flatten().cast(pa.string()), self._separator)).as_py():
            # The items of a list may themselves be several words.
            texts = cells.cast(pa.list_(pa.string()))
            cells = pc.split_pattern(pc.binary_join(texts, self._separator), self._separator)
        flat = cells.flatten()
        if not pa.types.is_dictionary(flat.type):
            flat = flat.cast(pa.string()).dictionary_encode()
        counts = np.bincount(flat.indices.drop_null(), minlength=len(flat.dictionary))
        texts = zip(flat.dictionary.to_pylist(), counts.tolist(), strict=True)
        words = pa.array([self._word(text or "", count) for text, count in texts], pa.string())
        ends = np.cumsum(pc.list_value_length(cells).fill_null(0))
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        return pa.ListArray.from_arrays(
            offsets, pa.DictionaryArray.from_arrays(flat.indices, words)
        )

    def notes(self) -> list[str]:
        """Return what a user should know about how words were read, one sentence each."""
        found = []
        if self._missing:
            count, texts = self._missing.total(), [text for text, _ in self._missing.most_common()]
            found.append(
                f"{count:,} {'cell has' if count == 1 else 'cells have'} {named(texts)}, read as a "
                "missing value; a word that is meant stands in single quotes"
            )
        merged = {word: forms for word, forms in self._spellings.items() if len(forms) > 1}
        if merged:
            word, forms = min(merged.items())
            found.append(
                f"{len(merged):,} {'word is' if len(merged) == 1 else 'words are'} written in "
                f"several ways that differ in letter case or Unicode form, such as {word!r} as "
                f"{named(sorted(forms))}; each is one word"
            )
        return found

    def demand_separated(self, words: Collection[str], *, several: bool) -> None:
        """Check that no other marks separate the words that were read.

        Args:
            words: of all cells; ``several`` whether a cell has more than one.

        Raises:
            DataError: words contain commas or bars; the message shows how to write them.
        """
        known = {*words}
        for mark, fault in _MARKS.items():
            marked = {word: _parts(word, mark) for word in self._marked if mark in word}
            shared = Counter(part for parts in marked.values() for part in {*parts})
            many = 2 * len(marked) > len(known)
            for word, parts in marked.items():
                recurs = any(part in known or shared[part] > 1 for part in parts)
                if known.issuperset(parts) or (not several and (many or recurs)):
                    raise DataError(
                        f"a cell has {self._marked[word]!r}, where {fault}; write "
                        f"{self._separator!r} between words, as in "
                        f"{self._separator.join(parts)!r}, or single quotes around a word "
                        "with such a mark"
                    )

    def _word(self, text: str, count: int = 1) -> str:
        """Return a word as it is compared; empty if it is missing."""
        written = " ".join("".join(filter(_is_visible, text)).split())
        if len(written) > 1 and _QUOTES.get(written[0]) == written[-1]:
            return normalize(written[1:-1].strip()).lower()
        word = normalize(written).lower()
        if word in _MISSING:
            self._missing[written] += count
            return ""
        if _NO_WORD.search(word):
            raise DataError(
                f"a cell has {written[:80]!r}, which is read as no word: give the bare words with "
                f"{self._separator!r} between them, without scores, tags, marks or brackets, or "
                "put a word that is meant into single quotes"
            )
        if any(mark in word for mark in _MARKS):
            self._marked.setdefault(word, written)
        self._spellings.setdefault(word, set()).add(written)
        return word

    def _joined(self, cell: str) -> str:
        """Return a cell with the items of a list joined by the separator."""
        cell = html.unescape(cell).strip()
        if cell[:1] == cell[-1:] == '"' and cell.count('"') == 2:
            cell = cell[1:-1]
        if self._separator == ";":
            cell = _OTHER_SEPARATORS.sub(";", cell)
        if (found := _LIST.fullmatch(cell)) is None:
            return "" if re.fullmatch(r"\s*\w+\(\s*\)\s*", cell) else cell
        inner = next(text for text in found.groups() if text is not None)
        return self._separator.join(self._items(inner, cell, mapped=found["set"] is not None))

    def _items(self, inner: str, cell: str, *, mapped: bool) -> Iterator[str]:
        for item in _ITEM.finditer(inner):
            text = item["bare"]
            if item["maps"] or (mapped and text and ":" in text):
                raise DataError(
                    f"the cell {cell[:80]!r} maps words to values; words are separated by "
                    f"{self._separator!r}"
                )
            if text is None:
                text = item["double"]
                text = item["single"].replace('"', '\\"') if text is None else text
                with suppress(ValueError):
                    text = json.loads('"' + text.replace("\\'", "'") + '"', strict=False)
                text = text.encode(errors="replace").decode()
                if any(mark in text for mark in _MARKS):
                    text = f'"{text}"'
            yield text.strip()


def _is_visible(char: str) -> bool:
    """Return whether a character is none that marks a format or controls a device."""
    return (
        (char.isascii() and char.isprintable())
        or char.isspace()
        or (unicodedata.category(char) not in ("Cc", "Cf"))
    )


def _parts(word: str, mark: str) -> list[str]:
    return [part for part in (part.strip() for part in word.split(mark)) if part]
