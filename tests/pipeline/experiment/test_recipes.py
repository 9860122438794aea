"""Recipes: found by method, data set and shot, weaker than what is given, described in full."""

from __future__ import annotations

import csv
import dataclasses
import datetime
from pathlib import Path
from typing import Any

import pytest

from fsframework.components.options import Given
from fsframework.components.registry import Registry
from fsframework.components.resolution import Component, canonical
from fsframework.errors import OptionError, PluginError
from fsframework.pipeline.cache.workspace import Workspace
from fsframework.pipeline.experiment import recipes
from fsframework.pipeline.experiment.configuration import Experiment, resolve_experiment
from fsframework.pipeline.experiment.recipes import Recipe, find_recipe, list_recipes
from fsframework.pipeline.experiment.stages import Stage
from fsframework.pipeline.run import run_experiment
from fsframework.pipeline.session import Session
from tests.toys import Counting

TABLES = Path(__file__).resolve().parents[4] / "shared" / "published"


def resolved(**options: Any) -> Experiment:
    """Resolve an experiment whose options were given on the command line."""

    def given(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: given(v) for k, v in value.items()}
        return Given(value, "command line")

    return resolve_experiment(Registry(), {k: given(v) for k, v in options.items()})


def test_every_method_of_ours_has_a_quick_recipe_that_says_what_to_expect() -> None:
    registry = Registry()
    names = {p.name for p in registry.plugins("method") if p.distribution.startswith("fsf-")}
    quick = {r.method: r for r in list_recipes(registry) if r.name == "quick"}
    assert set(quick) == names
    for recipe in quick.values():
        assert recipe.accuracy is not None, recipe.method
        assert recipe.verified is not None, recipe.method
        assert recipe.accuracy_on
        assert "embedded" in recipe.source


def test_a_recipe_may_give_the_method_within_a_method_and_its_ways_follow_the_tasks() -> None:
    quick = resolved(method="ft").method
    assert quick.options["base"].name == "relationnet"
    sampler = {"name": "random", "n_way": 3}
    inner = resolved(method={"name": "ft", "base": "relationnet", "theta_beta": 0.1}).method
    assert (inner.options["base"].name, inner.options["theta_beta"]) == ("relationnet", 0.1)
    followed = resolved(method={"name": "ft", "base": {"name": "gnn", "nf": 8}}, sampler=sampler)
    assert followed.method.options["base"].options["n_way"] == 3
    assert followed.method.create().n_way == 3
    base = {"name": "gnn", "n_way": 4}
    fixed = resolved(method={"name": "ft", "base": base}, sampler=sampler)
    assert fixed.method.create().n_way == 4


def test_every_recipe_can_be_resolved() -> None:
    registry = Registry()
    components: dict[str, Component] = {}
    for recipe in list_recipes(registry):
        dataset = recipe.datasets[0] if recipe.datasets else "planted"
        experiment = resolved(
            method=recipe.spelt_method, recipe=f"{recipe.name}:{dataset}",
            sampler={"name": "random", "n_shot": recipe.shot or 5},
        )  # fmt: skip
        assert experiment.recipe == recipe
        for component in experiment.components():
            components[canonical([component.kind, component.to_json()])] = component
    for component in components.values():
        component.create()


@pytest.mark.shared_data
@pytest.mark.skipif(not TABLES.is_dir(), reason=f"the published tables are not at {TABLES}")
def test_every_row_of_the_published_recipes_is_there() -> None:
    spelt = {"Baseline++": "baseline-plus-plus"}
    schedules = {
        "": {"schedule": "constant"},
        "CosineAnnealingLR": {"schedule": "cosine"},
        "StepLR(20, 0.5)": {"schedule": "step", "step_epochs": 20, "gamma": 0.5},
        "StepLR(50, 0.5)": {"schedule": "step", "step_epochs": 50, "gamma": 0.5},
        "MultiStepLR([60, 80], 0.1)": {
            "schedule": "multi-step", "milestones": (60, 80), "gamma": 0.1,
        },
        "MultiStepLR([60, 80], 0.05)": {
            "schedule": "multi-step", "milestones": (60, 80), "gamma": 0.05,
        },
        "MultiStepLR([40, 50], 0.05)": {
            "schedule": "multi-step", "milestones": (40, 50), "gamma": 0.05,
        },
    }  # fmt: skip
    with (TABLES / "fewstab_recipes_s2_s3_s4.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with (TABLES / "fewstab_table_s7.csv").open(newline="") as file:
        printed = {
            (r["dataset"], r["method"], r["shot"]): float(r["value_percent"])
            for r in csv.DictReader(file)
            if r["metric"] == "Acc"
        }
    assert len(rows) == 54
    for row in rows:
        method = spelt.get(row["method"], row["method"].lower())
        shots = (1, 5) if row["mode"] == "batches" else (int(row["task_or_batch_size"][2]),)
        for shot in shots:
            experiment = resolved(
                method=method, recipe=f"fewstab:{row['dataset']}",
                sampler={"name": "random", "n_shot": shot},
            )  # fmt: skip
            [stage] = experiment.stages
            assert experiment.backbone.name == "resnet12"
            assert experiment.settings.image_size == 84
            assert stage.learning_rate == float(row["learning_rate"])
            assert stage.optimizer == row["optimizer"].lower()
            assert stage.epochs == int(row["epochs"])
            for name, value in schedules[row["lr_scheduler"]].items():
                assert getattr(stage, name) == value
            if row["mode"] == "batches":
                assert stage.batch_size == int(row["task_or_batch_size"])
                assert stage.learns_from == "batches"
            else:
                assert (stage.n_way, stage.n_shot) == (5, shot)
                assert stage.tasks_per_step == int(row["episodes_per_update"])
                assert stage.steps * stage.tasks_per_step == int(row["episodes_per_epoch"])
            assert experiment.recipe is not None
            said = int(experiment.recipe.accuracy_on.split("5-way ")[1][0])
            assert experiment.recipe.accuracy == printed[row["dataset"], row["method"], str(said)]
            assert said == shot or row["mode"] == "batches"


def test_what_is_given_is_stronger_than_the_recipe() -> None:
    experiment = resolved(
        method="anil", recipe="fewstab:mini-imagenet", image_size=32,
        sampler={"name": "random", "n_shot": 1}, training={"epochs": 3, "learning_rate": 0.5},
    )  # fmt: skip
    [stage] = experiment.stages
    assert (stage.epochs, stage.learning_rate, stage.steps) == (3, 0.5, 500)
    assert experiment.settings.image_size == 32
    origins = experiment.origins["training"][0]
    assert (origins["epochs"], origins["steps"], origins["momentum"]) == (
        "command line", "recipe fewstab", "default",
    )  # fmt: skip
    assert experiment.origins["backbone"]["name"] == "recipe fewstab"


def test_options_of_one_backbone_are_not_given_to_another() -> None:
    plain = resolved(method="dn4")
    assert plain.backbone.options["last_pool"] is False
    other = resolved(method="dn4", backbone="resnet12")
    assert other.backbone.name == "resnet12"
    assert other.stages == plain.stages


def test_no_recipe_leaves_the_defaults() -> None:
    experiment = resolved(method="dn4", recipe="none")
    assert experiment.recipe is None
    assert experiment.stages == (Stage(),)
    assert experiment.to_json()["recipe"] is None


def test_stages_of_the_user_replace_those_of_the_recipe() -> None:
    tree = {"method": Given("rfs", "x.toml"), "training": {"stages": [{"epochs": Given(1, "x")}]}}
    experiment = resolve_experiment(Registry(), tree)
    assert [s.epochs for s in experiment.stages] == [1]
    assert not experiment.stages[0].distill


def test_a_method_that_trains_for_another_one_is_trained_by_its_own_recipe() -> None:
    own = resolved(method="simclr")
    lent = resolved(method="finetune", training={"method": "simclr", "steps": 7})
    [stage], [own_stage] = lent.stages, own.stages
    assert stage.method is not None
    assert stage.method.to_json() == own.method.to_json()
    assert dataclasses.replace(stage, method=None, steps=own_stage.steps) == own_stage
    assert stage.steps == 7
    [origins] = lent.origins["training"]
    assert origins["epochs"] == origins["method"]["head"] == "recipe quick of simclr"
    assert origins["steps"] == origins["method"]["name"] == "command line"
    assert lent.origins["method"]["steps"] == "recipe quick"
    head = resolved(method="ncc", training={"method": {"name": "simclr", "head": "linear"}})
    assert head.stages[0].method is not None
    assert head.stages[0].method.options["head"] == "linear"
    nested = resolved(method="ncc", training={"method": "bf3s:dn4"}).stages[0].method
    assert nested is not None
    assert nested.called == "bf3s:dn4"  # the recipe has another one within it


@pytest.mark.parametrize(
    ("method", "trainer", "expected"),
    [
        ("opta", "baseline", [("baseline", 5, "recipe quick")]),  # which names it
        ("rfs", "contrastive-centroids", [
            ("contrastive-centroids", epochs, "recipe quick of contrastive-centroids")
            for epochs in (4, 2)
        ]),
        ("ncc", "rfs", [("rfs", 4, "recipe quick of rfs")]),  # without the stage that distils
        ("ncc", "leo", [("baseline", 5, "recipe quick of leo")]),  # without the frozen backbone
        ("ncc", "knn", [("knn", 5, "recipe quick")]),  # which does not learn
        ("ncc", "none", [(None, 5, "recipe quick")]),
    ],
)  # fmt: skip
def test_the_stages_of_another_method_are_those_that_train_its_backbone(
    method: str, trainer: str, expected: list[tuple[str | None, int, str]]
) -> None:
    experiment = resolved(method=method, training={"method": trainer})
    found = [
        (stage.method.name if stage.method else None, stage.epochs, origins["epochs"])
        for stage, origins in zip(experiment.stages, experiment.origins["training"], strict=True)
    ]
    assert found == expected


def test_a_named_recipe_may_be_that_of_the_method_that_trains() -> None:
    training = {"method": "simclr"}
    experiment = resolved(method="ncc", recipe="metacoco:MetaCoCo", training=training)
    assert (experiment.backbone.name, experiment.settings.image_size) == ("resnet50", 84)
    assert experiment.to_json()["recipe"] == "metacoco:MetaCoCo"
    assert experiment.stages[0].learning_rate == 0.3
    with pytest.raises(OptionError, match="ncc has no recipe 'fewstab'; it has quick"):
        resolved(method="ncc", recipe="fewstab:miniImageNet", training=training)
    none = resolved(method="ncc", recipe="none", training=training)
    assert dataclasses.replace(none.stages[0], method=None) == Stage()


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, "recipe quick (ours, for the embedded data set); expected 96.5 % on random"),
        ({"method": "baseline"}, "recipe quick (ours, for the embedded data set); expected 96.5 %"),
        (
            {"method": "simclr"},
            "recipe quick of simclr (ours, for the embedded data set); the expected accuracy of "
            "ncc is not known",
        ),
        (
            {"method": "logistic"},  # which lends no recipe
            "recipe quick (ours, for the embedded data set); the expected accuracy is not known",
        ),
    ],
)
def test_a_run_says_whose_recipe_it_is_and_what_to_expect(
    training: dict[str, Any], expected: str
) -> None:
    experiment = resolved(method="ncc", **({"training": training} if training else {}))
    assert experiment.recipe_described((5, 5)).startswith(expected)


def test_stages_of_the_user_are_complete() -> None:
    stage = {"method": Given("simclr", "x.toml"), "epochs": Given(1, "x.toml")}
    tree = {"method": Given("ncc", "x.toml"), "training": {"stages": [stage]}}
    [found] = resolve_experiment(Registry(), tree).stages
    assert dataclasses.replace(found, method=None) == Stage(epochs=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": "fewstap", "method": "anil"}, r"anil has no recipe 'fewstap' \(did you mean"),
        (
            {"recipe": "fewstab", "method": "anil"},
            "recipe fewstab of anil is not for planted 5-shot, but for: miniImageNet 1-shot",
        ),
        (
            {"recipe": "fewstab:miniImageNet", "method": "anil", "sampler": {"n_shot": 3}},
            "is not for miniImageNet 3-shot",
        ),
        ({"method": "ncc", "training": {"stages": 3}}, "must be a list of tables"),
    ],
)
def test_unknown_recipes_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        resolved(**options)


def test_a_method_made_for_a_number_of_ways_is_made_for_that_of_the_tasks() -> None:
    twenty = resolved(method="maml", sampler={"name": "random", "n_way": 20})
    assert twenty.method.options["n_way"] == 20
    assert twenty.origins["method"]["n_way"] == "the tasks"
    kept = resolved(method={"name": "maml", "n_way": 3}, sampler={"name": "random", "n_way": 20})
    assert kept.method.options["n_way"] == 3


def test_recipes_of_an_outside_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "recipes.toml"
    file.write_text(
        '[[recipe]]\nname = "long"\nmethod = "protonet"\ndatasets = ["My-Birds"]\nshot = 1\n'
        'source = "us"\naccuracy = 50\naccuracy_on = "birds"\nverified = 2026-01-02\n'
        "[recipe.set.training]\nepochs = 7\n"
    )
    monkeypatch.setattr(recipes, "_file_of", lambda plugin: file)
    registry = Registry()
    plugin = registry.find("method", "protonet")
    found = find_recipe(registry, plugin, "long", "mybirds", 1)
    assert found is not None
    assert found.options == {"training": {"epochs": 7}}
    assert found.verified == datetime.date(2026, 1, 2)
    assert found.described() == "recipe long (us); expected 50.0 % on birds, verified 2026-01-02"
    assert find_recipe(registry, plugin, "other", "mybirds", 1) is None


FOR_SEVERAL = """
[training.long]
epochs = 100
steps = 50

[[recipe]]
name = "table"
method = ["ft:relationnet", "ft:gnn"]
source = "a table"
accuracy_on = "random tasks"
expected = [
  {method = "ft:gnn", backbone = "resnet10", way = 5, shot = 1, accuracy = 47.3},
  {method = "ft:gnn", backbone = "resnet10", way = 5, shot = 5, accuracy = 65.9},
  {method = "ft:relationnet", backbone = "resnet10", way = 5, shot = 1, accuracy = 45.37},
]
[recipe.set]
backbone.name = "resnet10"
backbone.stem = "3x3"
[recipe.set.training]
validation_tasks = 7
[[recipe.set.training.stages]]
like = "long"
[[recipe.set.training.stages]]
like = "long"
epochs = 3
[recipe.backbones.conv64f]
last_pool = false
"""


@pytest.fixture
def for_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes.toml").write_text(FOR_SEVERAL)
    monkeypatch.setattr(recipes, "_file_of", lambda plugin: tmp_path / "recipes.toml")


@pytest.mark.usefixtures("for_several")
def test_a_recipe_may_be_for_several_methods_and_name_what_its_stages_share() -> None:
    relationnet, gnn = list_recipes(Registry())
    assert (relationnet.spelt_method, gnn.spelt_method) == ("ft:relationnet", "ft:gnn")
    assert (relationnet.accuracies, gnn.accuracies) == ((45.37,), (47.3, 65.9))
    for base, recipe in (("relationnet", relationnet), ("gnn", gnn)):
        for method in (f"ft:{base}", {"name": "ft", "base": {"name": base}}):
            experiment = resolved(method=method, recipe="table")
            assert experiment.recipe == recipe
            assert experiment.method.options["base"].name == base
            shown = [(s.epochs, s.steps, s.validation_tasks) for s in experiment.stages]
            assert shown == [(100, 50, 7), (3, 50, 7)]
    with pytest.raises(OptionError) as caught:
        resolved(method="ft:tpn", recipe="table")
    assert str(caught.value).startswith(
        "recipe table of ft:tpn is not for planted 5-shot, but for: ft:relationnet on any data "
        "set; ft:gnn on any data set. If your data set is one of them by another name, give "
    )


@pytest.mark.usefixtures("for_several")
def test_a_recipe_has_options_of_each_backbone() -> None:
    asked: dict[str, Any] = {"method": "ft:gnn", "recipe": "table"}
    assert resolved(**asked).backbone.options["stem"] == "3x3"
    assert resolved(**asked, backbone="resnet10").backbone.options["stem"] == "3x3"
    other = resolved(**asked, backbone="conv64f").backbone
    assert (other.options["last_pool"], other.origins["last_pool"]) == (False, "recipe table")
    strong = resolved(**asked, backbone={"name": "conv64f", "last_pool": True}).backbone
    assert strong.options["last_pool"] is True
    assert resolved(**asked, backbone="resnet12").backbone.origins["last_pool"] == "default"


@pytest.mark.usefixtures("for_several")
def test_the_expected_accuracy_is_that_of_the_backbone_and_the_tasks() -> None:
    _, gnn = list_recipes(Registry())
    assert gnn.described() == (
        "recipe table (a table); expected 47.3 to 65.9 % on random tasks, not verified"
    )
    assert gnn.described("birds", "resnet10", (5, 5)) == (
        "recipe table (a table); expected 65.9 % on random tasks, 5-way 5-shot with resnet10, not "
        "verified"
    )
    unknown = "recipe table (a table); the expected accuracy is not known"
    assert gnn.described("birds", "resnet10", (10, 5)) == unknown
    assert gnn.described("birds", "conv64f", (5, 5)) == unknown


def test_the_value_of_an_argument_that_is_left_out_is_its_default() -> None:
    for method, name in (("cdkt", "cdkt:ml"), ("cdkt:pl", "cdkt:pl")):
        found = resolved(method=method, recipe="metacoco:MetaCoCo").recipe
        assert found is not None
        assert found.spelt_method == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[recipe]]\nname = 3\n", r"recipes.toml.*recipe\[0\].name"),
        ('[[recipe]]\nname = "a"\n', r"recipes.toml.*`method`.*recipe\[0\]"),
        ("[[recipe]]\nshots = 1\n", r"recipes.toml.*`shots`"),
        ("[recipe]\n", r"recipes.toml.*`array`.*recipe"),
        (
            FOR_SEVERAL.replace('like = "long"', 'like = "short"'),
            "recipe 1: like = 'short' is not among \\[training.NAME\\]: long",
        ),
        (
            FOR_SEVERAL.replace('method = "ft:gnn", b', 'method = "ft:tpn", b'),
            "recipe 1, expected: 'ft:tpn' is not among its methods",
        ),
        (FOR_SEVERAL.replace("way = 5, ", ""), r"`way`.*expected\[0\]"),
        (FOR_SEVERAL.replace("way = 5", "way = 5.5"), r"expected\[0\].way"),
        ("[[recipe\n", "cannot be read as recipes"),
    ],
)
def test_damaged_files_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    (tmp_path / "recipes.toml").write_text(text)
    monkeypatch.setattr(recipes, "_file_of", lambda plugin: tmp_path / "recipes.toml")
    with pytest.raises(PluginError, match=message):
        list_recipes(Registry())


def test_a_run_can_take_the_model_of_another(tmp_path: Path) -> None:
    small = {"name": "planted", "size": 32, "n_per_class": 40}
    short = {"epochs": 1, "steps": 2, "validation_tasks": 5}
    sampler = {"name": "random", "n_shot": 1, "n_query": 5}
    workspace, registry = Workspace(tmp_path / "runs", tmp_path / "cache"), Registry()
    session = Session(registry, workspace, Counting())
    first = run_experiment(
        resolved(
            method={"name": "renet", "temperature": 0.3}, dataset=small, sampler=sampler,
            tasks=20, training=short,
        ),
        session,
    )  # fmt: skip
    experiment = resolved(model=str(first.folder), dataset=small, sampler=sampler, tasks=30)
    assert experiment.method.options["temperature"] == 0.3
    reporter = Counting()
    second = run_experiment(experiment, Session(registry, workspace, reporter))
    assert "training" not in reporter.units
    assert second.record.arms["random"].n_tasks == 30
    with pytest.raises(OptionError, match="sets the method; leave out method"):
        resolved(model=str(first.folder), method="protonet")


def test_described_says_when_nothing_is_known() -> None:
    recipe = Recipe("a", "b", "c", {}, accuracy=50.0, accuracy_on="d")
    assert recipe.described() == "recipe a (c); expected 50.0 % on d, not verified"
    quick = dataclasses.replace(recipe, name="quick")
    assert quick.described("planted") == "recipe quick (c); expected 50.0 % on d, not verified"
    assert quick.described("birds") == "recipe quick (c); the expected accuracy is not known"
