"""Figures of runs: every number is that of the public function."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from pathlib import Path

import pytest

import fsf_statistics
import fsframework as api
from fsf_reports import figure, table
from fsf_reports._figures import FIGURES
from fsf_reports.values import FigureDeclaration, Quantity
from fsf_statistics import QueryVariance, TaskSupply, pilot_of
from fsframework.errors import DataError, OptionError, RecordError
from fsframework.values import Estimate
from tests.conftest import Fsf

from .conftest import DATA, untrained


def same(shown: object, estimate: Estimate) -> bool:
    assert isinstance(shown, Quantity)
    wanted = Quantity.of(estimate)
    numbers = [(q.value, q.low, q.high) for q in (shown, wanted)]
    return shown.unit == wanted.unit and numbers[0] == pytest.approx(numbers[1], nan_ok=True)


def ncc_runs(folder: Path) -> list[api.Run]:
    return [run for run in api.runs(folder) if run.record.method.name == "ncc"]


def test_both_arms_are_the_estimates_of_the_runs(
    one_shot: list[Path], methods: dict[str, api.Run]
) -> None:
    for name, x in (("arms", "wacc-random"), ("accuracy", "acc-random")):
        made = figure(name, one_shot)
        assert (made.mark, made.diagonal) == ("points", name == "arms")
        [panel] = made.panels
        [series] = panel.series
        assert {point.label for point in series.points} == set(methods)
        for point in series.points:
            own = methods[point.label].estimates
            assert same(point.x, own[x])
            assert same(point.y, own["wacc-biased"])
    assert made.x_axis == "Acc-R (%)"
    assert made.y_axis == "wAcc-A (%)"
    assert "24 tasks per arm; 95 % intervals over tasks" in made.notes[0]
    assert made.notes[0].startswith("On planted, 3-way 1-shot: ")


def test_tasks_are_points_of_two_methods(fsf: Fsf, tmp_path: Path) -> None:
    """Figure 1 of Lafargue et al. of accuracies measured elsewhere, as of runs."""
    (tmp_path / "both.csv").write_text("one,two\n0.2,0.4\n0.4,0.6\n0.9,1.0\n")
    assert fsf("import", "accuracies", "both.csv", "--task-set", "mine").returncode == 0
    made = figure("task-accuracies", tmp_path / "runs")
    [panel] = made.panels
    [series] = panel.series
    points = [(p.x, p.y.value) for p in series.points if p.y is not None]
    assert points == [pytest.approx(pair) for pair in ((20, 40), (40, 60), (90, 100))]
    assert made.diagonal
    assert "0.999" in panel.title  # by hand: 0.22 / sqrt(0.26 * 0.18667)
    [first, *_] = sorted((tmp_path / "runs").iterdir())
    with pytest.raises(DataError, match="needs two methods on equal tasks"):
        figure("task-accuracies", first)


def test_gaps_are_those_of_the_headline(
    small_runs: Path, one_shot: list[Path], methods: dict[str, api.Run]
) -> None:
    columns = [column for [*_, column] in fsf_statistics.headline(small_runs).columns]
    made = figure("intervals", small_runs)
    assert len(made.panels) == len(columns) == 2
    for panel, column in zip(made.panels, columns, strict=True):
        [series] = panel.series
        for point in series.points:
            [label] = [one for one in column.values if one.partition(", ")[0] == point.x]
            assert same(point.y, column.values[label])
        values = [point.y.value for point in series.points if point.y]
        assert values == sorted(values)
    bars = figure("by-arm", one_shot)
    assert [series.name for series in bars.panels[0].series] == ["wAcc-R", "wAcc-A"]
    gap = Quantity.of(methods["ncc"].estimates["wacc-gap"])
    wanted = f"{gap.value:+.1f} ± {gap.half_width:.1f}".replace("-", "−")
    assert bars.panels[0].captions["ncc"] == wanted


@pytest.mark.slow
def test_other_measures_and_effective_robustness_are_figures_too(
    one_shot: list[Path], methods: dict[str, api.Run], on_a_line: Path
) -> None:
    made = figure("intervals", one_shot, statistic="acc-gap")
    assert made.y_axis == "Acc gap (points)"
    for point in made.panels[0].series[0].points:
        assert same(point.y, methods[str(point.x)].estimates["acc-gap"])
    drops = figure("intervals", one_shot, statistic="acc-drop")
    assert drops.y_axis == "Acc drop (%)"
    for point in drops.panels[0].series[0].points:
        own = methods[str(point.x)].estimates.get("acc-drop")
        assert point.y is None if own is None else same(point.y, own)
    expected = fsf_statistics.effective_robustness(on_a_line, "acc")
    [series] = figure("robustness", on_a_line, statistic="acc").panels[0].series
    values = {str(point.x).partition(" (")[0]: point.y for point in series.points}
    assert list(values) == list(expected.values)
    assert all(same(values[label], one) for label, one in expected.values.items())


@pytest.mark.parametrize("name", ["arms", "by-arm", "intervals", "accuracy", "pairs"])
def test_figures_of_gaps_say_what_is_near_guessing(name: str, one_shot: list[Path]) -> None:
    limits = fsf_statistics.headline(one_shot).limits
    assert any("guessing" in limit for limit in limits)
    assert set(limits) <= set(figure(name, one_shot).notes)


def test_panels_of_the_same_methods_share_their_rows(two_strengths: list[Path]) -> None:
    panels = figure("intervals", two_strengths).panels
    assert sorted(panel.title.partition("strength ")[2] for panel in panels) == ["0.2", "0.5"]
    rows = [[point.x for point in panel.series[0].points] for panel in panels]
    assert rows[0] == rows[1]
    assert sorted(rows[0]) == ["logistic", "ncc", "protonet"]
    whole, weak = sorted(panels, key=lambda panel: "strength 0.2" in panel.title)
    values = [point.y.value for point in whole.series[0].points if point.y]
    assert len(values) == 3
    assert values == sorted(values)
    assert {point.x: point.y for point in weak.series[0].points}["logistic"] is None


def test_unfinished_runs_of_a_folder_are_left_out_and_named(
    one_shot: list[Path], methods: dict[str, api.Run], tmp_path: Path
) -> None:
    for run in one_shot:
        shutil.copytree(run, tmp_path / "runs" / run.name)
    (tmp_path / "runs" / "begun").mkdir()
    begun = dataclasses.replace(methods["ncc"].record, status="unfinished")
    begun.save(tmp_path / "runs" / "begun")
    made = figure("intervals", tmp_path / "runs")
    assert {point.x for point in made.panels[0].series[0].points} == set(methods)
    assert any("begun" in note for note in made.notes)
    assert any("begun" in note for note in api.compare(tmp_path / "runs").notes)
    with pytest.raises(RecordError, match="not finished"):
        figure("intervals", tmp_path / "runs" / "begun")


def test_a_selector_means_all_runs_that_match(
    fsf: Fsf, small_runs: Path, methods: dict[str, api.Run], tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    for run in api.runs(small_runs):
        shutil.copytree(run.folder, folder / run.folder.name)
    begun = dataclasses.replace(methods["ncc"].record, status="unfinished")
    begun.save(folder / "begun")
    made = figure("arms", "shot=1", runs_dir=folder)
    assert {p.label for p in made.panels[0].series[0].points} == set(methods)
    assert made.notes[-1] == "Left out, not finished: begun."
    for words in (("table",), ("compare",), ("report",), ("figure", "arms"), ("cite",)):
        done = fsf(*words, "shot=1", "--runs-dir", str(folder))
        assert done.returncode == 0, done.stderr
        assert "begun" in done.stdout + done.stderr or words == ("report",)
    assert "matches 4 runs" in fsf("runs", "show", "shot=1", "--runs-dir", str(folder)).stderr


@pytest.mark.parametrize("name", ["arms", "shots", "intervals", "ablations", "accuracy", "pairs"])
def test_runs_on_tasks_of_one_arm_are_left_out_of_gaps_and_named(
    small_runs: Path, one_arm: Path, name: str
) -> None:
    made = figure(name, [small_runs, one_arm])
    alone = figure(name, small_runs)
    assert made.panels == alone.panels
    assert made.notes[-1] == f"Left out, as their tasks have one arm: {one_arm.name}."
    if name in ("arms", "shots", "accuracy"):
        with pytest.raises(DataError, match="one arm"):
            figure(name, one_arm)


@pytest.fixture(scope="module")
def one_arm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on tasks of one arm."""
    options = {**untrained(tmp_path_factory.mktemp("one")), "sampler": "random"}
    return api.run(method="ncc", shot=1, **options).folder


def test_the_commands_show_the_labels_that_are_given(
    fsf: Fsf, methods: dict[str, api.Run], small_runs: Path
) -> None:
    given = [f"Small CNN={methods['ncc'].folder.name}", methods["logistic"].folder.name]
    for words in (("figure", "arms", "--json"), ("figure", "ablations"), ("table",), ("compare",)):
        done = fsf(*words, *given, "--runs-dir", str(small_runs))
        if "ablations" in words:
            assert "no two of these runs" in done.stderr
            continue
        assert done.returncode == 0, done.stderr
        assert "Small CNN" in done.stdout
        assert "logistic" in done.stdout
    for words in (("figure", "arms"), ("table",), ("compare",)):  # facts, and no labels
        done = fsf(*words, "strength=0.5,shot=1", "--runs-dir", str(small_runs))
        assert done.returncode == 0, done.stderr
    several = fsf("table", "mine=shot=1", "--runs-dir", str(small_runs))
    assert "the results of 3 methods, not one" in several.stderr


def test_queries_of_tasks_are_said_in_words(fsf: Fsf, tmp_path: Path) -> None:
    for queries in (1, 2):
        options = {**untrained(tmp_path), "tasks": 6, "queries": queries}
        run = api.run(method="ncc", shot=1, **options)
        said = "1 query per class" if queries == 1 else "2 queries per class"
        assert said in fsf("runs", "show", run.folder).stdout
    titles = [panel.title for panel in figure("arms", tmp_path / "runs").panels]
    assert sorted(title.rpartition(", ")[2] for title in titles) == [
        "1 query per class", "2 queries per class"
    ]  # fmt: skip


def test_gaps_by_shot(small_runs: Path) -> None:
    made = figure("shots", small_runs)
    assert [series.name for series in made.panels[0].series] == ["1 shot", "2 shots"]
    [run] = [run for run in api.runs(small_runs) if run.record.tested.n_shot == 2]
    [point] = made.panels[0].series[1].points
    assert same(point.y, run.estimates["wacc-gap"])


def test_pairs_are_those_of_compare(small_runs: Path, one_shot: list[Path]) -> None:
    found = api.compare(one_shot, "wacc-gap")["wacc-gap"]
    made = figure("pairs", small_runs)
    [alone] = [run.folder.name for run in ncc_runs(small_runs) if run.folder not in one_shot]
    assert any(alone in note for note in made.notes)
    for series in made.panels[0].series:
        for point in series.points:
            if point.x == series.name:
                assert point.y is None
                continue
            pair, sign = found.pair(series.name, str(point.x))
            assert point.y is not None
            assert point.y.value == pytest.approx(sign * 100 * pair.difference.value)
            bounds = sorted(sign * 100 * b for b in (pair.difference.low, pair.difference.high))
            assert [point.y.low, point.y.high] == pytest.approx(bounds)
            assert (point.label == "*") == (pair.p_holm is not None and pair.p_holm <= 0.05)


def test_a_breakdown_is_that_of_the_public_function(one_shot: list[Path]) -> None:
    found = fsf_statistics.breakdown(one_shot[0], "class")
    made = figure("breakdown", one_shot[:1], by="class", most=2)
    wanted = {(row.names[0], row.arm): row.estimate for row in found.rows}
    for series in made.panels[0].series:
        assert len(series.points) == 2
        for point in series.points:
            assert same(point.y, wanted[str(point.x), series.name])
    # Without a gap it begins with the lowest accuracy.
    made = figure("breakdown", one_shot[:1], by="attribute", most=3)
    rows = fsf_statistics.breakdown(one_shot[0], "attribute").rows
    values = [point.y.value for point in made.panels[0].series[0].points if point.y]
    assert values == pytest.approx(sorted(100 * row.estimate.value for row in rows)[:3])
    assert f"The 3 of {len(rows)} with the lowest accuracy." in made.notes


def test_figure_and_table_of_words_that_hurt_answer_the_same_questions(tmp_path: Path) -> None:
    run = api.run(method="ncc", shot=1, **{**untrained(tmp_path, strength=0.9), "tasks": 300})
    found = fsf_statistics.harmful_pairs(run)
    assert {row.question for row in found.rows} == {"tied", "present"}
    for question in (None, "tied", "present"):
        made = figure("harm", run, question=question, most=1000)
        shown = [(panel.title.split()[1], str(point.x)) for panel in made.panels
                 for point in panel.series[0].points]  # fmt: skip
        rows = [row for row in found.rows if question in (None, row.question)]
        assert sorted(shown) == sorted((r.question, f"{r.class_name}: {r.words}") for r in rows)
        told = table(run, "harm", question=question)
        names = {entry.row for entry in told.entries}
        assert names == {(row.class_name, row.words, row.question) for row in rows}


def test_options_in_which_runs_differ(small_runs: Path) -> None:
    made = figure("ablations", small_runs)
    [series] = made.panels[0].series
    assert series.name == "ncc"
    runs = {run.record.tested.n_shot: run for run in ncc_runs(small_runs)}
    assert {str(point.x) for point in series.points} == {f"{shot}-shot" for shot in runs}
    for point in series.points:
        own = runs[int(str(point.x)[0])]
        assert same(point.y, own.estimates["wacc-gap"])


def test_curves_and_shots_of_the_training_are_those_of_the_runs(tmp_path: Path) -> None:
    common = {
        "dataset": {"name": "planted", "n_per_class": 16, "size": 16}, "method": "protonet",
        "sampler": "fewstab", "tasks": 12, "queries": 3, "way": 3, "shot": 1, "image_size": 16,
        "progress": False,
    }  # fmt: skip
    runs = {
        shot: api.run(training={"epochs": 1, "steps": 1, "n_shot": shot}, **common)
        for shot in (1, 2)
    }
    for name, value in (
        ("loss", lambda epoch: epoch.loss),
        ("training", lambda epoch: 100 * epoch.validation_accuracy),
    ):
        made = figure(name, list(runs.values()))
        for series, run in zip(made.panels[0].series, runs.values(), strict=True):
            wanted = [value(epoch) for epoch in run.record.training.history]
            assert [point.y.value for point in series.points if point.y] == wanted
    made = figure("training-shots", list(runs.values()))
    [[point]] = [series.points for series in made.panels[0].series]
    compared = api.compare({"more": runs[2], "fewer": runs[1]}, "wacc-biased")
    assert same(point.y, compared.pairs[0].difference)


def test_gap_and_accuracy_by_the_length_of_the_training(tmp_path: Path) -> None:
    common = {
        "dataset": {"name": "planted", "n_per_class": 16, "size": 16}, "sampler": "fewstab",
        "tasks": 12, "queries": 3, "way": 3, "shot": 1, "image_size": 16, "progress": False,
    }  # fmt: skip
    two = [{"epochs": 1, "steps": 3, "n_query": 2}, {"epochs": 2, "steps": 2, "n_query": 2}]
    runs = {
        updates: [
            api.run(method="protonet", training=stages, training_seed=seed, **common)
            for seed in range(seeds)
        ]
        for updates, stages, seeds in ((2, [{**two[1], "steps": 1}], 2), (7, two, 1))
    }
    other = api.run(method="ncc", training={"epochs": 0}, **common)
    made = figure("length", [*runs[7], *runs[2], other])
    assert [panel.title for panel in made.panels] == [
        "wAcc gap (points)",
        "wAcc-R (%)",
        "Acc-R (%)",
    ]
    assert made.limits == (-100, 100)  # a gap may be negative
    assert any("wAcc-R of protonet" in note and "guessing" in note for note in made.notes)
    for panel, measure in zip(made.panels, ("wacc-gap", "wacc-random", "acc-random"), strict=True):
        [series] = panel.series  # none for the method of one length
        assert series.name == "protonet"
        assert [point.x for point in series.points] == [2, 7]
        short, long = (point.y for point in series.points)
        assert same(long, runs[7][0].estimates[measure])
        assert short is not None
        both = [100 * run.estimates[measure].value for run in runs[2]]
        assert short.value == pytest.approx(sum(both) / 2)


def test_two_sets_of_tasks(small_runs: Path) -> None:
    made = figure("agreement", small_runs)
    [series] = made.panels[0].series
    [point] = series.points
    assert point.label == "ncc"
    runs = [run.estimates["wacc-biased"] for run in ncc_runs(small_runs)]
    assert any(same(point.x, one) for one in runs)
    assert any(same(point.y, one) for one in runs)


@pytest.mark.parametrize(
    ("name", "error", "part"),
    [
        ("arm", OptionError, "no figure 'arm'"),
        ("training", DataError, "nothing was trained in these runs"),
        ("length", DataError, "no two of these runs are of one method and trained for different"),
        ("training-shots", DataError, "no method was trained at two numbers of shots"),
        ("breakdown", OptionError, "breakdown shows one run, and 3 are given"),
        ("ablations", DataError, "no two of these runs are of one method"),
        ("agreement", DataError, "agreement: needs the same methods on two sets of tasks"),
    ],
)
def test_what_a_figure_lacks_is_said(
    one_shot: list[Path], name: str, error: type[Exception], part: str
) -> None:
    with pytest.raises(error, match=part):
        figure(name, one_shot)


def test_the_variance_by_queries(one_shot: list[Path]) -> None:
    run = api.load_run(one_shot[0])
    made = figure("queries", one_shot[:1])
    pilot = QueryVariance.of(pilot_of(run.tasks["random"], run.outcomes["random"]))
    sizes = next(iter(run.record.arms.values())).class_sizes
    point = made.panels[0].series[0].points[4]
    assert point.x == 5
    tasks = TaskSupply(sizes, 3, 1).most_tasks(5)
    assert point.y is not None
    assert point.y.value == pytest.approx(1e4 * float(pilot.variance(5)) / tasks)


def test_the_command_writes_files_and_prints_the_caption(
    fsf: Fsf, one_shot: list[Path], tmp_path: Path
) -> None:
    runs = [str(run) for run in one_shot]
    done = fsf("figure", "arms", *runs, "--output", "a.svg", "--output", "a.csv")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["a.svg", "a.csv"]
    assert "24 tasks per arm; 95 % intervals" in lines[2]
    assert "per arm" not in (tmp_path / "a.svg").read_text(encoding="utf-8")
    declared = json.loads(fsf("figure", "arms", *runs, "--json").stdout)
    points = declared["panels"][0]["series"][0]["points"]
    with (tmp_path / "a.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["y"]) for row in rows] == [point["y"] for point in points]
    spec = json.loads(fsf("figure", "arms", *runs, "--spec").stdout)
    assert spec["$schema"].startswith("https://vega.github.io/schema/vega-lite/")
    again = fsf("figure", "arms", *runs, "--output", "a.svg")
    assert (again.returncode, "a.svg exists" in again.stderr) == (2, True)
    other = fsf("figure", "arms", *runs, "--output", "a.jpg")
    assert other.returncode == 2
    assert all(f".{ending}" in other.stderr for ending in ("pdf", "svg", "png", "csv"))
    assert fsf("figure", "arms").returncode == 2
    listed = json.loads(fsf("figure", "--list", "--json").stdout)
    assert [one["figure"] for one in listed] == list(FIGURES)
    assert all(one["shows"] and one["needs"] for one in listed)
    main = [one["figure"] for one in listed if one["main"]]
    first, every = (fsf("figure", *extra).stdout.split() for extra in ((), ("--list", "--all")))
    assert set(main) <= set(first)
    assert "task-accuracies" not in first
    assert set(FIGURES) <= set(every)


ONE_THING: dict[str, tuple[dict[str, object], str]] = {
    "data": ({"dataset": {**DATA, "strength": 0.2}}, "strength 0.2"),
    "way": ({"way": 2}, "2-way"),
    "seed of the tasks": ({"task_seed": 3}, "task seed 3"),
    "backbone": ({"backbone": "resnet10"}, "resnet10"),
    "option of the backbone": ({"backbone": {"name": "conv64f", "pooling": "mean"}}, "mean"),
    "option of the method": ({"method": {"name": "ncc", "metric": "euclidean"}}, "euclidean"),
    "words": ({"drop_words": ("red", "green")}, "without the words red, green"),
    "placebo": ({"placebo": True}, "no placebo"),
}


@pytest.fixture(scope="session")
def differing(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For each thing a folder of two runs that differ in it."""
    folder = tmp_path_factory.mktemp("differing")
    found = {}
    for thing, (changed, _) in ONE_THING.items():
        found[thing] = folder / thing
        for own in ({}, changed):
            common = {**untrained(folder), "method": "ncc", "shot": 1, "runs_dir": folder / thing}
            api.run(**{**common, **own})
    return found


def _words(figure: FigureDeclaration) -> str:
    """Return every text that the figure shows."""
    found = [figure.x_axis, figure.y_axis]
    for panel in figure.panels:
        found.append(panel.title)
        for series in panel.series:
            found += [series.name, *(f"{point.x} {point.label}" for point in series.points)]
    return " | ".join(found)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("thing", ONE_THING)
def test_what_runs_differ_in_stands_beside_their_values(
    thing: str, differing: dict[str, Path]
) -> None:
    said = ONE_THING[thing][1]
    names = ["arms", "accuracy", "by-arm", "intervals", "shots", "ablations"]
    names += ["task-accuracies", "pairs"] if "of the" in thing and "tasks" not in thing else []
    for name in names:
        assert said in _words(figure(name, differing[thing])), name


def test_a_caption_has_what_is_certain_and_not_what_is_suspected(
    methods: dict[str, api.Run], tmp_path: Path
) -> None:
    certain, suspected = "contamination: seen", "possible contamination: perhaps seen"
    folders = [shutil.copytree(run.folder, tmp_path / name) for name, run in methods.items()]
    for folder, run in zip(folders, methods.values(), strict=True):
        dataclasses.replace(run.record, cautions=(certain, suspected)).save(folder)
    told = " ".join(figure("arms", folders).notes).lower()
    assert certain in told
    assert "perhaps seen" not in told


@pytest.mark.parametrize(("kind", "made"), [("renderer", "figure arms"), ("table", "table")])
def test_another_plugin_writes_files_of_its_own_ending(
    kind: str, made: str, fsf: Fsf, one_shot: list[Path], tmp_path: Path
) -> None:
    assert fsf("plugins", "new", kind, "mine", "--script").returncode == 0
    endings = {"renderer": "json", "table": "txt"}
    asked = (*made.split(), str(one_shot[0]), "--output", f"made.{endings[kind]}")
    refused = fsf(*asked)
    assert (refused.returncode, "must end in" in refused.stderr) == (2, True)
    done = fsf(*asked, "--plugin", "mine.py")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"made.{endings[kind]}").stat().st_size > 100
