"""Options: one schema read everywhere, and sources merged by their strength."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from fsframework.components.options import Given, options_of, value_of
from fsframework.errors import OptionError
from fsframework.pipeline.experiment.options import (
    Arguments,
    Settings,
    given_tree,
    merged,
    read_config,
)
from fsframework.pipeline.experiment.stages import Stage


def test_an_option_may_come_before_its_component() -> None:
    tree = given_tree({"method.steps": "5", "method": "maml"}, "command line")
    assert {key: node.value for key, node in tree["method"].items()} == {
        "name": "maml",
        "steps": "5",
    }


def test_an_option_of_a_nested_component_keeps_its_component() -> None:
    file = given_tree({"method": {"name": "ifsl", "base": "maml"}}, "exp.toml")
    tree = merged(given_tree({"method.base.steps": "5"}, "command line"), file)
    assert value_of(tree["method"]["base"]) == "maml"
    assert tree["method"]["base"]["steps"] == Given("5", "command line")


def test_another_component_takes_none_of_the_options_of_the_first() -> None:
    file = given_tree({"method": {"name": "maml", "steps": 5}}, "exp.toml")
    tree = merged(given_tree({"method": "r2d2"}, "command line"), file)
    assert list(tree["method"]) == ["name"]


@pytest.mark.parametrize("key", ["a." * 9_999 + "a", "method..steps"])
def test_a_key_is_a_path_of_at_most_32_levels(key: str) -> None:
    with pytest.raises(OptionError, match="32 levels deep, not 9999|is not an option"):
        given_tree({key: "5"}, "command line")


def test_short_names_mean_the_same_in_a_file_as_in_a_call(tmp_path: Path) -> None:
    file = tmp_path / "exp.toml"
    file.write_text('way = 3\nshot = 2\nqueries = 7\ntasks = "all"\ninit_from = "w"\n')
    values = {"way": 3, "shot": 2, "queries": 7, "tasks": "all", "init_from": "w"}
    expected = given_tree(values, "exp.toml")
    assert read_config(file) == expected
    assert {key: node.value for key, node in expected["sampler"].items()} == {
        "n_way": 3,
        "n_shot": 2,
        "n_query": 7,
    }
    assert (expected["tasks"].value, expected["training"]["init_from"].value) == (None, "w")


def test_what_replaces_an_argument_hides_that_of_a_weaker_source() -> None:
    file = given_tree({"task_seed": 1, "training_seed": 2, "detector": "blip"}, "exp.toml")
    strong = given_tree({"seed": 5, "training_seed": 3, "attributes": "w.csv"}, "command line")
    assert sorted(merged(strong, file)) == ["attributes", "seed", "training_seed"]


@pytest.mark.parametrize(
    ("cls", "values", "rule"),
    [
        (Settings, {"tasks": 0}, "tasks must be at least 1, not 0"),
        (Settings, {"image_size": 3}, "image_size must be at least 8 pixels, not 3"),
        (Settings, {"level": 1.0}, "level must lie between 0 and 1, not 1.0"),
        (Settings, {"task_seed": 2**63}, "task_seed must be at least 0 and below"),
        (Stage, {"learning_rate": float("nan")}, "training.learning_rate must be above 0, not nan"),
    ],
)
def test_a_value_out_of_bounds_is_refused_with_its_rule(
    cls: type, values: dict[str, object], rule: str
) -> None:
    with pytest.raises(OptionError, match=rule):
        cls(**values)


@pytest.mark.parametrize("cls", [Arguments, Settings, Stage])
def test_every_option_has_a_help_and_no_help_is_of_another(cls: type) -> None:
    told = {name: bool(option.help) for name, option in options_of(cls).items()}
    assert told == dict.fromkeys(told, True)


def test_the_reference_and_the_typed_arguments_are_those_of_the_schema() -> None:
    script = Path(__file__).parents[3] / "docs" / "make_reference.py"
    for path, make in runpy.run_path(str(script))["MADE"].items():
        written = path.read_text(encoding="utf-8")
        assert written == make(), f"run: python docs/make_reference.py (for {path.name})"
