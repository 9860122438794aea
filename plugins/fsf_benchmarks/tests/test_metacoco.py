"""`fsf benchmark metacoco`: which printed rows are measured, and what stands beside."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsf_benchmarks._metacoco import BACKBONES, METHODS, TABLES, printed_rows
from fsf_benchmarks._metacoco_counts import printed_benchmarks, printed_sizes
from fsframework.api.recipes import recipes
from fsframework.errors import OptionError, PluginError
from tests.conftest import Fsf

TOYS = Path(__file__).with_name("toy_grid.py")
Tables = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tables(fsf: Fsf) -> Tables:
    def call(*more: str) -> subprocess.CompletedProcess[str]:
        return fsf(
            "benchmark", "metacoco", "--plugin", str(TOYS), "--dataset", "toy-contexts",
            "--tasks", "10", "--queries", "2", "-o", "training.epochs=0", "-o", "image_size=16",
            *more,
        )  # fmt: skip

    return call


DATA = {"dataset": ["toy-contexts"]}


def test_printed_rows_are_those_of_the_paper() -> None:
    rows = printed_rows()
    counts = {table: sum(row.table == table for row in rows) for table in ("2", "3", "7")}
    assert counts == {"2": 36, "3": 20, "7": 24}
    by = {(r.table, r.method, r.backbone): r.values for r in rows}
    assert by["2", "ProtoNet", "WRN-28-10"][5].text() == "60.78"
    assert by["3", "MatchingNet", "ResNet10"][1].text() == "43.72 ± 0.49"
    assert by["7", "CAN", "ResNet18"][1].text() == "33.16 ± 0.25"
    names = {row.method for row in rows}
    assert set(METHODS.values()) <= names
    # 10-way values are below 5-way ones of the same method and backbone.
    for method in ("ProtoNet", "R2D2", "DN4", "CAN", "Baseline"):
        for shot in (1, 5):
            ways = [by[table, method, "ResNet12"][shot].value for table in ("2", "7")]
            assert ways[0] > ways[1]


@pytest.mark.slow
def test_every_printed_cell_has_a_recipe(planned: Any) -> None:
    job = planned("metacoco", DATA, recipe="metacoco")
    rows = list(job.benchmark._rows(job.selection))
    assert len(rows) == len(printed_rows())
    assert {row.method for row, _, _, reason in rows if reason} == set()
    cells = {
        (row.table, method, backbone, shot): row.values[shot].value
        for row, method, backbone, _ in rows
        for shot in row.values
    }
    experiments = list(job.benchmark.experiments(job.selection))
    keys = [tuple(e.tags[k] for k in ("table", "method", "backbone", "shot")) for e in experiments]
    assert sorted(keys) == sorted(cells)
    assert len(cells) == 2 * len(rows)
    for key, experiment, one in zip(keys, experiments, job.planned(experiments), strict=True):
        options, tags = one.resolved.options, experiment.tags
        assert options["recipe"] == "metacoco:MetaCoCo", key
        assert options["sampler"]["name"] == "random"
        assert options["sampler"]["n_way"] == (10 if tags["table"] == "7" else 5)
        assert options["sampler"]["n_shot"] == tags["shot"]
        assert (options["tasks"], options["image_size"]) == (3000, 84)
        assert options["backbone"]["name"] == tags["backbone"]
        assert sum(stage["epochs"] for stage in options["training"]) >= 65, key
        # A learned head would refuse tasks of another number of ways.
        assert options["method"].get("n_way", tags["way"]) == tags["way"]


def test_recipes_expect_what_the_tables_print() -> None:
    expected = {
        (one.spelt_method, e.backbone, e.way, e.shot): e.accuracy
        for one in recipes(name="metacoco")
        for e in one.expected
    }
    names, backbones = ({v: k for k, v in one.items()} for one in (METHODS, BACKBONES))
    assert expected == {
        (names[row.method], backbones[row.backbone], TABLES[row.table], shot): value.value
        for row in printed_rows()
        for shot, value in row.values.items()
    }
    assert all(one.verified is None for one in recipes(name="metacoco"))


def described(job: Any) -> list[Any]:
    return list(job.benchmark.experiments(job.selection))


def test_a_choice_narrows_the_rows(planned: Any) -> None:
    chosen = {**DATA, "method": ["protonet"], "backbone": ["conv64f"], "shot": [5]}
    [only] = described(planned("metacoco", chosen, {"only": "7"}))
    assert only.name == "ProtoNet, Conv64F, 10-way 5-shot"
    both = {**DATA, "method": ["toy-near", "protonet"], "backbone": ["toy-pixels"], "shot": [1]}
    found = described(planned("metacoco", both))
    assert {one.tags["table"] for one in found} == {"Not printed"}
    assert {one.tags["method"] for one in found} == {"toy-near", "protonet"}


def test_what_another_table_prints_is_not_called_not_printed(planned: Any) -> None:
    """Tables 2 and 7 have ProtoNet with ResNet12, and no table has it with ResNet10."""
    both = {"method": ["protonet", "toy-near"], "backbone": ["resnet10", "resnet12"], "shot": [1]}
    found = described(planned("metacoco", {**DATA, **both}, {"only": "3"}))
    assert {(e.tags["table"], e.tags["method"], e.tags["backbone"]) for e in found} == {
        ("Not printed", "protonet", "resnet10"),
        ("Not printed", "toy-near", "resnet10"),
        ("Not printed", "toy-near", "resnet12"),
    }


RESNET12 = {"method": ["protonet"], "backbone": ["resnet12"]}


@pytest.mark.parametrize(
    ("chosen", "only", "error", "part"),
    [
        ({}, "6", OptionError, "among 1, 2, 3, 4, 5, 7, figure-4, figure-5, not '6'"),
        ({"method": ["protonett"]}, "", PluginError, "unknown method 'protonett'"),
        ({"method": ["dn4"]}, "3", OptionError, "no row of the tables asked for"),
        (RESNET12, "3", OptionError, "and backbones; such rows are in Table 2 and 7$"),
    ],
)
def test_what_does_not_exist_is_told(
    planned: Any, chosen: dict[str, Any], only: str, error: type[Exception], part: str
) -> None:
    with pytest.raises(error, match=part):
        planned("metacoco", {**DATA, **chosen}, {"only": only} if only else {}).run()


def test_data_that_allow_no_such_tasks_are_told_once_and_before(tables: Tables) -> None:
    """The toy's test split has 12 classes of 24 images."""
    asked = ("-o", "benchmark.only=2", "--method", "protonet", "--backbone", "resnet12")
    for more, where in (
        (("-o", "split=tset"), "toy-contexts: "),
        (("--queries", "40"), "toy-contexts, split test, 5-way 1-shot: "),
    ):
        done = tables(*asked, *more)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"fsf: {where}")
        assert done.stderr.count("\n") == 1


def test_experiments_are_listed_without_the_data(fsf: Fsf) -> None:
    asked = ("benchmark", "metacoco", "-o", "benchmark.only=7", "--method", "protonet")
    done = fsf(*asked, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "ProtoNet, Conv64F, 10-way 1-shot" in done.stdout
    assert "note: metacoco: not added yet; fsf data add metacoco PATH" in done.stdout
    assert fsf(*asked).returncode == 2
    counts = fsf("benchmark", "metacoco", "-o", "benchmark.only=1,4,5", "--dry-run")
    assert counts.returncode == 0, counts.stderr
    assert "note: metacoco: not added yet; fsf data add metacoco PATH" in counts.stdout


def test_printed_values_stand_beside(tables: Tables) -> None:
    asked = ("-o", "benchmark.only=7", "--method", "protonet", "--backbone", "conv64f")
    done = tables(*asked, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (table,) = document["tables"]
    first = table["rows"][0]
    assert (first["quantity"], first["printed"], first["printed_half_width"]) == (
        "1-shot", 23.72, 0.19,
    )  # fmt: skip
    assert first["n_tasks"] == 10
    assert [first[k] for k in ("dataset", "method", "backbone", "way", "shot")] == [
        "toy-contexts", "ProtoNet", "Conv64F", 10, 1,
    ]  # fmt: skip
    assert len(first["repeats"]) == 5
    assert sum(first["repeats"]) / 5 == pytest.approx(first["measured"], abs=1e-3)
    shown = tables(*asked)
    assert "2 experiments: 0 run now, 2 finished before, 0 failed" in shown.stdout
    assert "printed values are for MetaCoCo" in shown.stdout
    assert "35.49 ± 0.22" in shown.stdout


def test_rows_that_are_not_here_are_listed(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsf_benchmarks._metacoco.METHODS", {"matchingnet": "MatchingNet"})
    done = tables("-o", "benchmark.only=3", "--shot", "1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any("MatchingNet +IFSL" in line and "44.11" in line and "–" in line for line in lines)
    assert "  a: not here" in lines
    assert sum("– a" in line for line in lines) == 19


def test_figures_vary_the_backbone_the_ways_and_the_shots(planned: Any) -> None:
    both = {"only": ("figure-4", "figure-5"), "ways": (5, 20)}
    found = described(planned("metacoco", {**DATA, "method": ["protonet", "versa"]}, both))
    cells = {
        tuple(e.tags[k] for k in ("table", "method", "backbone", "way", "shot")) for e in found
    }
    assert len(cells) == len(found)
    assert cells == {
        *(
            ("Figure 4", method, backbone, way, 1)
            for method in ("protonet", "versa")
            for backbone in ("conv64f", "resnet12", "resnet18")
            for way in (5, 10)
        ),
        *(
            ("Figure 5", method, "resnet12", way, shot)
            for method in ("protonet", "versa")
            for way, shot in ((5, 1), (20, 1), (5, 5), (5, 10))
        ),
    }


def test_figures_are_drawn_beside_what_the_tables_print(tables: Tables, tmp_path: Path) -> None:
    asked = (
        "-o", "benchmark.only=figure-4,figure-5", "-o", "benchmark.ways=2,10", "--shot", "1",
        "--method", "protonet", "--backbone", "conv64f", "--backbone", "toy-pixels",
    )  # fmt: skip
    done = tables(*asked, "--json", "--figure", "made.png")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    rows = {t["table"]: t["rows"] for t in document["tables"]}
    printed = {(r["backbone"], r["way"]): r["printed"] for r in rows["Figure 4"]}
    assert printed == {
        ("Conv64F", 5): None, ("Conv64F", 10): 23.72,
        ("toy-pixels", 5): None, ("toy-pixels", 10): None,
    }  # fmt: skip
    backbones, shapes = document["figures"]
    measured = {
        (panel["title"], series["name"], point["x"]): point["y"]
        for panel in backbones["panels"]
        for series in panel["series"]
        for point in series["points"]
    }
    assert measured == {
        (f"{r['way']}-way 1-shot", r["backbone"], r["method"]): r["measured"]
        for r in rows["Figure 4"]
    }
    assert [panel["title"] for panel in shapes["panels"]] == ["1-shot, by ways", "5-way, by shots"]
    places = [[p["x"] for p in panel["series"][0]["points"]] for panel in shapes["panels"]]
    assert places == [["2-way", "5-way", "10-way"], ["1-shot"]]
    for name in ("made-figure-4.png", "made-figure-5.png"):
        assert (tmp_path / name).stat().st_size > 1000
    assert "made-figure-4.png exists" in tables(*asked, "--figure", "made.png").stderr


def test_images_are_counted_without_a_run(tables: Tables, tmp_path: Path) -> None:
    """24 classes of 24 images; the contexts take turns."""
    done = tables("-o", "benchmark.only=1,4,5", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["experiments"] == []
    assert not (tmp_path / "runs").exists()
    sizes, concepts, cells = (table["rows"] for table in document["tables"])
    assert [r["measured"] for r in sizes] == [24, 576, 4, 6, 144, 4, 6, 144, 4, 12, 288, 4]
    assert [r["measured"] for r in concepts] == [24] * 24
    assert [r["measured"] for r in cells] == [6] * 96
    assert "576 " in tables("-o", "benchmark.only=1").stdout


def test_the_printed_counts_agree_but_for_two_splits() -> None:
    """Table 4 adds up to Table 1 for the validation classes only."""
    printed, sizes = printed_benchmarks(), printed_sizes()
    beyond = {}
    for split, spelt in (("train", "training"), ("val", "validation"), ("test", "testing")):
        own = [n for (of, _), n in sizes.items() if of == spelt]
        assert len(own) == printed["MetaCoCo", f"classes_{split}"]
        beyond[split] = sum(own) - printed["MetaCoCo", f"images_{split}"]
    assert beyond == {"train": 644, "val": 0, "test": -2}
