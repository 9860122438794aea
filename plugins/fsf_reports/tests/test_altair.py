"""Figures: what is drawn is what was declared, whatever its names contain."""

from __future__ import annotations

import dataclasses
import json
import re
import zlib
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import altair
import jsonschema
import pytest

import fsf_reports
from fsf_reports import Altair, chart, vega_lite
from fsf_reports._style import WIDTHS
from fsf_reports.testing import toy_figure
from fsf_reports.values import FigureDeclaration, Mark, Panel, Point, Quantity, Series
from fsframework.errors import DataError, OptionError
from fsframework.testing import parametrize_with_checks

MARKS: tuple[Mark, ...] = get_args(Mark)
NASTY = (
    "<script>alert(1)</script>",
    "</style>\"quoted\" & 'q' \\ %s $x_1$ {a} datum.y",
    "שלום 🐕 naïve 日本",
    "long name " * 30,
)


@parametrize_with_checks([Altair])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def texts(svg: Path) -> list[str]:
    found = []
    for node in ElementTree.fromstring(svg.read_text(encoding="utf-8")).iter():
        if node.tag.endswith("}text"):
            lines = [child.text or "" for child in node] or [node.text or ""]
            found.append(" ".join(lines))
    return found


@pytest.mark.parametrize("mark", MARKS)
def test_a_specification_fulfils_the_schema_and_holds_every_value(mark: Mark) -> None:
    figure = toy_figure(mark, names=NASTY)
    spec = vega_lite(figure)
    jsonschema.Draft7Validator(altair.load_schema()).validate(spec)
    values = _numbers(spec)
    for point in figure.points:
        assert point.y is not None
        for number in (point.y.value, point.y.low, point.y.high):
            assert number in values
    # Names are data or string literals: none of them is taken for an expression.
    assert "datum.y" not in json.dumps([node["expr"] for node in _nodes(spec) if "expr" in node])


def _nodes(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value, *(node for one in value.values() for node in _nodes(one))]
    return [node for one in value for node in _nodes(one)] if isinstance(value, list) else []


def _numbers(spec: dict[str, Any]) -> set[float]:
    return {v for row in _rows(spec) for v in row.values() if isinstance(v, float)}


def _rows(spec: dict[str, Any]) -> list[dict[str, Any]]:
    values = [value for node in _nodes(spec) for value in node.get("values", ())]
    return [value for value in values if isinstance(value, dict)]


def single(series: tuple[Series, ...], **options: Any) -> FigureDeclaration:
    """Return a figure of one panel."""
    return FigureDeclaration("F", "", "x", "y", (Panel("", series),), **options)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("mark", MARKS)
def test_a_figure_is_as_wide_as_the_column_and_nothing_is_cut(
    mark: Mark, columns: Any, tmp_path: Path
) -> None:
    for names in (("maml", "protonet", "baseline"), NASTY):
        path = tmp_path / "figure.svg"
        Altair().draw(toy_figure(mark, names=names), path, columns=columns)
        head = re.match(
            r'<svg .*?width="([\d.]+)pt" height="[\d.]+pt" viewBox="0 0 ([\d.]+) ',
            path.read_text(encoding="utf-8"),
        )
        assert head is not None
        assert float(head[1]) == pytest.approx(WIDTHS[columns], abs=0.01)
        # Text keeps its size: the drawing is not squeezed into the column by more than 2 %.
        assert float(head[2]) / float(head[1]) < 1.02


def test_fonts_are_in_the_pdf(tmp_path: Path) -> None:
    path = tmp_path / "figure.pdf"
    Altair().draw(toy_figure("points"), path)
    data = path.read_bytes()
    parts = [data]
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", data, re.DOTALL):
        try:
            parts.append(zlib.decompress(stream))
        except zlib.error:
            continue
    whole = b"".join(parts)
    assert re.search(rb"/FontFile[23]?\b", whole)
    assert b"LiberationSans" in whole
    box = re.search(rb"/MediaBox ?\[0 0 ([\d.]+)", whole)
    assert box is not None
    assert float(box[1]) == pytest.approx(84 / 25.4 * 72, abs=0.1)


def test_bars_below_0_hang_from_the_axis_and_a_missing_one_is_said(tmp_path: Path) -> None:
    values = (("up", 2.0), ("down", -2.0))
    series = tuple(Series(n, (Point("one", Quantity.around(v, 1)),)) for n, v in values)
    figure = single(series)
    path = tmp_path / "bars.svg"
    Altair().draw(figure, path)
    bars = re.findall(
        r'aria-roledescription="bar"[^>]* d="M[\d.]+,([\d.]+)h[\d.]+v([\d.]+)h',
        path.read_text(encoding="utf-8"),
    )
    (top, up), (zero, down) = ((float(y), float(height)) for y, height in bars)
    assert up == pytest.approx(down, abs=0.01)
    assert zero == pytest.approx(top + up, abs=0.01)
    Altair().draw(toy_figure(missing=True), tmp_path / "f.svg")
    assert texts(tmp_path / "f.svg").count("n/a") == 4


def test_a_chart_is_one_of_vega_altair() -> None:
    assert isinstance(chart(toy_figure()), altair.VConcatChart)


def test_series_differ_in_more_than_colour() -> None:
    for mark, channel in (("points", "shape"), ("whiskers", "shape"), ("lines", "strokeDash")):
        nodes = _nodes(vega_lite(toy_figure(mark)))  # type: ignore[arg-type]
        channels = [node[channel] for node in nodes if isinstance(node.get(channel), dict)]
        scales = [one["scale"]["range"] for one in channels]
        assert scales
        assert all(first != second for first, second in scales)


def test_save_figure_finds_the_renderer_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    path = fsf_reports.save_figure(toy_figure(), tmp_path / "figure.PDF")
    assert path.read_bytes().startswith(b"%PDF-")
    with pytest.raises(OptionError, match=r"must end in one of \.pdf, \.svg, \.png"):
        fsf_reports.save_figure(toy_figure(), tmp_path / "figure.jpg")
    with pytest.raises(OptionError, match="columns must be 1 or 2, not 3"):
        fsf_reports.save_figure(toy_figure(), tmp_path / "figure.pdf", 3)  # type: ignore[arg-type]
    empty = dataclasses.replace(toy_figure(), panels=(Panel("", ()),))
    with pytest.raises(DataError, match="nothing to draw"):
        fsf_reports.save_figure(empty, tmp_path / "empty.pdf")
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["figure.PDF"]


def test_a_notebook_shows_the_figure_or_else_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = toy_figure("points", names=NASTY)
    bundle = figure._repr_mimebundle_()
    assert bundle["application/vnd.vegalite.v6+json"] == vega_lite(figure, 2)
    assert bundle["image/svg+xml"].startswith("<svg")
    monkeypatch.setattr("fsf_reports._saving.in_notebook", lambda figure: {})
    [html] = [figure._repr_mimebundle_()["text/html"]]
    assert "<script>" not in html
    for point in figure.points:
        assert point.y is not None
        assert f"<td>{point.y.text()}</td>" in html


def crowd(mark: Mark, count: int) -> FigureDeclaration:
    """A figure of many methods with long names."""
    names = [f"method-number-{n}" for n in range(count)]
    points = tuple(
        Point(Quantity.around(50.0 + n, 9) if mark == "points" else name,
              Quantity.around(40.0 + n, 9), name if mark == "points" else "")
        for n, name in enumerate(names)
    )  # fmt: skip
    return single((Series("", points),), mark=mark)


def test_labels_without_room_become_numbers_with_a_key(tmp_path: Path) -> None:
    Altair().draw(crowd("points", 24), tmp_path / "f.svg")
    shown = texts(tmp_path / "f.svg")
    assert "24 method-number-23" in shown
    assert "24" in shown
    assert "method-number-23" not in shown
    Altair().draw(crowd("points", 8), tmp_path / "few.svg")
    assert "method-number-7" in texts(tmp_path / "few.svg")


def test_bars_without_room_become_dots_with_every_name(tmp_path: Path) -> None:
    few, many = vega_lite(crowd("bars", 5)), vega_lite(crowd("bars", 40))
    types = [{node["type"] for node in _nodes(s) if "type" in node} for s in (few, many)]
    assert ["bar" in found for found in types] == [True, False]
    Altair().draw(crowd("bars", 40), tmp_path / "f.svg")
    shown = " ".join(texts(tmp_path / "f.svg"))
    assert all(f"method-number-{n}" in shown for n in range(40))


def test_intervals_end_where_no_value_can_be() -> None:
    wide = Point("one", Quantity(98.0, 80.0, 116.0))
    figure = single((Series("", (wide,)),), mark="whiskers", limits=(0.0, 100.0))
    assert 116.0 not in _numbers(vega_lite(figure))
    assert {80.0, 98.0, 100.0} <= _numbers(vega_lite(figure))
    assert figure.to_json()["panels"][0]["series"][0]["points"][0]["y_high"] == 116.0


def test_epochs_have_whole_ticks(tmp_path: Path) -> None:
    points = tuple(Point(float(n), Quantity(n / 7)) for n in (1, 2, 3))
    Altair().draw(single((Series("", points),), mark="lines"), tmp_path / "f.svg")
    shown = texts(tmp_path / "f.svg")
    assert {"1", "2", "3"} <= set(shown)
    assert not {"1.5", "1.0", "2.5"} & set(shown)


def test_cells_of_a_matrix_all_have_the_same_digits() -> None:
    values = (0.4, 12.3, -24.0)
    series = tuple(
        Series(f"row {n}", tuple(Point(f"column {m}", Quantity(v * (m + 1) / 8)) for m in range(8)))
        for n, v in enumerate(values)
    )
    rows = _rows(vega_lite(single(series, mark="matrix")))
    shown = [row["shown"] for row in rows if "shown" in row]
    assert len(shown) == 24
    assert len({len(text.partition(".")[2]) for text in shown}) == 1


def grid(mark: Mark, panels: int) -> FigureDeclaration:
    """A figure of many panels with the same five methods."""
    names = [f"method-{n}" for n in range(5)]
    shown = tuple(
        Panel(
            f"set {number}, 5-way 1-shot",
            tuple(
                Series(
                    name,
                    (
                        Point(Quantity.around(97.0, 9), Quantity.around(98.0, 9), name)
                        if mark == "points"
                        else Point(
                            float(n + 1) if mark == "lines" else name, Quantity.around(3.0, 9)
                        ),
                    ),
                )
                for n, name in enumerate(names)
            ),
        )
        for number in range(panels)
    )
    return FigureDeclaration("F", "", "across", "upright", shown, mark=mark, limits=(0.0, 100.0))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("mark", MARKS)
def test_many_panels_fit_a_page_and_the_titles_of_axes_stand_once(
    mark: Mark, columns: Any, tmp_path: Path
) -> None:
    path = tmp_path / "figure.svg"
    Altair().draw(grid(mark, 12), path, columns=columns)
    head = re.match(r'<svg .*?height="([\d.]+)pt"', path.read_text(encoding="utf-8"))
    assert head is not None
    assert float(head[1]) / 72 * 25.4 < 240
    shown = texts(path)
    titles = [title for title in ("across", "upright") if (mark, title) != ("whiskers", "across")]
    assert [shown.count(title) for title in titles] == [1] * len(titles)
    assert all(any(f"set {n}," in text for text in shown) for n in range(12))


def test_panels_with_ranges_of_their_own_have_axes_of_their_own(tmp_path: Path) -> None:
    panels = tuple(
        Panel(
            f"up to {most}", (Series("s", (Point(1.0, Quantity(0)), Point(2.0, Quantity(most)))),)
        )
        for most in (4, 80)
    )
    for own in (True, False):
        figure = FigureDeclaration("F", "", "x", "y", panels, mark="lines", own_ranges=own)
        path = tmp_path / f"{own}.svg"
        Altair().draw(figure, path, columns=2)
        shown = texts(path)
        assert [shown.count(text) for text in ("4", "80")] == ([1, 1] if own else [0, 1])
    with pytest.raises(DataError, match="ranges of their own"):
        FigureDeclaration("F", "", "x", "y", panels, mark="bars", own_ranges=True)


@pytest.mark.parametrize("mark", ["points", "lines", "bars", "whiskers"])
def test_axes_of_shares_end_at_0_and_100(mark: Mark) -> None:
    spec = vega_lite(grid(mark, 2))
    domains = [
        node["scale"]["domain"]
        for node in _nodes(spec)
        if node.get("type") == "quantitative" and "domain" in (node.get("scale") or {})
    ]
    values = [end for domain in domains for end in domain]
    assert min(values) >= 0
    assert max(values) <= 100
