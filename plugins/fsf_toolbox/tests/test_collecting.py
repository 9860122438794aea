"""`fsf results add`: what is copied, what is refused, and the page of a folder of results."""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import fsframework
from fsf_tools import add_results
from fsframework.values import digest_of
from tests.conftest import Fsf
from tests.toys import image_folder

SETTING: dict[str, Any] = {
    "dataset": {"name": "planted", "n_per_class": 20, "size": 16}, "way": 3, "shot": 1,
    "queries": 4, "tasks": 10, "image_size": 16, "training": {"epochs": 0}, "progress": False,
}  # fmt: skip


@pytest.fixture
def runs() -> list[fsframework.Run]:
    return [fsframework.run(method=method, **SETTING) for method in ("ncc", "logistic")]


def changed(run: fsframework.Run, name: str, **changes: Any) -> Path:
    """A copy of a run whose record, sealed again, says something else."""
    folder = run.folder.with_name(name)
    shutil.copytree(run.folder, folder)
    dataclasses.replace(run.record, **changes).save(folder)
    return folder


def seal(file: Path, raw: dict[str, Any]) -> None:
    """Write a record with the digest of its values, whatever these are."""
    raw.pop("digest", None)
    digest = digest_of("record", json.dumps(raw, sort_keys=True))
    file.write_text(json.dumps({**raw, "digest": digest}))


def test_runs_are_copied_whole_and_once_and_shown_with_how_to_submit(
    fsf: Fsf, tmp_path: Path, runs: list[fsframework.Run]
) -> None:
    added = fsf("results", "add", *(run.name for run in runs), "--to", "results")
    assert added.returncode == 0, added.stderr
    folder = tmp_path / "results"
    assert {one.name for one in folder.iterdir()} == {*(run.name for run in runs), "SUBMIT.md"}
    for run in runs:
        copy = fsframework.load_run(folder / run.name)
        assert copy.estimates == run.estimates
        assert copy.outcomes["biased"].digest == run.outcomes["biased"].digest
        assert not (copy.folder / "weights.safetensors").exists()
    first = min(run.name for run in runs)
    how = f"-o dataset.n_per_class=20 -o dataset.size=16 --task-file {first}\n"
    assert f"--dataset planted {how}" in (folder / "SUBMIT.md").read_text()
    (folder / "SUBMIT.md").write_text("Write to the birds group.\n")
    again = fsf("results", "add", "runs", "--to", "results")
    assert again.returncode == 0, again.stderr
    assert len(fsframework.runs(folder)) == 2
    page = fsf("report", "results", "--section", "leaderboard", "--section", "submission")
    assert page.returncode == 0, page.stderr
    text = (tmp_path / "report.html").read_text()
    file = f"{runs[0].name}/outcomes-biased.parquet"
    for told in ("Write to the birds group.", f'href="results/{file}"', ">letter<"):
        assert told in text
    (tmp_path / "id_rsa").write_text("a key\n")
    (folder / "SUBMIT.md").unlink()
    (folder / "SUBMIT.md").symlink_to(tmp_path / "id_rsa")
    page = fsf("report", "results", "--section", "submission", "--output", "linked.html")
    assert "a key" not in (tmp_path / "linked.html").read_text(), page.stderr
    alone = fsf("report", runs[0].name, "--section", "submission", "--output", "alone.html")
    assert alone.returncode == 0, alone.stderr
    assert "birds group" not in (tmp_path / "alone.html").read_text()


def test_what_is_collected_names_no_folder_of_the_machine(tmp_path: Path) -> None:
    images = image_folder(tmp_path / "images", "abc", each=8)
    words = tmp_path / "words.csv"
    keys = [f"{label}/{i}.png" for label in "abc" for i in range(8)]
    words.write_text("\n".join(["key,words", *(f"{key},{key[0]}{key[2]}" for key in keys)]))
    data: dict[str, Any] = {"dataset": f"folder:{images}", "split": "all", "progress": False}
    shape: dict[str, Any] = {"way": 3, "shot": 1, "queries": 4, "tasks": 10, "sampler": "random"}
    untrained: dict[str, Any] = {"training": {"epochs": 0}, "image_size": 16}
    drawn = fsframework.run(method="ncc", attributes=words, **data, **shape, **untrained)
    runs = [
        drawn,
        fsframework.run(
            method="logistic", attributes=words, task_file=drawn.folder, **data, **untrained
        ),
        fsframework.run(model=drawn.folder, attributes=words, **data, **{**shape, "tasks": 9}),
    ]
    told = add_results([run.folder for run in runs], tmp_path / "results")
    assert set(told.values()) == {""}
    for run in runs:
        assert str(tmp_path) in (run.folder / "run.json").read_text()
        assert str(tmp_path) not in (tmp_path / "results" / run.name / "run.json").read_text()
    copies = list(fsframework.runs(tmp_path / "results"))
    assert {one.record.settings["task_file"] for one in copies} == {None, drawn.name}
    assert {one.record.settings["model"] for one in copies} == {None, drawn.name}
    told = add_results([tmp_path / "results"], tmp_path / "others")
    assert told == {run.name: "" for run in runs}


def test_a_run_that_does_not_check_is_refused_in_a_sentence_of_its_own(
    fsf: Fsf, tmp_path: Path, runs: list[fsframework.Run]
) -> None:
    one, other = runs
    gap = one.record.estimates["wacc-gap"]
    better = {**one.record.estimates, "wacc-gap": dataclasses.replace(gap, value=gap.low)}
    changed(one, "better", estimates=better)
    changed(one, "older", statistics={**one.record.statistics, "wacc": "0" * 64})
    changed(one, "begun", status="unfinished")
    changed(one, "named", given={**one.record.given, "task_file": "cub/fewstab-5w1s-v1"})
    mixed = changed(one, "mixed")
    shutil.copyfile(other.folder / "outcomes-biased.parquet", mixed / "outcomes-biased.parquet")
    done = fsf("results", "add", "runs", "--to", "results")
    assert done.returncode == 2
    refused = [line for line in done.stderr.splitlines() if line.startswith("refused: ")]
    assert len(refused) == 5
    for told in ("wacc-gap", "another version", "is unfinished", "cub/fewstab-5w1s-v1",
                 "mixed/outcomes-biased.parquet"):  # fmt: skip
        assert sum(told in line for line in refused) == 1, (told, refused)
    names = {one.name for one in (tmp_path / "results").iterdir()}
    assert names == {one.name, other.name, "SUBMIT.md"}
    damaged = json.loads((one.folder / "run.json").read_text())
    (one.folder / "run.json").write_text(json.dumps({**damaged, "created": "now"}))
    assert fsf("results", "add", str(one.folder), "--to", "results").returncode == 2
    assert add_results([other.folder], tmp_path / "results") == {other.name: ""}


def test_nothing_that_was_given_is_passed_over(
    fsf: Fsf, tmp_path: Path, runs: list[fsframework.Run]
) -> None:
    one, other = runs
    places = [tmp_path / name / one.name for name in ("first", "second")]
    for place in places:
        shutil.copytree(one.folder, place)
    (places[0] / "outcomes-biased.parquet").write_bytes(b"x")
    shutil.copytree(other.folder, tmp_path / "second/unread")
    (tmp_path / "second/unread/run.json").write_text("{")
    (tmp_path / "empty").mkdir()
    done = fsf("results", "add", "first", "second", "empty", "none", "--to", "results")
    assert done.returncode == 2
    refused = [line for line in done.stderr.splitlines() if line.startswith("refused: ")]
    for told in ("first/", "second/unread", "empty", "'none'"):
        assert sum(told in line for line in refused) == 1, (told, refused)
    assert {one.name, "SUBMIT.md"} == {one.name for one in (tmp_path / "results").iterdir()}
    page = fsf("report", "second", "--section", "leaderboard")
    assert (page.returncode, "second/unread" in page.stderr) == (0, True)
    for again in (changed(one, "renamed"), places[1]):
        told = add_results([again], tmp_path / "results")
        assert bool(told[again.name]) == (again.name == "renamed")
    (tmp_path / "file").touch()
    assert fsf("results", "add", str(places[1]), "--to", "file").returncode == 2


def test_what_a_record_says_is_what_its_files_give(
    tmp_path: Path, runs: list[fsframework.Run]
) -> None:
    record = runs[0].record
    arm, gap = record.arms["biased"], record.estimates["wacc-gap"]
    fewer = {name: one for name, one in record.estimates.items() if name != "wacc-gap"}
    shots = {**record.arms, "biased": dataclasses.replace(arm, n_shot=5)}
    forged = [
        changed(runs[0], "arms", arms=shots),
        changed(runs[0], "none", statistics={}),
        changed(runs[0], "fewer", estimates=fewer),
        changed(runs[0], "tasks", estimates={
            **record.estimates, "wacc-gap": dataclasses.replace(gap, n_tasks=5000)}),
        changed(runs[0], "images", digests={**record.digests, "pool": "0" * 64}),
    ]  # fmt: skip
    told = add_results(forged, tmp_path / "results")
    assert all(told.values())
    assert not list((tmp_path / "results").glob("*/run.json"))


OWN = """
from fsframework.interfaces import FewShotMethod
class Mine(FewShotMethod):
    def scores(self, support, query):
        return -(query[:, :, None] - support.mean(2)[:, None]).square().sum(-1)
"""


def test_nothing_but_what_a_record_lists_is_copied_and_no_link_is_followed(tmp_path: Path) -> None:
    secret, plugin = tmp_path / "id_rsa", tmp_path / "mine.py"
    secret.write_text("a key")
    plugin.write_text(OWN)
    run = fsframework.run(method="mine", plugins=[plugin], **SETTING)
    [code] = (run.folder / "code").iterdir()
    for name in ("outcomes-x.parquet", "tasks-x.safetensors", "code/evil.py"):
        (run.folder / name).symlink_to(secret)
    (run.folder / "code/large.bin").write_bytes(bytes(2**20))
    assert add_results([run.folder], tmp_path / "results") == {run.name: ""}
    copies = {one for one in (tmp_path / "results" / run.name).rglob("*") if one.is_file()}
    listed = {"run.json", "images.parquet", "words.parquet", code.name}
    arms = {f"{arm}-{end}" for arm in ("tasks", "outcomes") for end in ("random", "biased")}
    assert {one.name for one in copies} - listed == {
        f"{name}.{'parquet' if name[0] == 'o' else 'safetensors'}" for name in arms
    }
    assert fsframework.load_run(tmp_path / "results" / run.name).outcomes.keys() == run.tasks.keys()
    assert not any(one.is_symlink() or one.read_bytes() == b"a key" for one in copies)

    def link(place: Path) -> None:
        there = tmp_path / f"moved-{place.name}"
        place.rename(there)
        place.symlink_to(there)

    for number, name in enumerate(
        ("outcomes-biased.parquet", "tasks-biased.safetensors", "images.parquet", "words.parquet",
         f"code/{code.name}", "code", "."),
    ):  # fmt: skip
        theirs = tmp_path / f"theirs/linked-{number}"
        shutil.copytree(run.folder, theirs, symlinks=True)
        link(theirs / name)
        (told,) = add_results([theirs], tmp_path / "others").values()
        assert "link" in told, name
    theirs = tmp_path / "theirs/edited"
    shutil.copytree(run.folder, theirs, symlinks=True)
    (theirs / "code" / code.name).write_text("a key")
    (told,) = add_results([theirs], tmp_path / "others").values()
    assert code.name in told
    assert not list((tmp_path / "others").glob("*/*"))


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (("components", "dataset", "name"), "planted; rm -rf ~ #"),
        (("components", "method", "name"), "`ls`"),
        (("plugins", 0, "kind"), "a b"),
    ],
)
def test_a_name_that_no_component_has_is_refused_where_the_record_is_read(
    fsf: Fsf, tmp_path: Path, place: tuple[Any, ...], name: str
) -> None:
    run = fsframework.run(method="ncc", **SETTING)
    raw = json.loads((run.folder / "run.json").read_text())
    node = raw
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = name
    seal(run.folder / "run.json", raw)
    done = fsf("results", "add", run.name, "--to", "results")
    assert done.returncode == 2
    assert "run.json: cannot be read" in done.stderr
    assert not (tmp_path / "results").exists() or not list((tmp_path / "results").iterdir())


def test_the_command_to_submit_is_safe_to_run_whatever_options_and_folders_are(
    tmp_path: Path,
) -> None:
    odd = "a b'; touch evil #"
    run = fsframework.run(method="ncc", **SETTING)
    data = dataclasses.replace(
        run.record.components["dataset"],
        options={**run.record.components["dataset"].options, "note": odd},
        origins={"note": "call"},
    )
    forged = changed(run, "forged", components={**run.record.components, "dataset": data})
    assert add_results([forged], tmp_path / "results") == {"forged": ""}
    [line] = [one for one in (tmp_path / "results/SUBMIT.md").read_text().splitlines()
              if one.startswith("    fsf run")]  # fmt: skip
    assert f"dataset.note={odd}" in shlex.split(line, comments=True)
    renamed = run.folder.with_name("x; touch evil")
    run.folder.rename(renamed)
    assert "rename" in add_results([renamed], tmp_path / "results")[renamed.name]
