"""Each check of table writers rejects the one broken writer made for it, and nothing else does."""

import dataclasses
import html
import itertools

import pytest

from fsf_reports.interfaces import TableWriter
from fsf_reports.values import shown_columns
from fsframework.testing import checks_for, parametrize_with_checks
from tests.misdeclared import misdeclared


class Plain(TableWriter):
    """A line per value."""

    formats = ("txt", "html")

    def __init__(self, *, gap: int = 2):
        self.gap = gap

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
                    lines.append((" " * self.gap).join((*row, column.name, told, mark)))
        return html.escape("\n".join(lines))


class NoWriter:
    """It could be one, but does not say so."""


class Untyped(Plain):
    """An option without a type."""

    def __init__(self, *, gap=2):
        super().__init__(gap=gap)


class Unstored(Plain):
    """An option under another name."""

    def __init__(self, *, space: int = 2):
        super().__init__(gap=space)


class Silent(Plain):
    pass


class Dotted(Plain):
    """Suffixes with their dot."""

    formats = (".txt",)


class Littering(Plain):
    """A file besides."""

    def write(self, tables, path):
        super().write(tables, path)
        (path.parent / "log").write_text("")


class Counting(Plain):
    """A number that grows."""

    numbers = itertools.count()

    def text(self, tables):
        return super().text(tables) + str(next(self.numbers))


class OnlyFirst(Plain):
    """Only the first table."""

    def text(self, tables):
        return super().text(tables[:1])


class Rounded(Plain):
    """No marks."""

    def text(self, tables):
        return super().text(tables).replace("best", "")


class Wordless(Plain):
    """No notes."""

    def text(self, tables):
        return super().text([dataclasses.replace(table, notes=()) for table in tables])


class Unreasoned(Plain):
    """No reasons."""

    def text(self, tables):
        return super().text(tables).replace("the toy failed", "")


class Raw(Plain):
    """Markup as it comes."""

    def text(self, tables):
        return html.unescape(super().text(tables))


BROKEN = {
    "check_construction": NoWriter,
    "check_options_typed": Untyped,
    "check_options_stored": Unstored,
    "check_summary": Silent,
    **misdeclared(Plain),
    "check_formats": Dotted,
    "check_files": Littering,
    "check_same_again": Counting,
    "check_several": OnlyFirst,
    "check_values": Rounded,
    "check_words": Wordless,
    "check_reasons": Unreasoned,
    "check_any_names": Raw,
}


@parametrize_with_checks([Plain])
def test_a_sound_writer_passes(make, check):
    check(make)


@pytest.mark.parametrize("name", BROKEN)
def test_only_its_check_rejects(name, failing):
    assert failing(BROKEN[name], "table") == {name}


def test_every_check_has_its_broken_writer():
    assert list(BROKEN) == [check.__name__ for check in checks_for("table")]
