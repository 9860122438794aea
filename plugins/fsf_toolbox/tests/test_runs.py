"""`fsf runs`: what tells runs apart, in which order, and their removal."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fsframework
from fsf_tools import remove_run
from fsframework.errors import RecordError
from fsframework.records import RunRecord
from tests.conftest import Fsf
from tests.toys import image_folder

RUN = (
    "run", "--json", "--method", "ncc", "--sampler", "random", "--way", "2", "--shot", "1",
    "--queries", "2", "--image-size", "16", "-o", "training.epochs=0",
    "-o", "dataset.n_per_class=8", "-o", "dataset.size=16",
)  # fmt: skip


@pytest.fixture
def three(fsf: Fsf) -> None:
    for name, seed, tasks in (("b-two", 2, 5), ("a-ten", 10, 6), ("c-zero", 0, 7)):
        done = fsf(*RUN, "--name", name, "--seed", seed, "--tasks", tasks)
        assert done.returncode == 0, done.stderr


def names(fsf: Fsf, *arguments: str) -> list[str]:
    done = fsf("runs", "list", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return [row["run"] for row in json.loads(done.stdout)]


@pytest.mark.usefixtures("three")
def test_runs_are_sorted_by_numbers_as_numbers_and_by_estimates_from_the_largest(
    fsf: Fsf, tmp_path: Path
) -> None:
    assert names(fsf) == ["a-ten", "b-two", "c-zero"]
    assert names(fsf, "--sort", "task-seed") == ["c-zero", "b-two", "a-ten"]
    assert names(fsf, "--sort", "-training-seed") == ["a-ten", "b-two", "c-zero"]
    rows = json.loads(fsf("runs", "list", "--json", "--sort", "acc-random").stdout)
    values = [row["estimates"]["acc-random"]["value"] for row in rows]
    assert values == sorted(values, reverse=True)
    assert [row["tasks"] for row in json.loads(fsf("runs", "list", "--json").stdout)] == [6, 5, 7]
    shown = fsf("runs", "list").stdout.splitlines()[0].split()
    assert {"dataset", "way", "shot", "training-seed"} <= set(shown)
    record = RunRecord.load(tmp_path / "runs/c-zero")
    usage = {"requests": 1200, "cost": 0.25}
    dataclasses.replace(record, usage=usage).save(tmp_path / "runs/c-zero")
    shown_run = fsf("runs", "show", "c-zero").stdout.split()
    assert shown_run[shown_run.index("requests") + 1] == "1,200"
    assert "requests" not in fsf("runs", "show", "a-ten").stdout
    (tmp_path / "runs/b-two/run.json").write_text("{")
    listed = fsf("runs", "list", "--columns", "run,status,task-seed")
    assert listed.stdout.splitlines()[0].split() == ["run", "status", "task-seed"]
    assert "b-two   broken" in listed.stdout
    assert "b-two is broken: " in listed.stdout


@pytest.mark.usefixtures("three")
def test_runs_are_selected_by_what_they_are(fsf: Fsf) -> None:
    assert names(fsf, "task-seed=1*,training-seed=10") == ["a-ten"]
    assert names(fsf, "tasks=5", "seed=0") == ["b-two", "c-zero"], "each selector adds runs"
    assert names(fsf, "way=2.0,status=finished,n_per_class=8") == ["a-ten", "b-two", "c-zero"]
    for selector, told in (
        ("method=maml", "method is ncc"), ("shots=1", "did you mean"),
        ("way=2,seed", "must be NAME=VALUE"),
    ):  # fmt: skip
        done = fsf("runs", "list", selector)
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr


@pytest.mark.slow
def test_data_are_selected_by_plugin_and_by_the_name_that_notes_use(
    fsf: Fsf, tmp_path: Path
) -> None:
    image_folder(tmp_path / "birds", "ab", each=6)
    for data, name in ((f"folder:{tmp_path / 'birds'}", "of-files"), ("planted", "made")):
        done = fsf(*RUN[:-4], "--dataset", data, "--name", name, "--split", "all", "--tasks", "3")
        assert done.returncode == 0, done.stderr
    for selector in ("dataset=folder", "dataset=Birds", "dataset=folder:*", "dataset=*birds"):
        assert names(fsf, selector) == ["of-files"]
    assert names(fsf, "dataset=planted") == ["made"]
    assert fsf("runs", "list", "dataset=bird").returncode == 2


@pytest.mark.usefixtures("three")
def test_a_column_must_exist(fsf: Fsf) -> None:
    for arguments in (("--columns", "shots"), ("--sort", "-shots")):
        done = fsf("runs", "list", *arguments)
        assert done.returncode == 2
        assert "unknown column 'shots' (did you mean 'shot'?); known: run, folder" in done.stderr


def test_a_list_of_runs_needs_no_torch() -> None:
    code = """
import sys
from fsframework.cli.main import main
sys.argv = ["fsf", "runs", "list"]
try:
    main()
except SystemExit:
    pass
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.usefixtures("three")
def test_damaged_runs_go_too(fsf: Fsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    (tmp_path / "runs/b-two/run.json").write_text("{")
    assert fsf("runs", "remove", "b-two", "c").returncode == 130, "it asks, and the answer is no"
    assert (tmp_path / "runs/c-zero").exists()
    done = fsf("runs", "remove", "b-two", "c", "--yes")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a-ten"]
    remove_run("a-t", tmp_path / "runs")
    assert not list((tmp_path / "runs").iterdir())
    gone = fsf("runs", "remove", "c-zero", "--yes")
    assert gone.returncode == 2
    assert "no run 'c-zero'" in gone.stderr


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_that_of_no_run(
    fsf: Fsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    runs = tmp_path / "runs"
    for other in ("a-ten", "c-zero"):
        shutil.rmtree(runs / other)
    for command in (
        *(("runs", "remove", name, "--yes"), ("runs", "show", name), ("compare", name, name)),
        *(("report", name), ("table", name), ("run", "--model", name), ("curve", name)),
    ):
        done = fsf(*command)
        assert done.returncode == 2, command
    monkeypatch.chdir(runs)
    with pytest.raises(RecordError):
        fsframework.compare([name, name])
    assert names(fsf) == ["b-two"]


@pytest.mark.usefixtures("three")
def test_of_a_run_that_is_a_link_the_link_is_removed(fsf: Fsf, tmp_path: Path) -> None:
    target, link = tmp_path / "elsewhere", tmp_path / "runs" / "c-link"
    (tmp_path / "runs/c-zero").rename(target)
    link.symlink_to(target)
    held = {path.name: path.read_bytes() for path in target.iterdir()}
    done = fsf("runs", "remove", "c-", "--yes")
    assert done.returncode == 0, done.stderr
    assert names(fsf) == ["a-ten", "b-two"]
    assert not link.is_symlink()
    assert {path.name: path.read_bytes() for path in target.iterdir()} == held
