"""Declared tables as text: nothing is wider than the terminal, and nothing is lost."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest

import fsf_reports
from fsf_reports.values import Entry, Quantity, TableDeclaration

METHODS = ("protonet", "a method whose name is much too long for a narrow terminal", "renet")
Printed = Callable[..., list[str]]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Printed:
    """Return a function that prints a table on a terminal of some width, or into a pipe."""

    def lines(table: TableDeclaration, width: int = 0) -> list[str]:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: width > 0)
        monkeypatch.setenv("COLUMNS", str(width))
        fsf_reports.print_table(table)
        return capsys.readouterr().out.splitlines()

    return lines


def table(columns: int, *, reason: str = "") -> TableDeclaration:
    """A table of three methods; the last has no values if there is a reason."""
    entries = tuple(
        Entry(
            ("5", method),
            f"wAcc-{column}",
            None if reason and method == "renet" else Quantity.around(10.0 * row + column, 1.5),
            reason if method == "renet" else "",
            Quantity.around(20.0, 0.5),
            mark="best" if method == "protonet" else "",
        )
        for row, method in enumerate(METHODS)
        for column in range(columns)
    )
    notes = ("a note that is long enough to need a second line on a terminal of 80 characters",)
    return TableDeclaration("Table 3", "Worst classes.", ("shot", "method"), entries, notes)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(printed: Printed, width: int) -> None:
    made = table(4, reason="failed: out of memory, of which there was far too little " * 3)
    lines = printed(made, width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for entry in made.entries:
        if entry.measured is not None:
            assert entry.measured.text() in text
    assert text.count("shot") == len(re.findall(r"^5 +protonet", text, re.MULTILINE))


def test_in_a_pipe_a_table_is_one_part(printed: Printed) -> None:
    lines = printed(table(4))
    assert lines[:3] == ["Table 3. Worst classes.", "", lines[2]]
    heads = [(f"wAcc-{i}", "printed", "difference") for i in range(4)]
    assert lines[2].split() == ["shot", "method", *(word for head in heads for word in head)]
    assert METHODS[1] in lines[4]
    assert lines[-1] == f"  {table(4).notes[0]}"


def test_what_is_in_the_cells(printed: Printed) -> None:
    lines = printed(table(1, reason="failed: out of memory"), 80)
    cells = re.split(r"\s{2,}", lines[3])
    assert cells == ["5", "protonet", "0.00 ± 1.50 *", "20.00 ± 0.50", "-20.00 ± 1.58"]
    assert re.match(r"5 +a method wh.*….* terminal +10.00 ± 1.50 ", lines[4])
    assert "– a" in lines[5]
    assert "  a: failed: out of memory" in lines
    # Columns that are parted keep their names.
    heads = [line for line in printed(table(1), 40) if line.startswith("shot")]
    assert [head.split("  ")[-1].strip() for head in heads] == [
        "wAcc-0", "wAcc-0, printed", "wAcc-0, measured − printed",
    ]  # fmt: skip
    one = TableDeclaration("Table 3", "", ("shot",), (Entry(("1",), "Acc", Quantity(50.0)),))
    assert "1     50.00 (no interval)" in printed(one, 80)
