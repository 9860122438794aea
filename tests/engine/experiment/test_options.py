"""Options: one schema read everywhere, and sources merged by their strength."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

import fsframework as fsf
from fsframework.errors import OptionError

MADE = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "sitepages" / "options.py"))


def told(config: dict[str, Any] | Path | None = None, **options: Any) -> dict[str, Any]:
    """Return every option of a run with its value."""
    return dict(fsf.describe(config=config, progress=False, **options).options)


def test_an_option_may_come_before_its_component() -> None:
    found = told(**{"method.test_steps": "5", "method": "maml"})["method"]
    assert (found["name"], found["test_steps"]) == ("maml", 5)


def test_an_option_of_a_nested_component_keeps_its_component(tmp_path: Path) -> None:
    file = tmp_path / "exp.toml"
    file.write_text('method = {name = "ifsl", base = "maml"}\n')
    given: dict[str, Any] = {"method.base.test_steps": "5"}
    made = fsf.describe(config=file, progress=False, **given)
    base, origins = made.options["method"]["base"], made.origins["method"]["base"]
    assert (base["name"], base["test_steps"]) == ("maml", 5)
    assert (origins["name"], origins["test_steps"]) == ("exp.toml", "call")


def test_another_component_takes_none_of_the_options_of_the_first() -> None:
    maml = {"method": {"name": "maml", "test_steps": 5}}
    assert "test_steps" not in told(maml, method="r2d2")["method"]


@pytest.mark.parametrize(
    ("key", "rule"), [("a." * 9_999 + "a", "32 levels deep"), ("method..steps", "not an option")]
)
def test_a_key_is_a_path_of_at_most_32_levels(key: str, rule: str) -> None:
    with pytest.raises(OptionError, match=rule):
        told(**{key: "5"})


def test_short_names_mean_the_same_in_a_file_as_in_a_call(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").touch()
    file = tmp_path / "exp.toml"
    values = {"way": 3, "shot": 2, "queries": 7, "tasks": "all", "seed": 4, "statistics": ["acc"]}
    file.write_text("\n".join(f"{key} = {value!r}" for key, value in values.items()))
    found = told(file, sampler="depleting")
    assert found == told(sampler="depleting", **values)
    shape = [found["sampler"][name] for name in ("n_way", "n_shot", "n_query")]
    assert (shape, found["tasks"], found["task_seed"]) == ([3, 2, 7], None, 4)


def test_what_replaces_an_argument_hides_that_of_a_weaker_source() -> None:
    weak = {"task_seed": 1, "training_seed": 2, "detector": "appearance"}
    found = told(weak, seed=5, training_seed=3, attributes="w.csv")
    assert (found["task_seed"], found["training_seed"]) == (5, 3)
    assert (found["attributes"], "detector" in found) == ("w.csv", False)


def test_another_sampler_keeps_the_shape_of_tasks_and_nothing_else() -> None:
    weak = {"sampler": {"name": "context", "column": "place"}, "shot": 1, "way": 3}
    found = told(weak, sampler="fewstab", way=4)["sampler"]
    assert (found["name"], found["n_way"], found["n_shot"]) == ("fewstab", 4, 1)
    assert "column" not in found


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("tasks", 0, "at least 1, not 0"),
        ("image_size", 3, "at least 8 pixels, not 3"),
        ("level", 1.0, "between 0 and 1, not 1.0"),
        ("task_seed", 2**63, "at least 0 and below"),
        ("training.learning_rate", 0, "above 0, not 0"),
        ("training.learning_rate", float("nan"), "a number, not nan"),
    ],
)
def test_a_value_out_of_bounds_is_refused_with_its_rule(
    option: str, value: float, rule: str
) -> None:
    with pytest.raises(OptionError, match=f"{option} must .*{rule}"):
        told(**{option: value})


def test_the_typed_arguments_are_those_of_the_schema() -> None:
    written = MADE["STUB"].read_text(encoding="utf-8")
    assert written == MADE["signature"](), "run: python docs/sitepages/options.py"


def test_every_option_has_a_help() -> None:
    assert "|  |\n" not in MADE["page"]()
