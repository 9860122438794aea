"""Drawings: nothing lies over anything else, is cut or leaves the page, whatever is drawn."""

from __future__ import annotations

import csv
import math
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import pytest

import fsf_reports
from fsf_reports._text import text_width
from fsf_reports.values import FigureDeclaration, Mark, Panel, Point, Quantity, Series
from tests.conftest import Fsf

Box = tuple[str, float, float, float, float]
PAGE = 240 / 25.4 * 72


def texts_of(path: Path) -> tuple[list[Box], float, float]:
    """Return each line of text with its corners, and the size of a drawing."""
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    return list(_lines(root, 0.0, 0.0, turned=False)), width, height


def _moved(node: Any, x: float, y: float) -> tuple[float, float]:
    for move in re.findall(r"translate\(([^)]*)\)", node.get("transform", "")):
        right, down = (float(part) for part in re.split("[ ,]+", move))
        x, y = x + right, y + down
    return x, y


def marks_of(node: Any, kind: str, x: float = 0.0, y: float = 0.0) -> Iterator[tuple[Any, ...]]:
    """Yield colour, path and place of each mark of a kind, in the order in which they are drawn."""
    x, y = _moved(node, x, y)
    if node.get("aria-roledescription") == kind:
        yield node.get("fill"), node.get("d"), x, y
    for child in node:
        yield from marks_of(child, kind, x, y)


def _lines(node: Any, x: float, y: float, *, turned: bool) -> Iterator[Box]:
    moves = node.get("transform", "")
    x, y = _moved(node, x, y)
    turned = turned or bool(re.search(r"rotate\(-?\d*[1-9]", moves))
    if node.tag.endswith("}text"):
        size = float(node.get("font-size").removesuffix("px"))
        down = 0.0
        for line in list(node) or [node]:
            down += float(line.get("dy", 0))
            text = line.text or ""
            wide = text_width(text, size, bold=node.get("font-weight") == "bold")
            start = {"start": 0.0, "middle": -wide / 2, "end": -wide}[node.get("text-anchor")]
            if turned:
                yield text, x - 0.7 * size, y - wide / 2, x, y + wide / 2
            elif text:
                at = y + down
                yield text, x + start, at - 0.7 * size, x + start + wide, at
    for child in node:
        yield from _lines(child, x, y, turned=turned)


def overlapping(boxes: list[Box]) -> list[tuple[str, str]]:
    return [
        (one[0], other[0])
        for place, one in enumerate(boxes)
        for other in boxes[:place]
        if min(one[3], other[3]) - max(one[1], other[1]) > 0.5
        and min(one[4], other[4]) - max(one[2], other[2]) > 0.5
    ]


def crowded(mark: Mark, names: list[str], panels: int, rng: random.Random) -> FigureDeclaration:
    """Return a figure of methods that lie close together, some of them at one place."""

    def series() -> tuple[Series, ...]:
        values = {name: Quantity.around(rng.choice((0.0, rng.uniform(2, 30))), 2) for name in names}
        match mark:
            case "points":
                places = [Quantity.around(q.value + rng.uniform(0, 9), 2) for q in values.values()]
                each = zip(names, places, values.values(), strict=True)
                return (Series("", tuple(Point(x, y, name) for name, x, y in each)),)
            case "matrix":
                return tuple(
                    Series(row, tuple(Point(name, values[name]) for name in names)) for row in names
                )
            case "lines":
                return tuple(
                    Series(n, (Point(1.0, values[n]), Point(2.0, values[n]))) for n in names
                )
        arms = ("wAcc-R", "wAcc-A")
        return tuple(Series(a, tuple(Point(n, values[n]) for n in names)) for a in arms)

    made = tuple(Panel(f"set {n}" * (panels > 1), series()) for n in range(panels))
    return FigureDeclaration("F", "", "x", "y", made, mark=mark, limits=(0.0, 100.0))


def named(count: int, form: str) -> list[str]:
    return [form.format(n) for n in range(count)]


LONG = "distribution-calibration of backbone conv64f, drop words number {}"


@pytest.mark.parametrize("mark", ["bars", "points", "whiskers", "lines", "matrix"])
@pytest.mark.parametrize(
    ("count", "form", "panels", "columns"),
    [(4, "ncc-{}", 3, 2), (9, LONG, 1, 1), (24, "baseline-{}", 1, 1)],
)
def test_texts_lie_beside_each_other_and_name_every_method(
    mark: Mark, count: int, form: str, panels: int, columns: Literal[1, 2], tmp_path: Path
) -> None:
    names = named(count, form)
    figure = crowded(mark, names, panels, random.Random(count))
    path = fsf_reports.save_figure(figure, tmp_path / "f.svg", columns, renderer="altair")
    boxes, width, height = texts_of(path)
    assert not overlapping(boxes)
    assert all(left > -1 and right < width + 1 for _, left, _, right, _ in boxes)
    assert all(top > -2 and bottom < height + 2 for _, _, top, _, bottom in boxes)
    assert height < PAGE
    shown = "".join(text for text, *_ in boxes).replace(" ", "")
    assert all(name.replace(" ", "") in shown for name in names)
    assert "…" not in shown


def scattered(*places: tuple[float, float]) -> FigureDeclaration:
    """Return a figure of two panels, of methods at these places and of the first alone."""
    points = [
        Point(Quantity.around(x, 2), Quantity.around(y, 2), f"method-{n}")
        for n, (x, y) in enumerate(places)
    ]
    panels = (
        Panel("both", (Series("", tuple(points)),)),
        Panel("one", (Series("", (points[0],)),)),
    )
    limits = (0.0, 100.0)
    return FigureDeclaration("F", "", "", "", panels, mark="points", diagonal=True, limits=limits)


@pytest.mark.parametrize("apart", [0.0, 0.3, 0.8, 1.5, 3.0, 6.0, 12.0, 30.0])
@pytest.mark.parametrize("toward", [(1, 0), (0, 1), (1, 1), (1, -1)])
def test_no_point_can_be_taken_for_another(
    apart: float, toward: tuple[int, int], tmp_path: Path
) -> None:
    first, second = (48, 38), (48 + apart * toward[0], 38 + apart * toward[1])
    figure = scattered(first, second, (20, 20))
    path = fsf_reports.save_figure(figure, tmp_path / "f.svg", renderer="altair")
    marks = list(marks_of(ElementTree.parse(path).getroot(), "point"))
    shown = texts_of(path)[0]
    of_key = {colour: path for colour, path, *_ in marks}
    if len(of_key) > 1:  # a key: a colour and a shape for each method, the same in both panels
        assert len({path for _, path, *_ in marks[:3]}) == len(of_key) == 3
        assert marks[-1][0] == marks[-4][0]
        return
    at = {f"method-{n}": (x, y) for n, (*_, x, y) in enumerate(marks[:3])}
    for text, left, top, right, bottom in shown:
        if text not in at or left > marks[3][2] - 60:  # of the second panel
            continue
        away = {
            name: math.hypot(max(left - x, 0, x - right), max(top - y, 0, y - bottom))
            for name, (x, y) in at.items()
        }
        # A label that is beside no point has a line to its own.
        assert min(away, key=away.__getitem__) == text or min(away.values()) > 8


def test_of_sixty_points_those_with_room_have_names_and_no_key_is_drawn(tmp_path: Path) -> None:
    crowd = [(80 + n % 8, 70 + n // 8) for n in range(56)]
    lone = [(20, 10), (40, 20), (60, 30), (30, 70)]
    path = fsf_reports.save_figure(scattered(*lone, *crowd), tmp_path / "f.svg", renderer="altair")
    boxes, *_ = texts_of(path)
    named = [int(text.split("-")[1]) for text, *_ in boxes if text.startswith("method-")]
    assert set(range(4)) <= set(named)
    assert len(named) < 30
    assert not overlapping(boxes)


@pytest.mark.parametrize("missing", [0, 1])
def test_bars_of_one_series_stand_over_their_name(missing: int, tmp_path: Path) -> None:
    both = [Series(f"{n} shots", (Point("ncc", Quantity(9.0 + n)),)) for n in (1, 5)]
    panels = (Panel("both", tuple(both)), Panel("one", (both[missing],)))
    figure = FigureDeclaration("F", "", "", "", panels, mark="bars")
    path = fsf_reports.save_figure(figure, tmp_path / "f.svg", renderer="altair")
    *_, (_, drawn, x, _) = marks_of(ElementTree.parse(path).getroot(), "bar")
    start, wide = map(float, re.findall(r"M([-\d.]+),[-\d.]+h([-\d.]+)", drawn)[0])
    *_, (_, left, _, right, _) = (box for box in texts_of(path)[0] if box[0] == "ncc")
    assert x + start + wide / 2 == pytest.approx((left + right) / 2, abs=2)


def test_rows_are_as_high_in_every_panel(tmp_path: Path) -> None:
    panels = tuple(
        Panel(f"{count} rows", tuple(
            Series(arm, tuple(Point(f"{count}-{n}", Quantity(50.0)) for n in range(count)))
            for arm in ("wAcc-R", "wAcc-A")
        ))
        for count in (2, 9)
    )  # fmt: skip
    figure = FigureDeclaration("F", "", "", "", panels, mark="whiskers")
    path = fsf_reports.save_figure(figure, tmp_path / "f.svg", renderer="altair")
    drawn = path.read_text(encoding="utf-8")
    dots = re.findall(r'description="point"[^>]*translate\([\d.]+,([\d.]+)\)', drawn)
    few, many = (list(map(float, part)) for part in (dots[-22:-18], dots[-18:]))
    assert few[2] - few[0] == pytest.approx(many[9] - many[0], rel=0.02)  # of the two arms
    assert few[1] - few[0] == pytest.approx(many[1] - many[0], rel=0.02)  # of two rows


def test_rows_beyond_a_page_are_left_out_and_counted(
    fsf: Fsf, one_shot: list[Path], tmp_path: Path
) -> None:
    words = f"figure breakdown {one_shot[0]} --by pair --question present --most 500".split()
    done = fsf(*words, "--output", "f.svg", "--output", "f.csv")
    assert done.returncode == 0, done.stderr
    boxes, _, height = texts_of(tmp_path / "f.svg")
    assert height < PAGE
    assert not overlapping(boxes)
    left, every = map(int, re.findall(r"Left out[^:]*: (\d+) of (\d+) rows", done.stdout)[0])
    rows = [text for text, *_ in boxes if text.startswith("shape_")]
    assert len(set(rows)) == len(rows) == every - left
    with (tmp_path / "f.csv").open(encoding="utf-8") as file:
        assert len({row["x"] for row in csv.DictReader(file)}) == every


@pytest.mark.parametrize(
    ("mark", "highest", "end"),
    [("bars", 0.0, 10), ("points", 18.0, 20), ("lines", 63.0, 80), ("whiskers", 97.0, 100)],
)
def test_axes_of_shares_begin_at_0_and_end_at_a_round_number(
    mark: Mark, highest: float, end: int, tmp_path: Path
) -> None:
    places: dict[str, Any] = {"points": [Quantity(highest), Quantity(0)], "lines": [1.0, 2.0]}
    x = places.get(mark, ["one", "two"])
    points = (Point(x[0], Quantity(highest)), Point(x[1], Quantity(0)))
    panel = Panel("", (Series("", points),))
    figure = FigureDeclaration("F", "", "", "", (panel,), mark=mark, limits=(0.0, 100.0))
    path = fsf_reports.save_figure(figure, tmp_path / "f.svg", renderer="altair")
    ticks = [float(text) for text, *_ in texts_of(path)[0] if re.fullmatch(r"[\d.]+", text)]
    assert min(ticks) == 0
    assert math.isclose(max(ticks), end)
