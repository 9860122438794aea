"""Options: converted by their annotations, nested, with origins, and refused in one sentence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import pytest

from fsframework.api.components import Component, Given, canonical, component
from fsframework.api.session import open_session
from fsframework.errors import OptionError, PluginError
from fsframework.interfaces import FewShotMethod, Statistic
from fsframework.values import FloatArray, Outcomes

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


class Mine(Statistic):
    """A statistic of a script, made of others."""

    def __init__(self, *, first: Statistic, rest: tuple[Statistic, ...] = (), level: int = 1):
        self.first, self.rest, self.level = first, rest, level

    def per_task(self, outcomes: Outcomes) -> FloatArray:
        return self.first.per_task(outcomes)


@pytest.fixture
def registry(tmp_path: Path) -> Any:
    path = tmp_path / "nested.py"
    path.write_text(NESTED)
    return open_session(plugins=[path], progress=False).registry


def statistic(registry: Any, request: Any) -> Component:
    return component(registry, "statistic", request)


def typed(annotation: Any) -> type[Statistic]:
    """Return a statistic with an option ``x`` of a type."""

    class Typed(Mine):
        """A statistic with one option."""

        def __init__(self, *, x: Any) -> None:
            self.x = x

    Typed.__init__.__annotations__["x"] = annotation
    return Typed


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        ("3", int, 3),
        (3.0, int, 3),
        ("12345678901234567891", int, 12345678901234567891),
        ("0.5", float, 0.5),
        (1, float, 1.0),
        ("yes", bool, True),
        ("OFF", bool, False),
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
    registry: Any, value: object, annotation: object, expected: object
) -> None:
    result = statistic(registry, {"name": typed(annotation), "x": value}).options["x"]
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "rule", "values"),
    [
        (int, "a whole number", ["abc", 2.5, True, "1_0", "1.0", math.inf]),
        (int | None, "a whole number or none", ["abc"]),
        (float, "a number", ["abc", "1_0", "nan", math.inf, True]),
        (bool, "true or false", ["maybe", 1]),
        (str, "a text", [3, "a\0b"]),
        (Path, "a path", [3, "a\0b"]),
        (Literal["a", "b"], "one of a, b", ["c"]),
        (tuple[float, float, float], "3 comma-separated values, each a number", ["1,2"]),
    ],
)
def test_values_of_the_wrong_type_are_refused(
    registry: Any, annotation: object, rule: str, values: list[object]
) -> None:
    for value in values:
        with pytest.raises(OptionError) as caught:
            statistic(registry, {"name": typed(annotation), "x": value})
        assert str(caught.value) == f"statistic.x must be {rule}, not {value!r}"


def test_components_nest_and_remember_where_each_value_came_from(registry: Any) -> None:
    inner = {"name": Given("base", "exp.toml"), "factor": Given("2.5", "command line")}
    found = statistic(registry, {"name": Given("wrapper", "command line"), "inner": inner})
    assert found.to_json() == {
        "name": "wrapper",
        "inner": {"name": "base", "factor": 2.5, "mode": "a"},
        "shift": 1,
    }
    assert found.origins_json() == {
        "name": "command line",
        "inner": {"name": "exp.toml", "factor": "command line", "mode": "default"},
        "shift": "default",
    }
    assert found.create().inner.factor == 2.5
    assert [c.name for c in found.walk()] == ["wrapper", "base"]


def test_an_option_may_be_several_components(registry: Any) -> None:
    named = statistic(registry, {"name": "several", "parts": "base, base"})
    assert [type(p).__name__ for p in named.create().parts] == ["Base", "Base"]
    tables = [{"name": Given("base", "exp.toml"), "factor": Given(2.0, "exp.toml")}, "wacc"]
    mixed = statistic(registry, {"name": "several", "parts": tables})
    assert mixed.to_json()["parts"] == [
        {"name": "base", "factor": 2.0, "mode": "a"},
        {"name": "wacc"},
    ]
    assert mixed.origins_json()["parts"][0]["factor"] == "exp.toml"
    assert [c.name for c in mixed.walk()] == ["several", "base", "wacc"]
    assert mixed.fingerprint != named.fingerprint


def test_classes_and_instances_stand_for_components_however_deep(registry: Any) -> None:
    base = registry.load("statistic", "base")
    made = Mine(first=base(factor=3.0), rest=(base(mode="b"), base()), level=2)
    found = statistic(registry, {"name": "wrapper", "inner": made})
    parts = [{"name": "base", "factor": 1.0, "mode": mode} for mode in ("b", "a")]
    first = {"name": "base", "factor": 3.0, "mode": "a"}
    assert found.to_json()["inner"] == {"name": "mine", "first": first, "rest": parts, "level": 2}
    spelt = {"name": Mine, "first": {"name": base, "factor": 3}, "rest": parts, "level": 2}
    assert statistic(registry, spelt).fingerprint == statistic(registry, made).fingerprint
    with pytest.raises(OptionError, match="has its options already.* level"):
        statistic(registry, {"name": made, "level": 1})
    del made.level
    with pytest.raises(OptionError, match=r"Mine does not store its option 'level'"):
        statistic(registry, made)
    for wrong in (3, int, registry.load("sampler", "random")):
        with pytest.raises(PluginError, match="statistic must be a name, a statistic class or"):
            statistic(registry, wrong)
    with pytest.raises(PluginError, match="Statistic is abstract: it lacks per_task"):
        statistic(registry, Statistic)


def test_a_module_whose_constructor_leaves_out_its_base_is_told_so(registry: Any) -> None:
    class Forgets(FewShotMethod):
        """A method without super().__init__()."""

        def __init__(self, *, scale: float = 1.0) -> None:
            self.scale = scale

        def scores(self, support: Any, query: Any) -> Any:
            return query @ support.mean(2).mT * self.scale

    for request in (Forgets, Forgets()):
        with pytest.raises(PluginError, match=r"Forgets .*super\(\).__init__\(\)"):
            component(registry, "method", request).create()


def test_fingerprints_follow_options_however_deep_and_code(registry: Any, tmp_path: Path) -> None:
    def fingerprint(chosen: Any, factor: str) -> str:
        inner = {"name": "base", "factor": factor}
        return statistic(chosen, {"name": "wrapper", "inner": inner}).fingerprint

    before = fingerprint(registry, "1")
    assert fingerprint(registry, "1.0") == before
    assert fingerprint(registry, "2") != before
    changed = tmp_path / "nested.py"
    changed.write_text(NESTED.replace("class_accuracy.mean", "class_accuracy.max"))
    again = open_session(plugins=[changed], progress=False).registry
    assert fingerprint(again, "1") != before


@pytest.mark.parametrize(
    ("tree", "parts"),
    [
        ({"name": "base", "facter": 1}, ["statistic.facter", "'factor'", "'base': factor, mode"]),
        ({"name": "wrapper"}, ["'wrapper' needs", "statistic.inner (a statistic)"]),
        ({"name": "base", "factor": "x"}, ["statistic.factor must be a number, not 'x'"]),
        ({"name": "base", "factor": {"name": "y"}}, ["statistic.factor is a plain option"]),
        ({"factor": 1}, ["statistic has options but no name", "statistic.name", "wrapper"]),
        ({"name": "base:x"}, ["'base' takes no argument"]),
        (
            {"name": "wrapper", "inner": {"name": "base", "mode": "z"}},
            ["statistic.inner.mode must be one of a, b, not 'z'"],
        ),
        (
            {"name": "several", "parts": [{"name": "base", "factr": 1}]},
            ["unknown option statistic.parts.0.factr", "'factor'"],
        ),
    ],
)
def test_bad_options_are_named(registry: Any, tree: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        statistic(registry, tree)
    for part in parts:
        assert part in str(caught.value)


def test_what_a_constructor_refuses_says_which_component(registry: Any) -> None:
    with pytest.raises(OptionError, match=r"statistic base: factor must be above 0, not -1\.0"):
        statistic(registry, {"name": "base", "factor": -1}).create()


def test_canonical_does_not_depend_on_order() -> None:
    assert canonical({"a": (1, 2), "b": Path("x")}) == canonical({"b": "x", "a": [1, 2]})
