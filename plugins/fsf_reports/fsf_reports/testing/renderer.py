"""Checks of renderers."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

from fsf_reports.interfaces import Renderer
from fsf_reports.testing._one_file import require_formats, written
from fsf_reports.testing.toys import toy_figure
from fsf_reports.values import FigureDeclaration, Mark, Panel, Quantity, Series
from fsframework.errors import DataError
from fsframework.testing import ConformanceError, Make, Suite, require

suite = Suite(Renderer)

_MARKS: tuple[Mark, ...] = get_args(Mark)
_BEGINNINGS = {"pdf": b"%PDF-", "png": b"\x89PNG\r\n\x1a\n", "svg": b"<"}
_REFERENCES = 64
"""Bytes by which the numbers of a PDF's objects may differ in length."""
_NAMES = (
    "<script>alert(1)</script>",
    "\"quoted\" & 'quoted' \\ %s $x_1$ {a} #",
    "שלום 🐕 naïve",
    "long " * 60,
)


def _drawn(
    make: Make, figure: FigureDeclaration, suffix: str, columns: int = 1, what: str = ""
) -> bytes:
    """Return the file that a fresh renderer writes."""
    return written(lambda path: make().draw(figure, path, columns=columns), suffix, what)


def _first_format(make: Make) -> str:
    return str(make().formats[0])


@suite.check()
def check_formats(make: Make) -> None:
    """``formats`` is a tuple of suffixes, without the dot, that no other plugin has."""
    require_formats(type(make()), "renderer", "pdf")


@suite.check(after=[check_formats])
def check_files(make: Make) -> None:
    """Every format is written, as what its suffix says."""
    for suffix in make().formats:
        data = _drawn(make, toy_figure(), suffix)
        require(data, f"the .{suffix} file is empty")
        beginning = _BEGINNINGS.get(suffix, b"")
        require(
            data.startswith(beginning), f"a .{suffix} file begins with {data[:8]!r}, which is no "
            f"{suffix.upper()}"
        )  # fmt: skip


@suite.check(after=[check_files])
def check_marks(make: Make) -> None:
    """Every mark is drawn, each in its own way."""
    suffix = _first_format(make)
    drawn: dict[bytes, str] = {}
    for mark in _MARKS:
        data = _drawn(make, dataclasses.replace(toy_figure(mark), title="", name="One"), suffix)
        require(data, f"a figure of {mark} gives an empty file")
        require(data not in drawn, f"{mark} and {drawn.get(data)} are drawn alike")
        drawn[data] = mark


@suite.check(after=[check_files])
def check_same_again(make: Make) -> None:
    """The same figure gives the same file again; the objects of a PDF may be in another order."""
    for suffix in make().formats:
        first, second = (_drawn(make, toy_figure(), suffix) for _ in range(2))
        same = first == second
        if suffix == "pdf":
            same = abs(len(first) - len(second)) <= _REFERENCES
        require(same, f"a second .{suffix} file of the same figure differs")


@suite.check(after=[check_files])
def check_columns(make: Make) -> None:
    """A figure of two columns differs from that of one."""
    suffix = _first_format(make)
    one, two = (_drawn(make, toy_figure(), suffix, columns) for columns in (1, 2))
    require(one != two, "one column and two columns give the same file")


@suite.check(after=[check_files])
def check_values(make: Make) -> None:
    """Every value, interval, name and axis of a figure counts."""
    suffix = _first_format(make)
    whole = _drawn(make, toy_figure(), suffix)
    for what, changed in _changes(toy_figure()):
        require(_drawn(make, changed, suffix) != whole, f"{what} makes no difference")
    below = [_with_first(toy_figure(), Quantity.around(value, 1.0)) for value in (-5.0, -8.0)]
    first, second = (_drawn(make, figure, suffix) for figure in below)
    require(first != second, "-5 and -8 are drawn alike")


def _with_first(figure: FigureDeclaration, quantity: Quantity | None) -> FigureDeclaration:
    """Return the figure with another first value."""
    first, *rest = figure.panels
    series, *others = first.series
    point, *points = series.points
    line = Series(series.name, (dataclasses.replace(point, y=quantity), *points))
    panel = dataclasses.replace(first, series=(line, *others))
    return dataclasses.replace(figure, panels=(panel, *rest))


def _changes(figure: FigureDeclaration) -> Iterator[tuple[str, FigureDeclaration]]:
    yield "the title", dataclasses.replace(figure, title="Other")
    yield "the horizontal axis", dataclasses.replace(figure, x_axis="other")
    yield "the vertical axis", dataclasses.replace(figure, y_axis="other")
    first, *rest = figure.panels
    series, *others = first.series
    point = series.points[0]
    assert point.y is not None
    wider = Quantity(point.y.value, point.y.low - 3, point.y.high + 3, point.y.unit)
    for what, quantity in (
        ("a value", Quantity.around(point.y.value + 3, 2)),
        ("half a unit", Quantity.around(point.y.value + 0.4, 2)),
        ("an interval", wider),
        ("a lower bound", Quantity(point.y.value, point.y.low - 3, point.y.high, point.y.unit)),
        ("a value that is missing", None),
    ):
        yield what, _with_first(figure, quantity)
    named = dataclasses.replace(first, series=(Series("other", series.points), *others))
    yield "the name of a series", dataclasses.replace(figure, panels=(named, *rest))
    yield "a panel", dataclasses.replace(figure, panels=(first,))
    last = figure.panels[-1].series[-1]
    value = last.points[-1].y
    assert value is not None
    for what, y in (
        ("the last value", Quantity.around(1.0, 0.5)),
        ("the last interval", Quantity.around(value.value, value.half_width + 2)),
    ):
        moved = dataclasses.replace(last.points[-1], y=y)
        line = dataclasses.replace(last, points=(*last.points[:-1], moved))
        lines = (*figure.panels[-1].series[:-1], line)
        panel = dataclasses.replace(figure.panels[-1], series=lines)
        yield what, dataclasses.replace(figure, panels=(*figure.panels[:-1], panel))
    yield "a note", dataclasses.replace(figure, notes=("Another note.",))


@suite.check(after=[check_files])
def check_names_are_text(make: Make) -> None:
    """Names with markup, quotes, other scripts or hundreds of letters are drawn as text."""
    for mark in _MARKS:
        figure = toy_figure(mark, names=_NAMES)
        for suffix in make().formats:
            data = _drawn(make, figure, suffix, what=f"for names such as {_NAMES[0]!r}")
            require(data, f"names such as {_NAMES[0]!r} give an empty .{suffix} file")
            if suffix == "svg":
                _check_svg(data)


def _check_svg(data: bytes) -> None:
    try:
        root = ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise ConformanceError(f"names with markup give an SVG that is not XML: {error}") from None
    scripts = [node for node in root.iter() if str(node.tag).endswith("script")]
    require(not scripts, "a name with markup becomes an element of the SVG")


@suite.check(after=[check_files])
def check_missing_values(make: Make) -> None:
    """A figure in which values are missing is drawn."""
    suffix = _first_format(make)
    for mark in _MARKS:
        require(_drawn(make, toy_figure(mark, missing=True), suffix), f"{mark} give an empty file")


@suite.check(after=[check_files])
def check_nothing_to_draw(make: Make) -> None:
    """A figure without a value is a ``DataError``, and no file is left."""
    empty = dataclasses.replace(toy_figure(), panels=(Panel("", ()),))
    suffix = _first_format(make)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"figure.{suffix}"
        try:
            make().draw(empty, path, columns=1)
        except DataError:
            require(not path.exists(), "it must leave no file of a figure without a value")
            return
    require(False, "a figure without a value must be a DataError, but it was drawn")


@suite.answers(after=[check_same_again])
def _answers(make: Make) -> dict[str, bytes]:
    # The objects of a PDF may be in another order.
    suffixes = [suffix for suffix in make().formats if suffix != "pdf"]
    return {f"the .{suffix} file": _drawn(make, toy_figure(), suffix) for suffix in suffixes}
