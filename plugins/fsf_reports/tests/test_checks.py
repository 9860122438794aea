"""Each check rejects the one broken component made for it, and nothing else does."""

import dataclasses
import html
import itertools
import json
from collections import Counter
from html import escape
from typing import ClassVar

import pytest

from fsf_reports.interfaces import PageWriter, Renderer, Section, TableWriter
from fsf_reports.values import (
    Gallery,
    ImageGroup,
    Listing,
    TableDeclaration,
    TaskBrowser,
    Text,
    shown_columns,
)
from fsframework.errors import DataError
from fsframework.testing import check_component, checks_for, parametrize_with_checks
from tests.misdeclared import changed, hashed

COUNT = itertools.count()


class Page(PageWriter):
    """Everything in paragraphs."""

    def write(self, page):
        parts = "".join(self.part(part) for part in page.parts)
        return (
            f'<!doctype html><html{self.language()} lang="en"><head>'
            f"<title>{escape(page.title)}</title></head><body><main>{parts}</main></body></html>"
        )

    def language(self):
        return ""

    def part(self, part):
        texts = [part.title, part.problem]
        for block in part.blocks:
            texts += self.texts(block)
        return "".join(f"<p>{self.escaped(text)}</p>" for text in texts)

    def escaped(self, text):
        return escape(text)

    def texts(self, block):
        if isinstance(block, Text):
            return [block.title, *block.paragraphs]
        if isinstance(block, Listing):
            return [block.title, block.text]
        if isinstance(block, Gallery):
            return [block.title, *(group.caption for group in block.groups)]
        if isinstance(block, TableDeclaration):
            values = [q.text() for e in block.entries for q in (e.measured, e.printed) if q]
            return [block.name, *values, *(e.reason for e in block.entries), *block.notes]
        return []


class Drawing(Renderer):
    """The declaration as JSON, or as the text of an SVG."""

    formats = ("json", "svg")

    def draw(self, figure, path, *, columns=1):
        self.refuse_empty(figure)
        path.write_text(self.text(self.told(figure), path.suffix, columns))

    def refuse_empty(self, figure):
        if not any(point.y for point in figure.points):
            raise DataError("nothing to draw")

    def told(self, figure):
        return figure.to_json()

    def text(self, told, suffix, columns):
        if suffix == ".svg":
            return f"<svg>{self.escaped(json.dumps(told))}{columns}</svg>"
        return json.dumps([told, columns], indent=2)

    def escaped(self, text):
        return text.replace("&", "&amp;").replace("<", "&lt;")


class MarkBlind(Drawing):
    """Every mark is drawn alike."""

    def told(self, figure):
        panels = [
            [(series.name, [point.y for point in series.points]) for series in panel.series]
            for panel in figure.panels
        ]
        return [figure.title, figure.x_axis, figure.y_axis, figure.notes, repr(panels)]


class NumberedDrawings(Drawing):
    """Files are numbered."""

    drawn: ClassVar[list[int]] = []

    def text(self, told, suffix, columns):
        if told["figure"] == "Toys" and told["mark"] == "bars":
            self.drawn.append(0)
        return super().text({**told, "n": len(self.drawn)}, suffix, columns)


class NoIntervals(Drawing):
    """Intervals are left out."""

    def told(self, figure):
        text = json.dumps(figure.to_json())
        for panel in figure.to_json()["panels"]:
            for series in panel["series"]:
                for point in series["points"]:
                    told = {k: v for k, v in point.items() if k in ("x", "y", "label")}
                    text = text.replace(json.dumps(point), json.dumps(told))
        return json.loads(text)


class NeedsValues(Drawing):
    """A missing value is a fault."""

    def refuse_empty(self, figure):
        super().refuse_empty(figure)
        for point in figure.panels[0].series[1].points:
            abs(point.y.value)


class Labels(Section):
    """Labels, tasks and an image."""

    title = "Plain"

    def blocks(self, runs):
        yield Text(tuple(self.named(run) for run in runs))
        shown = self.shown(runs)
        if shown:
            yield TaskBrowser(shown)
            yield Gallery("one", shown[0], (ImageGroup("first", (0,)),))

    def named(self, run):
        return run.label

    def shown(self, runs):
        return tuple(i for i, run in enumerate(runs) if run.outcomes is not None)


class Remembering(Labels):
    """It counts the calls."""

    def __init__(self):
        self.asked = Counter()

    def named(self, run):
        self.asked[run.label] += 1
        return f"{run.label} {self.asked[run.label]}"


class Changing(Labels):
    """Renames the measures of the runs."""

    given: ClassVar[dict[str, str]] = {"acc-gap": "gap"}

    def blocks(self, runs):
        for run in runs:
            run.measures.update(self.given)
        yield Text(tuple(run.label for run in runs))


class Lines(TableWriter):
    """A line per value."""

    formats = ("txt", "html")

    def write(self, tables, path):
        path.write_text(self.text(tables))

    def text(self, tables):
        lines = []
        for table in tables:
            lines += [table.title, *table.notes, *table.reasons]
            for column in shown_columns(table):
                for row, entry, value in zip(
                    table.rows, column.entries, column.values, strict=True
                ):
                    told = "–" if value is None else value.text()
                    mark = "" if entry is None else entry.mark
                    lines.append("  ".join((*row, column.name, told, mark)))
        return html.escape("\n".join(lines))


class Littering(Lines):
    """A file besides."""

    def write(self, tables, path):
        super().write(tables, path)
        (path.parent / "log").write_text("")


class HashedPage(Page):
    """It tells of a hash."""

    def part(self, part):
        return super().part(part) + f"<p>{hashed()}</p>"


class HashedDrawing(Drawing):
    """It tells of a hash."""

    def told(self, figure):
        return {**super().told(figure), "n": hashed()}


class HashedLabels(Labels):
    """It tells of a hash."""

    def named(self, run):
        return f"{run.label} {hashed()}"


class HashedLines(Lines):
    """It tells of a hash."""

    def text(self, tables):
        return f"{super().text(tables)}{hashed()}"


class Pooled(Labels):
    """The mean of all runs, whatever their tasks."""

    def blocks(self, runs):
        values = [estimate.value for run in runs for estimate in run.estimates.values()]
        yield Text((f"The mean is {sum(values) / max(1, len(values)):.4f}.",))


def without(part):
    return lambda self, tables: Lines.text(self, tables).replace(part, "")


SOUND = {"page": Page, "renderer": Drawing, "section": Labels, "table": Lines}
BROKEN = {
    "page": {
        "check_document": changed(
            Page, write=lambda self, page: Page.write(self, page).partition("<body>")[2]
        ),
        "check_content": changed(
            Page, part=lambda self, part: "" if part.problem else Page.part(self, part)
        ),
        "check_no_request": changed(Page, language=lambda self: ' data="https://x.org/script.js"'),
        "check_any_names": changed(Page, escaped=lambda self, text: text.replace("&", "&amp;")),
        "check_empty": changed(
            Page, write=lambda self, page: Page.write(self, page) + page.parts[0].title[:0]
        ),
        "check_repeatable": changed(
            Page, part=lambda self, part: f"{Page.part(self, part)}<p>{next(COUNT)}</p>"
        ),
        "check_fresh_process": HashedPage,
    },
    "renderer": {
        "check_formats": changed(Drawing, formats=(".json",)),
        "check_files": changed(Drawing, formats=("json", "png")),
        "check_marks": MarkBlind,
        "check_same_again": NumberedDrawings,
        "check_columns": changed(
            Drawing, text=lambda self, told, suffix, columns: Drawing.text(self, told, suffix, 1)
        ),
        "check_values": NoIntervals,
        "check_names_are_text": changed(
            Drawing, escaped=lambda self, text: text.replace("&", "&amp;")
        ),
        "check_missing_values": NeedsValues,
        "check_nothing_to_draw": changed(Drawing, refuse_empty=lambda self, figure: None),
        "check_fresh_process": HashedDrawing,
    },
    "section": {
        "check_title": changed(Labels, title=" "),
        "check_place": changed(Labels, place=0.5),
        "check_blocks": changed(Labels, blocks=lambda self, runs: ["<p>text</p>"]),
        "check_references": changed(
            Labels, shown=lambda self, runs: (0,) if Labels.shown(self, runs) else ()
        ),
        "check_any_names": changed(
            Labels, named=lambda self, run: run.label.encode("ascii").decode()
        ),
        "check_repeatable": Remembering,
        "check_tasks_apart": Pooled,
        "check_runs_unchanged": Changing,
        "check_fresh_process": HashedLabels,
    },
    "table": {
        "check_formats": changed(Lines, formats=(".txt",)),
        "check_files": Littering,
        "check_same_again": changed(
            Lines, text=lambda self, tables: f"{Lines.text(self, tables)}{next(COUNT)}"
        ),
        "check_several": changed(Lines, text=lambda self, tables: Lines.text(self, tables[:1])),
        "check_values": changed(Lines, text=without("best")),
        "check_words": changed(
            Lines,
            text=lambda self, tables: Lines.text(
                self, [dataclasses.replace(table, notes=()) for table in tables]
            ),
        ),
        "check_reasons": changed(Lines, text=without("the toy failed")),
        "check_any_names": changed(
            Lines, text=lambda self, tables: html.unescape(Lines.text(self, tables))
        ),
        "check_fresh_process": HashedLines,
    },
}
ALL = [(kind, check) for kind, own in BROKEN.items() for check in own]


class Unheaded(Lines):
    """Columns have no names."""

    def text(self, tables):
        names = [(column.name, column) for table in tables for column in shown_columns(table)]
        text = super().text(tables)
        for name, _ in names:
            text = text.replace(f"  {html.escape(name)}  ", "  ")
        return text


class Rounded(Lines):
    """Values have no decimals."""

    def text(self, tables):
        def whole(entry):
            found = entry.measured
            rounded = found and dataclasses.replace(found, value=round(found.value))
            return dataclasses.replace(entry, measured=rounded)

        entries = [tuple(map(whole, table.entries)) for table in tables]
        return super().text(
            [dataclasses.replace(t, entries=e) for t, e in zip(tables, entries, strict=True)]
        )


class Cut(Lines):
    """Lines end after 200 characters."""

    def text(self, tables):
        return "\n".join(line[:200] for line in super().text(tables).splitlines())


class Claiming(Lines):
    """A suffix of another plugin."""

    formats = ("txt", "csv")


class ClaimingToo(Drawing):
    """A suffix of another plugin."""

    formats = ("json", "svg")


@pytest.fixture
def alone(monkeypatch):
    """No other plugin is installed."""
    monkeypatch.setattr("fsf_reports.testing._one_file._installed", lambda kind: {})


@pytest.mark.usefixtures("alone")
@parametrize_with_checks(list(SOUND.values()))
def test_a_sound_component_passes(make, check):
    check(make)


@pytest.mark.one_in(3)
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("kind", "check"), ALL)
def test_only_its_check_rejects(kind, check, failing):
    assert failing(BROKEN[kind][check], kind) == {check}


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("writer", "check"),
    [(Unheaded, "check_values"), (Rounded, "check_values"), (Cut, "check_any_names")],
)
def test_a_table_writer_leaves_nothing_out(writer, check, failing):
    assert failing(writer, "table") == {check}


@pytest.mark.parametrize(
    ("cls", "suffix", "other"), [(Claiming, "csv", "plain-tables"), (ClaimingToo, "svg", "altair")]
)
def test_a_suffix_has_one_writer(cls, suffix, other):
    [failed] = [result for result in check_component(cls) if not result.passed]
    assert failed.name == "check_formats"
    assert suffix in failed.message
    assert other in failed.message


@pytest.mark.parametrize("kind", SOUND)
def test_every_check_has_its_broken_component(kind):
    # The first eight are common to all kinds, and tested with those of the core.
    assert list(BROKEN[kind]) == [check.__name__ for check in checks_for(kind)[8:]]
