"""Checks of what writes tables into files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from fsf_reports.interfaces import TableWriter
from fsf_reports.testing._one_file import require_formats, written
from fsf_reports.testing.toys import toy_table
from fsf_reports.values import Quantity, TableDeclaration
from fsframework.testing import Make, Suite, require

suite = Suite(TableWriter)

_ROWS = 40
_NAMES = (
    "<script>alert(1)</script>",
    "\"quoted\" & 'quoted' \\ %s $x_1$ {a} # ~ ^ | *",
    "שלום 🐕 naïve",
    "long " * 60,
)


def _written(make: Make, suffix: str, *tables: TableDeclaration) -> bytes:
    """Return the file that a fresh writer writes."""
    return written(lambda path: make().write(tables, path), suffix)


@suite.check()
def check_formats(make: Make) -> None:
    """``formats`` is a tuple of suffixes, without the dot, that no other plugin has."""
    require_formats(type(make()), "table", "tex")


@suite.check(after=[check_formats])
def check_files(make: Make) -> None:
    """Every format is written, one file each."""
    for suffix in make().formats:
        require(_written(make, suffix, toy_table()), f"the .{suffix} file is empty")


@suite.check(after=[check_files])
def check_same_again(make: Make) -> None:
    """The same tables give the same file again."""
    for suffix in make().formats:
        first, second = (_written(make, suffix, toy_table()) for _ in range(2))
        require(first == second, f"a second .{suffix} file of the same table differs")


@suite.check(after=[check_files])
def check_several(make: Make) -> None:
    """All of several tables are in the file."""
    other = toy_table(("renet", "leo"))
    for suffix in make().formats:
        both = _written(make, suffix, toy_table(), other)
        for name in ("maml", "renet"):
            require(name.encode() in both, f"a .{suffix} file of two tables lacks the row {name}")
        many = [f"method{place}" for place in range(_ROWS)]
        table = toy_table(many)
        whole = _written(make, suffix, table)
        last = dataclasses.replace(table.entries[-1], measured=Quantity(1.0))
        moved = dataclasses.replace(table, entries=(*table.entries[:-1], last))
        require(
            _written(make, suffix, moved) != whole,
            f"the last of {len(table.entries)} values makes no difference in a .{suffix} file",
        )
        lacking = [name for name in many if name.encode() not in whole]
        require(not lacking, f"a .{suffix} file of {_ROWS} rows lacks {lacking[:3]}")


@suite.check(after=[check_files])
def check_values(make: Make) -> None:
    """Every value, interval, name and mark counts in every format."""
    for suffix in make().formats:
        whole = _written(make, suffix, toy_table())
        for what, changed in _changes(toy_table()):
            found = _written(make, suffix, changed)
            require(found != whole, f"{what} makes no difference in a .{suffix} file")
        first, *others = toy_table().entries
        marked = {
            mark: _written(
                make,
                suffix,
                dataclasses.replace(
                    toy_table(), entries=(dataclasses.replace(first, mark=mark), *others)
                ),
            )
            for mark in ("", "best", "tied")
        }
        require(
            len(set(marked.values())) == len(marked),
            f"the marks of the best and of what is tied with it look alike in a .{suffix} file",
        )


@suite.check(after=[check_files])
def check_words(make: Make) -> None:
    """Title and notes are in the file of the first format."""
    suffix, table = str(make().formats[0]), toy_table()
    whole = _written(make, suffix, table)
    for what, changed in (
        ("the title", dataclasses.replace(table, title="Other.")),
        ("a note", dataclasses.replace(table, notes=())),
        ("a second note", dataclasses.replace(table, notes=(*table.notes, "A second note."))),
    ):
        found = _written(make, suffix, changed)
        require(found != whole, f"{what} makes no difference in a .{suffix} file")


def _changes(table: TableDeclaration) -> Iterator[tuple[str, TableDeclaration]]:
    first, *others = table.entries
    assert first.measured is not None
    second = others[0]
    assert second.measured is not None
    below = dataclasses.replace(second, measured=Quantity.around(-second.measured.value, 1.5))
    columns = dict(zip(table.columns, ("other", *table.columns[1:]), strict=True))
    renamed = tuple(dataclasses.replace(e, column=columns[e.column]) for e in table.entries)
    yield "the name of a column", dataclasses.replace(table, entries=renamed)
    yield "a sign", dataclasses.replace(table, entries=(first, below, *others[1:]))
    tenth = first.measured.value + 0.1
    wider = Quantity.around(first.measured.value, first.measured.half_width + 3)
    for what, changed in (
        ("a tenth", {"measured": dataclasses.replace(first.measured, value=tenth)}),
        ("a value", {"measured": Quantity.around(first.measured.value + 3, 1.5)}),
        ("an interval", {"measured": wider}),
        ("a value that is missing", {"measured": None, "reason": "it failed"}),
        ("a printed value", {"printed": Quantity.around(30.25, 0.25)}),
        ("the name of a row", {"row": ("1", "other")}),
    ):
        entry = dataclasses.replace(first, **changed)
        yield what, dataclasses.replace(table, entries=(entry, *others))


@suite.check(after=[check_files])
def check_reasons(make: Make) -> None:
    """The reason for a missing value is in the file."""
    for suffix in make().formats:
        found = _written(make, suffix, toy_table(reason="the toy failed"))
        require(b"the toy failed" in found, f"a .{suffix} file lacks why a value is missing")


@suite.check(after=[check_files])
def check_any_names(make: Make) -> None:
    """Names with markup, quotes, other scripts or hundreds of letters are written as text."""
    for suffix in make().formats:
        data = _written(make, suffix, toy_table(_NAMES))
        require(data, f"names such as {_NAMES[0]!r} give an empty .{suffix} file")
        for place, name in enumerate(_NAMES):
            found = _written(make, suffix, _moved(toy_table(_NAMES), name))
            require(
                found != data,
                f"a .{suffix} file lacks values of row {place}, whose name has {len(name)} letters",
            )
        if suffix == "html":
            require(b"<script>" not in data, "a name with markup becomes an element of the HTML")


def _moved(table: TableDeclaration, name: str) -> TableDeclaration:
    """Return the table with other values in the row of a name."""
    entries = tuple(
        dataclasses.replace(entry, measured=Quantity.around(77.75, 1.5), printed=None)
        if name in entry.row
        else entry
        for entry in table.entries
    )
    return dataclasses.replace(table, entries=entries)


@suite.answers(after=[check_same_again])
def _answers(make: Make) -> dict[str, bytes]:
    return {f"the .{suffix} file": _written(make, suffix, toy_table()) for suffix in make().formats}
