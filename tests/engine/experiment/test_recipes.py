"""Recipes: found by method, data set and shot, weaker than what is given, described in full."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fsframework as fsf
from fsframework.api.components import Component, canonical
from fsframework.api.recipes import Recipe, recipes
from fsframework.api.session import open_session
from fsframework.errors import OptionError, PluginError

TABLES = Path(__file__).resolve().parents[4] / "shared" / "published"


def told(**options: Any) -> dict[str, Any]:
    """Return every option of a run with its value."""
    return dict(fsf.describe(progress=False, **options).options)


def came_from(origin: str, **options: Any) -> set[str]:
    """Return the options of a training that have an origin."""
    [origins] = fsf.describe(progress=False, **options).origins["training"]
    return {name for name, one in origins.items() if one == origin}


def test_every_method_of_ours_has_a_quick_recipe() -> None:
    ours = {
        p.name
        for p in open_session(progress=False).registry.plugins("method")
        if p.distribution.startswith("fsf-")
    }
    quick = recipes(name="quick")
    assert {recipe.method for recipe in quick} == ours
    known = [recipe for recipe in quick if recipe.accuracies]
    assert all(recipe.verified and recipe.accuracy_on for recipe in known)
    assert all("embedded" in recipe.source for recipe in quick)


def test_a_recipe_may_give_the_method_within_a_method_and_its_ways_follow_the_tasks() -> None:
    assert told(method="ft")["method"]["base"]["name"] == "relationnet"
    inner = told(method={"name": "ft", "base": "relationnet", "theta_beta": 0.1})["method"]
    assert (inner["base"]["name"], inner["theta_beta"]) == ("relationnet", 0.1)
    for own, expected in (({}, 3), ({"n_way": 4}, 4)):
        base = {"name": "gnn", "nf": 8, **own}
        found = told(method={"name": "ft", "base": base}, sampler="random", way=3)["method"]
        assert found["base"]["n_way"] == expected


def test_a_method_made_for_a_number_of_ways_is_made_for_that_of_the_tasks() -> None:
    twenty = fsf.describe(method="maml", sampler="random", way=20, progress=False)
    assert twenty.options["method"]["n_way"] == 20
    assert twenty.origins["method"]["n_way"] == "the tasks"
    kept = told(method={"name": "maml", "n_way": 3}, sampler="random", way=20)
    assert kept["method"]["n_way"] == 3


def test_every_recipe_can_be_resolved() -> None:
    components: dict[str, Component] = {}
    for recipe in recipes():
        dataset = recipe.datasets[0] if recipe.datasets else "planted"
        experiment = fsf.describe(
            method=recipe.spelt_method, recipe=f"{recipe.name}:{dataset}", sampler="random",
            shot=recipe.shot or 5, progress=False,
        ).experiment  # fmt: skip
        assert experiment.recipe == recipe
        for component in experiment.components():
            components[canonical([component.kind, component.to_json()])] = component
    for component in components.values():
        component.create()


SCHEDULES: dict[str, dict[str, Any]] = {
    "": {"schedule": "constant"},
    "CosineAnnealingLR": {"schedule": "cosine"},
    "StepLR(20, 0.5)": {"schedule": "step", "step_epochs": 20, "gamma": 0.5},
    "StepLR(50, 0.5)": {"schedule": "step", "step_epochs": 50, "gamma": 0.5},
    "MultiStepLR([60, 80], 0.1)": {"schedule": "multi-step", "milestones": [60, 80], "gamma": 0.1},
    "MultiStepLR([60, 80], 0.05)": {
        "schedule": "multi-step", "milestones": [60, 80], "gamma": 0.05,
    },
    "MultiStepLR([40, 50], 0.05)": {
        "schedule": "multi-step", "milestones": [40, 50], "gamma": 0.05,
    },
}  # fmt: skip


@pytest.mark.shared_data
@pytest.mark.skipif(not TABLES.is_dir(), reason=f"the published tables are not at {TABLES}")
def test_every_row_of_the_published_recipes_is_there() -> None:
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
        method = row["method"].lower().replace("++", "-plus-plus")
        batches = row["mode"] == "batches"
        for shot in (1, 5) if batches else (int(row["task_or_batch_size"][2]),):
            made = fsf.describe(
                method=method, recipe=f"fewstab:{row['dataset']}", sampler="random", shot=shot,
                progress=False,
            )  # fmt: skip
            [stage] = made.options["training"]
            assert made.options["backbone"]["name"] == "resnet12"
            expected = {
                "learning_rate": float(row["learning_rate"]),
                "optimizer": row["optimizer"].lower(),
                "epochs": int(row["epochs"]),
                **SCHEDULES[row["lr_scheduler"]],
            }
            if batches:
                size = int(row["task_or_batch_size"])
                expected |= {"batch_size": size, "learns_from": "batches"}
            else:
                at_once, per_epoch = row["episodes_per_update"], row["episodes_per_epoch"]
                expected |= {"n_way": 5, "n_shot": shot, "tasks_per_step": int(at_once)}
                expected |= {"steps": int(per_epoch) // int(at_once)}
            assert made.options["image_size"] == 84
            assert {name: stage[name] for name in expected} == expected
            recipe = made.experiment.recipe
            assert recipe is not None
            said = int(recipe.accuracy_on.split("5-way ")[1][0])
            assert recipe.accuracy == printed[row["dataset"], row["method"], str(said)]
            assert said == shot or batches


def test_what_is_given_is_stronger_than_the_recipe() -> None:
    made = fsf.describe(
        method="anil", recipe="fewstab:mini-imagenet", image_size=32, sampler="random", shot=1,
        training={"epochs": 3, "learning_rate": 0.5}, progress=False,
    )  # fmt: skip
    [stage], [origins] = made.options["training"], made.origins["training"]
    assert (stage["epochs"], stage["learning_rate"], stage["steps"]) == (3, 0.5, 500)
    assert made.options["image_size"] == 32
    found = (origins["epochs"], origins["steps"], origins["momentum"])
    assert found == ("call", "recipe fewstab", "default")
    assert made.origins["backbone"]["name"] == "recipe fewstab"


def test_options_of_one_backbone_are_not_given_to_another() -> None:
    plain, other = told(method="dn4"), told(method="dn4", backbone="resnet12")
    assert plain["backbone"]["last_pool"] is False
    assert other["backbone"]["name"] == "resnet12"
    assert other["training"] == plain["training"]


def test_no_recipe_leaves_the_defaults_and_so_do_stages_of_the_user() -> None:
    none: dict[str, Any] = {"method": "dn4", "recipe": "none"}
    assert told(**none)["recipe"] is None
    every = set(told(**none)["training"][0]) - {"method"}
    assert came_from("default", **none) >= every
    lent = {"method": "ncc", "recipe": "none", "training": {"method": "simclr"}}
    assert came_from("default", **lent) >= every
    listed = {"method": "ncc", "training": [{"method": "simclr", "epochs": 1}]}
    assert came_from("default", **listed) >= every - {"epochs"}
    [stage] = told(method="rfs", training=[{"epochs": 1}])["training"]
    assert (stage["epochs"], stage["distill"]) == (1, False)


def test_a_method_that_trains_for_another_one_is_trained_by_its_own_recipe() -> None:
    own = told(method="simclr")
    lent = fsf.describe(method="finetune", training={"method": "simclr", "steps": 7})
    [stage], [own_stage] = lent.options["training"], own["training"]
    assert stage == {**own_stage, "method": own["method"], "steps": 7}
    [origins] = lent.origins["training"]
    assert origins["epochs"] == origins["method"]["head"] == "recipe quick of simclr"
    assert origins["steps"] == origins["method"]["name"] == "call"
    assert lent.origins["method"]["steps"] == "recipe quick"
    [head] = told(method="ncc", training={"method": {"name": "simclr", "head": "linear"}})[
        "training"
    ]
    assert head["method"]["head"] == "linear"
    # The recipe has another method within the one that trains.
    [nested] = told(method="ncc", training={"method": "bf3s:dn4"})["training"]
    assert (nested["method"]["name"], nested["method"]["base"]["name"]) == ("bf3s", "dn4")


@pytest.mark.parametrize(
    ("method", "trainer", "expected"),
    [
        ("opta", "baseline", [("baseline", 40, "recipe quick")]),  # which names it
        ("rfs", "contrastive-centroids", [
            ("contrastive-centroids", epochs, "recipe quick of contrastive-centroids")
            for epochs in (20, 20)
        ]),
        ("ncc", "rfs", [("rfs", 25, "recipe quick of rfs")]),  # without the stage that distils
        ("ncc", "leo", [("baseline", 25, "recipe quick of leo")]),  # without the frozen backbone
        ("ncc", "knn", [("knn", 40, "recipe quick")]),  # which does not learn
        ("ncc", "none", [(None, 40, "recipe quick")]),
    ],
)  # fmt: skip
def test_the_stages_of_another_method_are_those_that_train_its_backbone(
    method: str, trainer: str, expected: list[tuple[str | None, int, str]]
) -> None:
    made = fsf.describe(method=method, training={"method": trainer}, progress=False)
    found = [
        (stage["method"] and stage["method"]["name"], stage["epochs"], origins["epochs"])
        for stage, origins in zip(made.options["training"], made.origins["training"], strict=True)
    ]
    assert found == expected


def test_a_named_recipe_may_be_that_of_the_method_that_trains() -> None:
    training = {"method": "simclr"}
    found = told(method="ncc", recipe="metacoco:MetaCoCo", training=training)
    assert (found["backbone"]["name"], found["image_size"]) == ("resnet50", 84)
    assert found["recipe"] == "metacoco:MetaCoCo"
    assert found["training"][0]["learning_rate"] == 0.3
    with pytest.raises(OptionError, match="ncc has no recipe 'fewstab'; it has plateau, quick"):
        told(method="ncc", recipe="fewstab:miniImageNet", training=training)


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, "recipe quick (ours, for the embedded data set); expected 97.9 % on random"),
        ({"method": "baseline"}, "recipe quick (ours, for the embedded data set); expected 97.9 %"),
        ({"method": "simclr"}, "recipe quick of simclr (ours, for the embedded data set); the exp"),
        # This method lends no recipe.
        ({"method": "logistic"}, "recipe quick (ours, for the embedded data set); the expected ac"),
    ],
)
def test_a_run_says_whose_recipe_it_is_and_what_to_expect(
    training: dict[str, Any], expected: str
) -> None:
    given = {"training": training} if training else {}
    experiment = fsf.describe(method="ncc", progress=False, **given).experiment
    assert experiment.recipe_described((5, 5)).startswith(expected)


@pytest.mark.parametrize(
    "changed",
    [
        {"training": {"epochs": 2}},
        {"training": {"method": "baseline", "learning_rate": 0.5}},
        {"dataset": {"name": "planted", "strength": 0.3}},
    ],
)
def test_a_run_that_changes_training_or_data_expects_no_accuracy(changed: dict[str, Any]) -> None:
    experiment = fsf.describe(method="ncc", progress=False, **changed).experiment
    assert "not known" in experiment.recipe_described((5, 5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": "fewstap"}, r"anil has no recipe 'fewstap' \(did you mean"),
        ({"recipe": "fewstab"}, "fewstab of anil is not for planted 5-shot, .*: miniImageNet 1-sh"),
        ({"recipe": "fewstab:miniImageNet", "shot": 3}, "is not for miniImageNet 3-shot"),
        ({"training": {"stages": 3}}, "must be a list of tables"),
    ],
)
def test_unknown_recipes_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        told(method="anil", **options)


FOR_SEVERAL = """
[training.long]
epochs = 100
steps = 50

[[recipe]]
name = "table"
method = ["outer:relationnet", "outer:gnn"]
source = "a table"
accuracy_on = "random tasks"
expected = [
  {method = "outer:gnn", backbone = "resnet10", way = 5, shot = 1, accuracy = 47.3},
  {method = "outer:gnn", backbone = "resnet10", way = 5, shot = 5, accuracy = 65.9},
  {method = "outer:relationnet", backbone = "resnet10", way = 5, shot = 1, accuracy = 45.37},
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

Write = Callable[[str], None]


@pytest.fixture
def outside(tmp_path: Path, distribution: Callable[..., None]) -> Write:
    """Install a package with the method ``outer``, which wraps another, and its recipes."""
    distribution("outside", {"fsframework.methods": {"outer": "outside:Outer"}})
    folder = tmp_path / "site" / "outside"
    folder.mkdir()
    source = "from fsf_methods.cross_domain import FT as Outer\n"
    (folder / "__init__.py").write_text(source)
    return lambda text: [(folder / "recipes.toml").write_text(text)].clear()


def test_recipes_of_an_outside_package(outside: Write) -> None:
    outside(
        '[[recipe]]\nname = "long"\nmethod = "outer"\ndatasets = ["My-Birds"]\nshot = 1\n'
        'source = "us"\naccuracy = 50\naccuracy_on = "birds"\nverified = 2026-01-02\n'
        "[recipe.set.training]\nepochs = 7\n"
    )
    [found] = recipes("outer")
    assert found.verified == datetime.date(2026, 1, 2)
    assert found.described() == "recipe long (us); expected 50.0 % on birds, verified 2026-01-02"
    base = {"name": "outer", "base": "relationnet"}
    [stage] = told(method=base, recipe="long:mybirds", sampler="random", shot=1)["training"]
    assert stage["epochs"] == 7
    with pytest.raises(OptionError, match="outer has no recipe 'other'; it has long"):
        recipes("outer", "other")


def test_a_recipe_may_be_for_several_methods_and_name_what_its_stages_share(outside: Write) -> None:
    outside(FOR_SEVERAL)
    gnn, relationnet = recipes("outer")
    assert (relationnet.spelt_method, gnn.spelt_method) == ("outer:relationnet", "outer:gnn")
    assert (relationnet.accuracies, gnn.accuracies) == ((45.37,), (47.3, 65.9))
    for base, recipe in (("relationnet", relationnet), ("gnn", gnn)):
        for method in (f"outer:{base}", {"name": "outer", "base": {"name": base}}):
            made = fsf.describe(method=method, recipe="table", progress=False)
            assert made.experiment.recipe == recipe
            assert made.options["method"]["base"]["name"] == base
            stages = made.options["training"]
            shown = [(s["epochs"], s["steps"], s["validation_tasks"]) for s in stages]
            assert shown == [(100, 50, 7), (3, 50, 7)]
    with pytest.raises(OptionError, match="table of outer:tpn is not .* outer:relationnet on any"):
        told(method="outer:tpn", recipe="table")


def test_a_variant_changes_the_training_in_all_stages_and_promises_no_accuracy(
    outside: Write,
) -> None:
    outside(FOR_SEVERAL + "[variants.table.longer]\nepochs = 1000\n")
    found = recipes("outer", "longer")
    assert [one.spelt_method for one in found] == ["outer:gnn", "outer:relationnet"]
    assert [one.accuracies for one in found] == [(), ()]
    made = fsf.describe(method="outer:gnn", recipe="longer", progress=False)
    shown = [(s["epochs"], s["steps"], s["validation_tasks"]) for s in made.options["training"]]
    assert shown == [(1000, 50, 7), (1000, 50, 7)]


def test_quick_recipes_of_ours_end_by_patience_and_plateau_trains_without_their_cap() -> None:
    for method in ("protonet", "leo", "ifsl:maml", "simclr"):
        quick, plateau = (told(method=method, recipe=name) for name in ("quick", "plateau"))
        assert plateau["method"] == quick["method"]
        for capped, stage in zip(quick["training"], plateau["training"], strict=True):
            assert capped["patience"]
            assert capped["schedule"] == "plateau"
            assert {**stage, "epochs": capped["epochs"]} == capped
            assert stage["epochs"] == 1000


def test_a_recipe_has_options_of_each_backbone(outside: Write) -> None:
    outside(FOR_SEVERAL)

    def backbone(**given: Any) -> tuple[dict[str, Any], Any]:
        made = fsf.describe(method="outer:gnn", recipe="table", progress=False, **given)
        return dict(made.options["backbone"]), made.origins["backbone"]

    assert backbone()[0]["stem"] == backbone(backbone="resnet10")[0]["stem"] == "3x3"
    other, origins = backbone(backbone="conv64f")
    assert (other["last_pool"], origins["last_pool"]) == (False, "recipe table")
    assert backbone(backbone={"name": "conv64f", "last_pool": True})[0]["last_pool"] is True
    assert backbone(backbone="resnet12")[1]["last_pool"] == "default"


def test_the_expected_accuracy_is_that_of_the_backbone_and_the_tasks(outside: Write) -> None:
    outside(FOR_SEVERAL)
    gnn, _ = recipes("outer")
    assert "expected 47.3 to 65.9 % on random tasks, not verified" in gnn.described()
    exact = "expected 65.9 % on random tasks, 5-way 5-shot with resnet10, not verified"
    assert exact in gnn.described("birds", "resnet10", (5, 5))
    for backbone, way in (("resnet10", 10), ("conv64f", 5)):
        assert gnn.described("birds", backbone, (way, 5)).endswith("accuracy is not known")


def test_the_accuracy_of_a_quick_recipe_is_known_for_the_embedded_data_alone() -> None:
    quick = Recipe(name="quick", method="b", source="c", options={}, accuracy=50.0, accuracy_on="d")
    assert quick.described("planted") == "recipe quick (c); expected 50.0 % on d, not verified"
    assert quick.described("birds") == "recipe quick (c); the expected accuracy is not known"


def test_the_value_of_an_argument_that_is_left_out_is_its_default() -> None:
    for method, name in (("cdkt", "cdkt:ml"), ("cdkt:pl", "cdkt:pl")):
        found = fsf.describe(method=method, recipe="metacoco:MetaCoCo").experiment.recipe
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
            FOR_SEVERAL.replace('method = "outer:gnn", b', 'method = "outer:tpn", b'),
            "recipe 1, expected: 'outer:tpn' is not among its methods",
        ),
        (FOR_SEVERAL.replace("way = 5, ", ""), r"`way`.*expected\[0\]"),
        (FOR_SEVERAL.replace("way = 5", "way = 5.5"), r"expected\[0\].way"),
        ("[[recipe\n", "cannot be read as recipes"),
    ],
)
def test_damaged_files_are_named(outside: Write, text: str, message: str) -> None:
    outside(text)
    with pytest.raises(PluginError, match=message):
        recipes()


def test_a_run_can_take_the_model_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    given: dict[str, Any] = {
        "dataset": {"name": "planted", "size": 32, "n_per_class": 40}, "sampler": "random",
        "shot": 1, "queries": 5,
    }  # fmt: skip
    short = {"epochs": 1, "steps": 2, "validation_tasks": 5}
    method = {"name": "renet", "temperature": 0.3}
    first = fsf.run(method=method, tasks=20, training=short, **given)
    assert "training" in capsys.readouterr().err
    second = fsf.run(model=first.folder, tasks=30, **given)
    assert second.options[0]["method"]["temperature"] == 0.3
    assert "training" not in capsys.readouterr().err
    assert second.record.arms["random"].n_tasks == 30
    with pytest.raises(OptionError, match="sets the method; leave out method"):
        fsf.describe(model=first.folder, method="protonet")
