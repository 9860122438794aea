"""Whatever a plugin raises or returns becomes one sentence that names it; exit code 2."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import fsf_reports
import fsframework as api
from fsf_reports.testing import toy_figure
from fsframework.errors import FsfError
from tests.conftest import Fsf

SMALL = (
    "--tasks", "5", "--shot", "1", "--queries", "2", "--image-size", "16",
    "-o", "dataset.size=16", "-o", "dataset.n_per_class=8",
)  # fmt: skip
RUN = ("run", "--method", "ncc", "--sampler", "random", "-o", "training.epochs=0", *SMALL)

MINE = """
import numpy as np
import torch

from fsframework.interfaces import *
from {home} import {base}


class Mine({base}):
    "Broken."
{extra}
    def {name}(self, *_, **__):
        {fault}
"""


HOMES = {
    "Benchmark": "fsf_benchmarks",
    **dict.fromkeys(("PageWriter", "Renderer", "Section"), "fsf_reports"),
}
"""Packages that have interfaces of their own."""


def mine(base: str, name: str, fault: str, extra: str = "") -> str:
    """Return the source of a component whose method of this name is broken."""
    home = f"{HOMES.get(base, 'fsframework')}.interfaces"
    return MINE.format(home=home, base=base, name=name, fault=fault, extra=extra)


def test_a_plugin_file_is_named_and_verbose_shows_where(fsf: Fsf, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(mine("FewShotMethod", "scores", "raise SystemExit(0)"))
    command = (*RUN, "--plugin", "mine.py", "--method", "mine")
    for verbose in (False, True):
        done = fsf(*command, *["--verbose"] * verbose)
        assert done.returncode == 2
        assert ('mine.py", line ' in done.stderr) == ("Traceback" in done.stderr) == verbose
        last = done.stderr.splitlines()[-1]
        assert last.startswith("fsf: method 'mine': scores of task 0 raised SystemExit: 0 (")
        assert last.endswith("; check it with fsf plugins check mine --plugin mine.py")


DATASET = """
    native_size = 32
    keys = tuple(f"{i:02}.png" for i in range(60))
    labels = np.repeat(np.arange(6), 10)
    class_names = tuple("uvwxyz")
    splits = {"test": class_names}
    metadata = {}
    fingerprint = "mine"
"""
ABSTRACT = """
    def tables(self, results):
        return []
"""
KINDS = {
    "dataset": ("Dataset", "image", DATASET, (*RUN[:-4], "--dataset", "mine")),
    "detector": (
        "AttributeDetector", "detect", "", (*RUN, "--sampler", "fewstab", "--detector", "mine"),
    ),
    "selector": (
        "WordSelector", "select", "",
        (*RUN, "--sampler", "fewstab", "--detector", "captions-file:{tmp}/captions.jsonl",
         "-o", "detector.selector=mine"),
    ),
    "sampler": ("TaskSampler", "draw", "", (*RUN, "--sampler", "mine")),
    "method": ("FewShotMethod", "scores", "", (*RUN, "--method", "mine")),
    "backbone": ("Backbone", "forward", "", (*RUN, "--backbone", "mine")),
    "statistic": ("Statistic", "per_task", "", (*RUN, "--statistic", "mine")),
    "benchmark": ("Benchmark", "experiments", ABSTRACT, ("benchmark", "mine")),
    "launcher": ("Launcher", "map", "", ("sweep", *RUN[1:], "--launcher", "mine")),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["raise SystemExit(0)", "yield 1 / 0"])
def test_a_fault_of_every_kind_names_it(
    fsf: Fsf, distribution: Callable[..., None], tmp_path: Path, kind: str, fault: str
) -> None:
    base, name, extra, command = KINDS[kind]
    entry = {f"{HOMES.get(base, 'fsframework')}.{kind}s": {"mine": "toy_mine:Mine"}}
    distribution("toy-mine", entry, "toy_mine", mine(base, name, fault, extra))
    if kind == "selector":
        planted = api.dataset("planted")
        told = [json.dumps({"key": key, "caption": "a thing"}) for key in planted.keys]
        (tmp_path / "captions.jsonl").write_text("\n".join(told))
    done = fsf(*(part.format(tmp=tmp_path) for part in command))
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2, done.stderr
    item = "of '00.png' " if kind == "dataset" else ""
    assert last.startswith(f"fsf: {kind} 'mine': {name} {item}"), last
    if fault.startswith("raise"):
        assert "raised SystemExit: 0 (toy_mine.py, line " in last
    elif kind in ("benchmark", "launcher"):
        assert "raised ZeroDivisionError: division by zero" in last
    else:
        assert "returned a result of type generator; it must return " in last
    assert last.endswith("; check it with fsf plugins check mine")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists() or kind in (
        "method",
        "backbone",
        "statistic",
        "launcher",
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("finished")
    run = api.run(
        method="ncc", sampler="random", dataset={"name": "planted", "n_per_class": 12, "size": 16},
        training={"epochs": 0}, recipe="none", tasks=4, way=2, shot=1, queries=2, progress=False,
        runs_dir=folder / "runs", cache_dir=folder / "cache", device="cpu",
    )  # fmt: skip
    return run.folder


def report(run: Path, output: Path) -> None:
    fsf_reports.report(run, output / "page.html", sections=[], writer="mine", progress=False)


def figure(run: Path, output: Path) -> None:
    del run
    fsf_reports.save_figure(toy_figure(), output / "figure.toy")


WRITERS = {
    "page": ("PageWriter", "write", "", report),
    "renderer": ("Renderer", "draw", '\n    formats = ("toy",)\n', figure),
}


@pytest.mark.parametrize(
    ("kind", "fault"), [("page", "raise SystemExit(0)"), ("renderer", "return 1 / 0")]
)
def test_a_fault_of_what_writes_files_names_it_and_leaves_no_file(
    distribution: Callable[..., None], finished: Path, tmp_path: Path, kind: str, fault: str
) -> None:
    base, name, extra, call = WRITERS[kind]
    entry = {f"{HOMES.get(base, 'fsframework')}.{kind}s": {"mine": "toy_mine:Mine"}}
    distribution("toy-mine", entry, "toy_mine", mine(base, name, fault, extra))
    output = tmp_path / "output"
    output.mkdir()
    with pytest.raises(FsfError) as caught:
        call(finished, output)
    raised = "SystemExit: 0" if fault.startswith("raise") else "ZeroDivisionError: division by zero"
    told = str(caught.value)
    assert told.startswith(f"{kind} 'mine': {name} raised {raised} (toy_mine.py, line "), told
    assert told.endswith("; check it with fsf plugins check mine")
    assert list(output.iterdir()) == []


@pytest.mark.parametrize("fault", ["yield 1 / 0", "return 3"])
def test_a_fault_of_a_section_is_a_notice_that_names_it(
    fsf: Fsf, distribution: Callable[..., None], finished: Path, tmp_path: Path, fault: str
) -> None:
    entry = {"fsf_reports.sections": {"mine": "toy_mine:Mine"}}
    distribution("toy-mine", entry, "toy_mine", mine("Section", "blocks", fault))
    done = fsf("report", finished, "--section", "mine")
    assert done.returncode == 0, done.stderr
    last = done.stderr.splitlines()[-1]
    begins = "note: the section mine shows a notice: section 'mine': blocks "
    assert last.startswith(begins), last
    assert last.removeprefix(begins).startswith(("raised ", "returned a result of type int"))
    assert last.endswith("; check it with fsf plugins check mine")
    assert "blocks" in (tmp_path / "report.html").read_text()


COMMAND = """
import click


@click.command()
def mine():
    raise SystemExit(0)
"""


def test_a_fault_of_a_command_names_it(
    fsf: Fsf, distribution: Callable[..., None], tmp_path: Path
) -> None:
    folder = tmp_path / "site" / "toy_mine"
    folder.mkdir()
    (folder / "__init__.py").write_text(COMMAND)
    (folder / "commands.toml").write_text('[mine]\nsummary = "Break."\ngroup = "Results"\n')
    distribution("toy-mine", {"fsframework.commands": {"mine": "toy_mine:mine"}})
    done = fsf("mine")
    assert done.returncode == 2
    assert done.stderr == (
        "fsf: command 'mine': the call raised SystemExit: 0 (__init__.py, line 7); "
        "check it with fsf plugins check mine\n"
    )


def test_an_interruption_by_the_user_is_not_a_fault(fsf: Fsf, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(mine("FewShotMethod", "scores", "raise KeyboardInterrupt"))
    done = fsf(*RUN, "--plugin", "mine.py", "--method", "mine")
    assert done.returncode == 130
    told = done.stderr.splitlines()[-1]
    assert told == "fsf: interrupted; run the same command again to resume"
