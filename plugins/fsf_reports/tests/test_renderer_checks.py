"""Each check of renderers rejects the one broken component made for it, and nothing else does."""

import json
from typing import ClassVar

import pytest

from fsf_reports.interfaces import Renderer
from fsframework.errors import DataError
from fsframework.testing import checks_for, parametrize_with_checks
from tests.misdeclared import misdeclared


class Plain(Renderer):
    """The declaration as JSON, or as the text of an SVG."""

    formats = ("json", "svg")

    def __init__(self, *, indent: int = 2):
        self.indent = indent

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
        return json.dumps([told, columns], indent=self.indent)

    def escaped(self, text):
        return text.replace("&", "&amp;").replace("<", "&lt;")


class NoRenderer:
    """It has the methods but not the interface."""

    formats = ("json", "svg")
    draw = Plain.draw


class Positional(Plain):
    """A positional option."""

    def __init__(self, indent: int = 2):
        super().__init__(indent=indent)


class Doubled(Plain):
    """An option that is stored as another value."""

    def __init__(self, *, indent: int = 2):
        super().__init__(indent=2 * indent)


class Silent(Plain):
    pass


class Dotted(Plain):
    """Suffixes with their dots."""

    formats = (".json",)


class Misnamed(Plain):
    """A PNG that is text."""

    formats = ("json", "png")


class MarkBlind(Plain):
    """Every mark is drawn alike."""

    def told(self, figure):
        panels = [
            [(series.name, [point.y for point in series.points]) for series in panel.series]
            for panel in figure.panels
        ]
        return [figure.title, figure.x_axis, figure.y_axis, repr(panels)]


class Counting(Plain):
    """Files are numbered."""

    drawn: ClassVar[list[int]] = []

    def text(self, told, suffix, columns):
        if told["figure"] == "Toys" and told["mark"] == "bars":
            self.drawn.append(0)
        return super().text({**told, "n": len(self.drawn)}, suffix, columns)


class OneWidth(Plain):
    """Columns are ignored."""

    def text(self, told, suffix, columns):
        return super().text(told, suffix, 1)


class NoIntervals(Plain):
    """Intervals are left out."""

    def told(self, figure):
        text = json.dumps(figure.to_json())
        for panel in figure.to_json()["panels"]:
            for series in panel["series"]:
                for point in series["points"]:
                    told = {k: v for k, v in point.items() if k in ("x", "y", "label")}
                    text = text.replace(json.dumps(point), json.dumps(told))
        return json.loads(text)


class Markup(Plain):
    """Names become elements."""

    def escaped(self, text):
        return text.replace("&", "&amp;")


class NeedsValues(Plain):
    """A missing value is a fault."""

    def refuse_empty(self, figure):
        super().refuse_empty(figure)
        for point in figure.panels[0].series[1].points:
            abs(point.y.value)


class Empty(Plain):
    """A figure of nothing is a file of nothing."""

    def refuse_empty(self, figure):
        pass


BROKEN = {
    "check_construction": NoRenderer,
    "check_options_typed": Positional,
    "check_options_stored": Doubled,
    "check_summary": Silent,
    **misdeclared(Plain),
    "check_formats": Dotted,
    "check_files": Misnamed,
    "check_marks": MarkBlind,
    "check_same_again": Counting,
    "check_columns": OneWidth,
    "check_values": NoIntervals,
    "check_names_are_text": Markup,
    "check_missing_values": NeedsValues,
    "check_nothing_to_draw": Empty,
}


@parametrize_with_checks([Plain])
def test_a_sound_renderer_passes(make, check):
    check(make)


@pytest.mark.parametrize("name", BROKEN)
def test_only_its_check_rejects(name, failing):
    assert failing(BROKEN[name], "renderer") == {name}


def test_every_check_has_its_broken_renderer():
    assert list(BROKEN) == [check.__name__ for check in checks_for("renderer")]
