"""Options: converted by their annotations, nested, with origins, and refused in one sentence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import pytest

from fsframework.components.conversion import convert
from fsframework.components.options import Given
from fsframework.components.registry import Registry
from fsframework.components.resolution import canonical, resolve_component
from fsframework.errors import OptionError

NESTED = '''
from typing import Literal
from fsframework.interfaces import OptionError, Statistic

class Base(Statistic):
    """Accuracy, scaled."""
    def __init__(self, *, factor: float = 1.0, mode: Literal["a", "b"] = "a") -> None:
        if factor <= 0:
            raise OptionError(f"factor must be above 0, not {factor}")
        self.factor, self.mode = factor, mode
    def per_task(self, outcomes):
        return outcomes.class_accuracy.mean(axis=1) * self.factor

class Wrapper(Statistic):
    """One minus another statistic."""
    def __init__(self, *, inner: Statistic, shift: int = 1) -> None:
        self.inner, self.shift = inner, shift
    def per_task(self, outcomes):
        return self.shift - self.inner.per_task(outcomes)

class Several(Statistic):
    """The largest of several statistics."""
    def __init__(self, *, parts: tuple[Statistic, ...]) -> None:
        self.parts = parts
    def per_task(self, outcomes):
        return max(part.per_task(outcomes) for part in self.parts)
'''


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    path = tmp_path / "nested.py"
    path.write_text(NESTED)
    registry = Registry()
    registry.load_file(path)
    return registry


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        ("3", int, 3),
        (3.0, int, 3),
        ("0.5", float, 0.5),
        (1, float, 1.0),
        ("yes", bool, True),
        (False, bool, False),
        ("none", int | None, None),
        ("4", int | None, 4),
        ("64,160", tuple[int, ...], (64, 160)),
        ([0.6, 0.2, 0.2], tuple[float, float, float], (0.6, 0.2, 0.2)),
        ("a, b", list[str], ["a", "b"]),
        ("x/y", Path, Path("x/y")),
        ("b", Literal["a", "b"], "b"),
        ("2", Literal[1, 2], 2),
    ],
)
def test_values_are_brought_to_their_type(
    value: object, annotation: object, expected: object
) -> None:
    result = convert(value, annotation, "x")
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("value", "annotation", "message"),
    [
        ("abc", int, "x must be a whole number, not 'abc'"),
        (2.5, int, "x must be a whole number, not 2.5"),
        (True, int, "x must be a whole number, not True"),
        ("abc", float, "x must be a number, not 'abc'"),
        ("maybe", bool, "x must be true or false, not 'maybe'"),
        (3, str, "x must be a text, not 3"),
        ("c", Literal["a", "b"], "x must be one of a, b, not 'c'"),
        ("1,2", tuple[float, float, float], "x must be a list of a number, not '1,2'"),
        ("abc", int | None, "x must be a whole number or none, not 'abc'"),
        ("1_0", int, "x must be a whole number, not '1_0'"),
        ("1_0", float, "x must be a number, not '1_0'"),
        ("nan", float, "x must be a number, not 'nan'"),
        (math.inf, float, "x must be a number, not inf"),
        (math.inf, int, "x must be a whole number, not inf"),
        ("a\0b", Path, "x must be a path, not 'a\\x00b'"),
        ("a\0b", str, "x must be a text, not 'a\\x00b'"),
        (3, Path, "x must be a path, not 3"),
    ],
)
def test_values_of_the_wrong_type_are_refused(
    value: object, annotation: object, message: str
) -> None:
    with pytest.raises(OptionError) as caught:
        convert(value, annotation, "x")
    assert str(caught.value) == message


def test_components_nest_and_remember_where_each_value_came_from(registry: Registry) -> None:
    inner = {"name": Given("base", "exp.toml"), "factor": Given("2.5", "command line")}
    tree = {"name": Given("wrapper", "command line"), "inner": inner}
    component = resolve_component(registry, "statistic", tree)
    assert component.to_json() == {
        "name": "wrapper",
        "inner": {"name": "base", "factor": 2.5, "mode": "a"},
        "shift": 1,
    }
    assert component.origins_json() == {
        "name": "command line",
        "inner": {"name": "exp.toml", "factor": "command line", "mode": "default"},
        "shift": "default",
    }
    instance = component.create()
    assert instance.inner.factor == 2.5
    assert [c.name for c in component.walk()] == ["wrapper", "base"]


def test_an_option_may_be_several_components(registry: Registry) -> None:
    named = resolve_component(registry, "statistic", {"name": "several", "parts": "base, base"})
    assert [type(p).__name__ for p in named.create().parts] == ["Base", "Base"]
    tables = [{"name": Given("base", "exp.toml"), "factor": Given(2.0, "exp.toml")}, "wacc"]
    mixed = resolve_component(registry, "statistic", {"name": "several", "parts": tables})
    assert mixed.to_json()["parts"] == [
        {"name": "base", "factor": 2.0, "mode": "a"},
        {"name": "wacc"},
    ]
    assert mixed.origins_json()["parts"][0]["factor"] == "exp.toml"
    assert [c.name for c in mixed.walk()] == ["several", "base", "wacc"]
    assert mixed.fingerprint != named.fingerprint
    with pytest.raises(OptionError, match=r"unknown option statistic\.parts\.0\.factr"):
        resolve_component(
            registry, "statistic", {"name": "several", "parts": [{"name": "base", "factr": 1}]}
        )


def test_fingerprints_follow_options_however_deep_and_code(
    registry: Registry, tmp_path: Path
) -> None:
    def fingerprint(chosen: Registry, factor: str) -> str:
        tree: dict[str, object] = {"name": "wrapper", "inner": {"name": "base", "factor": factor}}
        return resolve_component(chosen, "statistic", tree).fingerprint

    assert fingerprint(registry, "1") == fingerprint(registry, "1.0")
    assert fingerprint(registry, "1") != fingerprint(registry, "2")
    changed = tmp_path / "nested.py"
    before = fingerprint(registry, "1")
    changed.write_text(
        NESTED.replace("outcomes.class_accuracy.mean", "outcomes.class_accuracy.max")
    )
    again = Registry()
    again.load_file(changed)
    assert fingerprint(again, "1") != before


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (
            {"name": "base", "facter": 1},
            "unknown option statistic.facter (did you mean 'factor'?); "
            "options of statistic 'base': factor, mode",
        ),
        ({"name": "wrapper"}, "statistic 'wrapper' needs the option statistic.inner (a statistic)"),
        ({"name": "base", "factor": "x"}, "statistic.factor must be a number, not 'x'"),
        ({"name": "base", "factor": {"name": "y"}}, "statistic.factor is a plain option"),
        ({"factor": 1}, "statistic has options but no name"),
        ({"name": "base:x"}, "statistic 'base' takes no argument after the colon"),
        (
            {"name": "wrapper", "inner": {"name": "base", "mode": "z"}},
            "statistic.inner.mode must be one of a, b, not 'z'",
        ),
    ],
)
def test_bad_options_are_named(registry: Registry, tree: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        resolve_component(registry, "statistic", tree)
    assert str(caught.value).startswith(message)


def test_what_a_constructor_refuses_says_which_component(registry: Registry) -> None:
    component = resolve_component(registry, "statistic", {"name": "base", "factor": -1})
    with pytest.raises(OptionError, match=r"statistic base: factor must be above 0, not -1\.0"):
        component.create()


def test_canonical_does_not_depend_on_order() -> None:
    assert canonical({"a": (1, 2), "b": Path("x")}) == canonical({"b": "x", "a": [1, 2]})
