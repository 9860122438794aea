"""Reports of finished, unfinished and different runs, from Python and from the command line."""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import fsf_reports
import fsf_statistics
import fsframework
from fsf_reports import (
    DataAndWords,
    FailingSlices,
    Figures,
    Findings,
    HarmfulPairs,
    HtmlPage,
    Leaderboard,
    Notes,
    Provenance,
    Submission,
    Tasks,
    Training,
)
from fsf_reports.interfaces import Section
from fsf_reports.testing import toy_runs
from fsf_reports.values import (
    FigureDeclaration,
    Gallery,
    Listing,
    Quantity,
    TableDeclaration,
    TaskBrowser,
    Text,
    table_of_headline,
)
from fsf_statistics import labelled_results
from fsframework.components.registry import Registry
from fsframework.errors import OptionError, RecordError
from fsframework.records import PluginRecord
from fsframework.testing import parametrize_with_checks

QUICK: dict[str, Any] = {
    "dataset": {"name": "planted", "n_per_class": 24, "size": 16}, "image_size": 16, "way": 4,
    "sampler": "fewstab", "shot": 2, "queries": 3, "progress": False,
}  # fmt: skip
Runs = dict[str, fsframework.Run]
SECTIONS = (
    DataAndWords, FailingSlices, Figures, Findings, HarmfulPairs, Leaderboard, Notes, Provenance,
    Submission, Tasks, Training,
)  # fmt: skip


@parametrize_with_checks([HtmlPage, *(kind for kind in SECTIONS if kind is not HarmfulPairs)])
def test_conformance(make, check):
    check(make)


@pytest.mark.slow
@parametrize_with_checks([HarmfulPairs])
def test_conformance_of_what_takes_long(make, check):
    check(make)


class Failing(Section):
    """Fails."""

    title = "Never shown"

    def blocks(self, runs):
        yield Text(("first",))
        raise ZeroDivisionError("no such <b>luck</b>")


def _texts(report: fsf_reports.Report, name: str) -> str:
    [part] = [part for part in report.page.parts if part.name == name]
    return " ".join(" ".join(b.paragraphs) for b in part.blocks if isinstance(b, Text))


def test_a_failing_section_becomes_a_notice(methods: Runs) -> None:
    made = fsf_reports.report(methods["ncc"], sections=["findings", Failing], progress=False)
    assert [part.title for part in made.page.parts] == ["What was found", "Never shown"]
    (problem,) = made.problems.values()
    assert "ZeroDivisionError: no such <b>luck</b>" in problem
    assert "ZeroDivisionError: no such &lt;b&gt;luck&lt;/b&gt;" in made.html
    assert "<b>luck" not in made.html


@pytest.mark.parametrize("name", ["ncc", "logistic", "protonet"])
def test_one_run_is_told_in_plain_words_with_its_limits(methods: Runs, name: str) -> None:
    estimates = methods[name].estimates
    made = fsf_reports.report(methods[name], sections=["findings"], progress=False)
    told = _texts(made, "findings")
    assert told.startswith(
        f"Does {name} answer biased 3-way 1-shot tasks of planted worse than random ones?"
    )
    near = estimates["wacc-random"].near_guessing or estimates["acc-random"].near_guessing
    gap = estimates["wacc-gap"]
    points = f"{100 * gap.value:.1f} ± {100 * gap.half_width:.1f} points".replace("-", "−")
    verdict = f"{name} loses {points} of worst-class accuracy."
    assert (verdict in told) == (not near)
    assert ("its gap says nothing" in told) == near
    assert "hold for these images only" in told
    assert ("Trained once" in told) == bool(methods[name].record.training.history)
    assert made.problems == {}


def test_unfinished_and_different_runs_are_kept_apart(
    small_runs: Path, methods: Runs, tmp_path: Path
) -> None:
    folder = shutil.copytree(small_runs, tmp_path / "runs")
    (folder / "begun").mkdir()
    dataclasses.replace(methods["ncc"].record, status="unfinished").save(folder / "begun")
    made = fsf_reports.report(folder, progress=False)
    labels = [run.label for run in made.page.runs]
    assert "begun" in labels[0]
    assert len(set(labels)) == 5
    told = _texts(made, "findings")
    assert "Values of the 2 sets of tasks are not comparable" in told
    assert f"Left out: {labels[0]} (not finished)." in told
    [board] = [part for part in made.page.parts if part.name == "leaderboard"]
    tables = {b.name for b in board.blocks if isinstance(b, TableDeclaration)}
    shapes = [f"planted, 3-way {shot}-shot" for shot in (1, 2)]
    assert {f"Leaderboard: {shape}" for shape in shapes} <= tables
    [found] = [part for part in made.page.parts if part.name == "findings"]
    assert [b.title for b in found.blocks if isinstance(b, Text)][1:3] == shapes
    [first] = [b for b in board.blocks if getattr(b, "name", "") == f"Leaderboard: {shapes[0]}"]
    assert first.columns[0] == "gap"
    assert {row[0] for row in first.rows} == set(methods)
    [tasks] = [part for part in made.page.parts if part.name == "tasks"]
    assert [b.runs for b in tasks.blocks if isinstance(b, TaskBrowser)] == [(1, 2, 3, 4)]


def test_a_caution_stands_once_in_the_notes(methods: Runs, tmp_path: Path) -> None:
    caution = "contamination: the weights saw the classes"
    for name, run in methods.items():
        folder = shutil.copytree(run.folder, tmp_path / "runs" / name)
        dataclasses.replace(run.record, cautions=(caution,)).save(folder)
    made = fsf_reports.report(tmp_path / "runs", progress=False)
    assert made.html.count(caution) == 1
    assert caution in _texts(made, "notes")
    assert "in the notes at the end" in _texts(made, "findings")
    alone = fsf_reports.report(methods["ncc"], progress=False, sections=["leaderboard"]).html
    assert 'class="whisker' not in alone
    assert "<details>" in alone


def test_only_unfinished_runs() -> None:
    first = next(iter(Findings().blocks(toy_runs(2, finished=False))))
    assert isinstance(first, Text)
    assert "None of these runs has outcomes" in first.paragraphs[0]


@pytest.mark.slow
def test_two_hundred_runs_leave_out_what_does_not_fit() -> None:
    runs = toy_runs(200)
    blocks = [*Tasks(most_answers=50 * runs[0].outcomes["plain"].predictions.size).blocks(runs)]
    assert blocks[-1] == TaskBrowser(tuple(range(25)))
    assert isinstance(blocks[1], Text)
    assert "175 further runs" in blocks[1].paragraphs[0]
    figures = [b for b in Figures().blocks(runs) if isinstance(b, FigureDeclaration)]
    assert len(figures[-1].points) == 60
    assert "140 more are in the table" in figures[-1].title


def test_harmful_pairs_are_those_of_the_public_function() -> None:
    run = fsframework.run(method="ncc", **QUICK, tasks=600, training={"epochs": 0})
    made = fsf_reports.report(run, sections=["harmful-pairs"], progress=False)
    pairs = fsf_statistics.harmful_pairs(run)
    tables = [b for b in made.page.parts[0].blocks if isinstance(b, TableDeclaration)]
    shown = {
        (entry.row[1:], entry.measured.value)
        for table in tables
        for entry in table.entries
        if entry.column == "cost"
    }
    assert len(shown) > 2
    assert shown == {((row.class_name, row.words), 100 * row.estimate.value) for row in pairs.rows}
    by_names = {(row.class_name, row.words, row.question): row for row in pairs.rows}
    for table in tables:
        question = "tied" if "tied" in table.name else "present"
        certain = [by_names[*row[1:], question].share_wrong for row in table.rows]
        assert certain == sorted(certain)
        first = by_names[*table.rows[0][1:], question]
        headlined = f"{first.class_name} with {first.words}, {100 * first.estimate.value:.1f} ± "
        narrow = first.estimate.half_width < first.estimate.value
        assert (headlined in _texts(made, "harmful-pairs")) == narrow


def test_failing_slices_are_those_that_were_asked_for() -> None:
    run = fsframework.run(method="ncc", **QUICK, tasks=400, training={"epochs": 0})
    made = fsf_reports.report(run, sections=["failing-slices"], progress=False)
    assert set(made.problems) == {"failing-slices"}
    found = fsf_statistics.slices(run, level=0.01)  # even an excess by chance is shown
    made = fsf_reports.report(run, sections=["failing-slices"], progress=False)
    blocks = made.page.parts[0].blocks
    [table] = [block for block in blocks if isinstance(block, TableDeclaration)]
    shown = [entry.measured.value for entry in table.entries if entry.column == "excess"]
    assert shown == [100 * row.estimate.value for row in found.rows]
    assert shown
    first = next(block for block in blocks if isinstance(block, Gallery))
    inside, others = ({run.pool.keys[i] for i in group.images} for group in first.groups)
    assert inside <= {*found.rows[0].images}
    assert not others & {*found.rows[0].images}
    assert 0 < len(inside) <= 6


def test_what_sections_declare_is_what_the_public_functions_return(methods: Runs) -> None:
    run, other = methods["ncc"], methods["logistic"]
    made = fsf_reports.report([run, other], progress=False)
    tables, figures = (
        {b.name: b for part in made.page.parts for b in part.blocks if isinstance(b, kind)}
        for kind in (TableDeclaration, FigureDeclaration)
    )
    opened = {one.label: one for one in made.page.runs}
    headline = fsf_statistics.headline({label: one.outcomes for label, one in opened.items()})
    shown, wanted_entries = (
        sorted((e.row[:1], e.column, repr(e.measured)) for e in table.entries)
        for table in (tables["Leaderboard"], table_of_headline(headline))
    )
    assert shown == wanted_entries
    assert tables["Leaderboard"].row_names == ("method", "letter")
    for name, own in (("ncc", run), ("logistic", other)):
        wanted = [repr(Quantity.of(one)) for one in own.estimates.values()]
        entries = tables["Every measure"].entries
        assert [repr(e.measured) for e in entries if e.row == (name,)] == wanted
        [point] = [p for p in figures["wAcc gap"].points if p.x == name]
        assert repr(point.y) == repr(Quantity.of(own.estimates["wacc-gap"]))
        [point] = [p for p in figures["wAcc-A against wAcc-R"].points if p.label == name]
        assert repr(point.x) == repr(Quantity.of(own.estimates["wacc-random"]))
        assert repr(point.y) == repr(Quantity.of(own.estimates["wacc-biased"]))
    sizes = dict(zip(run.pool.class_names, run.pool.class_sizes, strict=True))
    images = {e.row[0]: e.measured.value for e in tables["Classes"].entries if e.column == "images"}
    assert images == sizes
    used = {e.row[0]: e.measured.value for e in tables["Arms"].entries if e.column == "images used"}
    assert used == {arm: tasks.n_images for arm, tasks in run.tasks.items()}


def test_runs_of_several_seeds_are_one_method(two_strengths: list[Path]) -> None:
    groups = fsframework.Runs(map(fsframework.load_run, two_strengths)).over_seeds()
    [seeds] = [group for group in groups if len(group.seeds) == 2]
    made = fsf_reports.report([*seeds.runs], progress=False)
    assert [run.label for run in made.page.runs] == ["ncc seed 0", "ncc seed 1"]
    [block] = [b for b in Findings().blocks(made.page.runs) if b.weight == "lead"]
    assert block.paragraphs[0].startswith("Does ncc (2 trainings) answer")
    figures = [b for b in Figures().blocks(made.page.runs) if isinstance(b, FigureDeclaration)]
    assert [len(figure.points) for figure in figures] == [1, 1]


HOSTILE = ("<script>alert(1)<|script>", "\"q\" & 'q' $x_1$ {a} #5%", "שלום 🐕", "X" * 200)


def test_any_names_of_classes_words_and_methods_stay_text_everywhere(
    tmp_path: Path, parsed: Any, fsf: Any
) -> None:
    rows = ["key,words"]
    for number, name in enumerate(HOSTILE):
        for i in range(12):
            file = tmp_path / "data" / name / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (16, 16), (20 * i, 60 * number, 9)).save(file)
            word = HOSTILE[(number + i) % 4].replace('"', '""')
            rows.append(f'"{name.replace(chr(34), 2 * chr(34))}/{i}.png","word {word}"')
    (tmp_path / "words.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    run = fsframework.run(
        method="ncc", dataset=f"folder:{tmp_path / 'data'}", attributes=tmp_path / "words.csv",
        training={"epochs": 0}, sampler="fewstab", way=3, shot=1, queries=2, tasks=12,
        image_size=16, progress=False,
    )  # fmt: skip

    made = fsf_reports.report(run, progress=False)
    assert made.problems == {}
    page = parsed(made.html.partition("<main")[2].partition("</main>")[0])
    assert "script" not in page.tags
    for name in HOSTILE:
        assert name in page.text
        assert f"word {name.lower()}" in page.text
    things = (run, run.estimates, run.tasks, fsf_statistics.headline({HOSTILE[1]: run}),
              *(fsf_statistics.breakdown(run, by) for by in ("class", "pair")))  # fmt: skip
    shown = parsed(*(thing._repr_html_() for thing in things))
    assert shown.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p", "b"}
    printed = fsf("table", str(run.folder), "--of", "classes")
    assert printed.returncode == 0, printed.stderr
    assert all(name in printed.stdout for name in HOSTILE)


def test_images_are_read_as_the_model_saw_them_without_those_that_are_gone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for i in range(6):
            file = tmp_path / "data" / name / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (20, 20), (40 * i, 0, 0)).save(file)
    run = fsframework.run(
        method="ncc", dataset=f"folder:{tmp_path / 'data'}", training={"epochs": 0},
        sampler="random", way=2, shot=1, queries=2, tasks=4, progress=False, image_size=16,
    )  # fmt: skip
    used = [int(i) for i in run.tasks["random"].images[0]]
    assert {image.shape for image in run.images(used).values()} == {(16, 16, 3)}
    gone = run.pool.keys[used[0]]
    (tmp_path / "data" / gone).unlink()
    found = run.images(used)
    assert used[0] not in found
    assert len(found) == len(used) - 1


def test_the_command_of_a_run_repeats_it(fsf: Any) -> None:
    run = fsframework.run(
        method={"name": "r2d2", "initial_alpha": 20.0}, seed=3, statistics=["acc", "wacc"],
        tasks=20, training={"epochs": 1, "steps": 2}, **QUICK,
    )  # fmt: skip
    runs = fsf_reports.report(run, sections=["provenance"], progress=False).page.runs
    listings = {b.title: b for b in Provenance().blocks(runs) if isinstance(b, Listing)}
    words = shlex.split(listings["Command line"].text)
    assert words[0] == "fsf"
    done = fsf(*words[1:], "--json")
    assert done.returncode == 0, done.stderr
    assert '"reused": true' in done.stdout
    code = listings["Python"].text
    assert code.splitlines()[:2] == ["import fsf_reports", "import fsframework as fsf"]
    compile(code, "listing", "exec")
    assert "Benchmarking Spurious Bias" in listings["To cite"].text


def test_the_command_cites_what_a_run_used(fsf: Any, methods: Runs) -> None:
    done = fsf("cite", methods["protonet"].folder)
    assert done.returncode == 0, done.stderr
    entries = re.findall(r"^@\w+\{(\w+),$", done.stdout, re.MULTILINE)
    assert len(entries) == len(set(entries))
    assert {"fsframework", "snell2017prototypical", "zheng2024benchmarking"} <= set(entries)
    assert "author = {Jake Snell and Kevin Swersky and Richard Zemel}" in done.stdout
    assert "(NeurIPS)" in done.stdout
    assert "baseline" not in done.stdout
    assert "dataset planted" in done.stdout  # has no publication, and is named
    assert fsf("cite", "no-such-run").returncode == 2


def test_a_record_chooses_no_module_to_import_and_no_command(
    fsf: Any, methods: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    record = methods["ncc"].record
    evil = [PluginRecord("method", name, "evil:Mine", "fsf-x", "1") for name in ("ncc", "mine")]
    given = {"method": {"name": "ncc", "x; touch made #": "y"}, "dataset": "planted\ntouch made"}
    stranger = tmp_path / "runs" / "theirs"
    dataclasses.replace(record, plugins=tuple(evil), given=given).save(stranger)
    assert fsf("cite", "theirs").returncode == 0
    runs = fsf_reports.report(fsframework.load_run(stranger), progress=False,
                              sections=["provenance"]).page.runs  # fmt: skip
    [command] = [
        b.text for b in Provenance().blocks(runs) if getattr(b, "title", "") == "Command line"
    ]
    assert "touch" not in shlex.split(command)
    assert not [*tmp_path.rglob("imported"), *tmp_path.rglob("made")]


def test_first_party_sources_have_full_names(fsf: Any, methods: Runs, tmp_path: Path) -> None:
    """The publication of a new plugin needs an entry in ``references.bib``."""
    record, registry = methods["ncc"].record, Registry()
    kinds = ("method", "backbone", "dataset", "sampler", "detector", "view", "statistic")
    every = [plugin for kind in kinds for plugin in registry.plugins(kind)]
    told = tuple(
        PluginRecord(one.kind, one.name, one.target, one.distribution, one.version)
        for one in every
        if one.distribution.startswith("fsf-")
    )
    assert len(told) > 80
    dataclasses.replace(record, plugins=told).save(tmp_path / "runs" / "all")
    done = fsf("cite", "all")
    authors = re.findall(r"^  author = \{(.*)\},$", done.stdout, re.MULTILINE)
    assert len(authors) > 80
    assert [one for one in authors if not all(" " in name for name in one.split(" and "))] == []
    assert "% detector blip\n@inproceedings{li2022blip," in done.stdout
    assert "% detector vit-gpt2\n@misc{connect2022gpt2," in done.stdout


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ("tf_efficientnet_lite0", "tan2019efficientnet"),
        ("resnet50.a1_in1k", "he2016deep"),
        ("vit_small_patch14_dinov2.lvd142m", "dosovitskiy2021image"),
        ("convnext_tiny", "liu2022convnet"),
        ("mobilenetv3_small_100", "howard2019searching"),
    ],
)
def test_the_family_of_a_network_and_its_training_images_are_cited(
    fsf: Any, methods: Runs, tmp_path: Path, model: str, key: str
) -> None:
    record = methods["ncc"].record
    backbone = dataclasses.replace(
        record.components["backbone"], name="timm", options={"model": model}
    )
    changed = dataclasses.replace(
        record,
        components={**record.components, "backbone": backbone},
        plugins=(
            *record.plugins,
            PluginRecord("backbone", "timm", "fsf_timm:Timm", "fsf-timm", "1"),
        ),
        data=dataclasses.replace(record.data, pretrained_on=("imagenet-1k",)),
    )
    changed.save(tmp_path / "runs" / "own")
    done = fsf("cite", "own")
    assert done.returncode == 0, done.stderr
    entries = re.findall(r"^@\w+\{(\w+),$", done.stdout, re.MULTILINE)
    assert {key, "wightman2019pytorch", "deng2009imagenet"} <= set(entries)


def test_the_method_of_a_stage_is_cited_only_if_it_trained(fsf: Any) -> None:
    options = {**QUICK, "tasks": 4, "name": "run"}
    fsframework.run(method="ncc", training={"epochs": 0, "method": "baseline"}, **options)
    assert "baseline" not in fsf("cite", "run").stdout
    options["name"] = "trained"
    one = {"epochs": 1, "steps": 1, "method": "baseline"}
    fsframework.run(method="ncc", training=one, **options)
    assert "method baseline" in fsf("cite", "trained").stdout


def test_commands_take_labels(fsf: Any, methods: Runs) -> None:
    run = methods["ncc"].folder
    assert fsf("cite", f"ours={run}").stdout == fsf("cite", run).stdout
    page = fsf_reports.report(labelled_results([f"ours={run}"], run.parent), progress=False).page
    assert [one.label for one in page.runs] == ["ours"]
    assert page.title.startswith("ours on ")
    done = fsf("report", f"ours={run}", "--section", "findings")
    assert done.returncode == 0, done.stderr


def test_unfinished_runs_and_files_of_ones_own_are_not_cited(
    fsf: Any, methods: Runs, tmp_path: Path
) -> None:
    record = methods["ncc"].record
    own = dataclasses.replace(record.plugins[0], distribution="a file", version="-")
    dataclasses.replace(record, status="unfinished").save(tmp_path / "runs" / "begun")
    assert "begun is not finished" in fsf("cite", "begun").stderr
    dataclasses.replace(record, plugins=(own,)).save(tmp_path / "runs" / "done")
    done = fsf("cite", "runs")
    assert done.returncode == 0, done.stderr
    assert "begun" in done.stderr
    assert "begun" not in done.stdout
    assert "a file" not in done.stdout


def test_the_command_writes_a_page_and_refuses_what_it_cannot(
    fsf: Any, methods: Runs, tmp_path: Path
) -> None:
    run = methods["ncc"].folder
    done = fsf("report", run, "--section", "findings", "--section", "tasks")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"report\.html: \d+\.\d MB\n", done.stdout)
    again = fsf("report", run)
    assert again.returncode == 2
    assert "report.html" in again.stderr
    for arguments, told in (
        (("nowhere", "--force"), "no run 'nowhere'"),
        ((run, "--output", "report.pdf"), "must end in .html"),
        ((run, "--section", "task", "--force"), "did you mean"),
    ):
        refused = fsf("report", *arguments)
        assert refused.returncode == 2
        assert told in refused.stderr
        assert "Traceback" not in refused.stderr
    with pytest.raises(OptionError, match="at least one run"):
        fsf_reports.report([])
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordError, match="holds no runs"):
        fsf_reports.report(tmp_path / "empty")
