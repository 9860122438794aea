"""Code that nobody asked for does not run: shadowing files, and names in a configuration file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fsframework
from fsframework.errors import OptionError

SHADOWING = ("numpy", "torch", "fsframework", "json", "socket")

SHADOW = """
import pathlib
pathlib.Path(__file__).with_suffix(".imported").touch()
raise SystemExit("the file of the current folder was imported")
"""

PLUGIN = """
from helper import SCALE
from fsframework.interfaces import FewShotMethod
import torch

class Mine(FewShotMethod):
    learns_from = "nothing"

    def scores(self, support, query):
        return -SCALE * torch.cdist(query, support.mean(dim=2))
"""

SCRIPT = """
import sys

here, sys.path[0] = sys.path[0], sys.argv[1]
import fsframework as fsf
import torch

sys.path.insert(0, here)  # as in a notebook

found = fsf.sweep(
    method="mine", launcher={"name": "local", "processes": 1}, plugins=["own/mine.py"],
    sampler="random", shot=1, way=2, queries=1, tasks=2, progress=False,
    dataset={"name": "planted", "n_per_class": 4, "size": 16},
)
assert len(found.runs) == 1, found
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder full of modules that must not be imported, and a folder of one's own modules."""
    folder = tmp_path_factory.mktemp("downloaded")
    for name in SHADOWING:
        (folder / f"{name}.py").write_text(SHADOW)
    own = folder / "own"
    own.mkdir()
    (own / "helper.py").write_text("SCALE = 1.0\n")
    (own / "mine.py").write_text(PLUGIN)
    return folder


GRID = (
    *("--method", "mine", "--sampler", "random", "--way", "2", "--shot", "1", "--queries", "1"),
    *("--tasks", "2", "--dataset", "planted", "-o", "dataset.n_per_class=4"),
    *("-o", "dataset.size=16", "--plugin", "own/mine.py", "-o", "launcher.processes=1"),
    *("--launcher", "local"),
)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["command", "script"])
def test_workers_import_no_file_of_the_current_folder(folder: Path, how: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(folder / "own")}
    fsf = str(Path(sys.executable).with_name("fsf"))
    command = [fsf, "sweep", *GRID] if how == "command" else [sys.executable, "-c", SCRIPT, "own"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not [*folder.glob("*.imported")]


EVIL = "import pathlib\npathlib.Path('imported').touch()\nfrom torch.optim import SGD as Opt\n"

NAMING = {
    "training": '[training]\noptimizer = "evil:Opt"',
    "stages": '[[training.stages]]\nepochs = 1\noptimizer = "evil:Opt"',
    "grid": '[grid]\n"training.optimizer" = ["adam", "evil:Opt"]',
    "overrides": '[[overrides]]\nmethod = "ncc"\n[overrides.set.training]\noptimizer = "evil:Opt"',
    "plugin": 'plugin = ["evil.py"]',
}
"""Configuration files that name code in several places."""


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A downloaded folder, which is where this process looks for modules first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    (tmp_path / "evil.py").write_text(EVIL)
    return tmp_path


@pytest.mark.parametrize("place", NAMING)
@pytest.mark.parametrize("command", ["run", "sweep", "tasks make t.tasks"])
def test_a_file_that_names_code_is_refused(fsf: Any, evil: Path, place: str, command: str) -> None:
    (evil / "grid.toml").write_text(NAMING[place])
    done = fsf(*command.split(), "--config", "grid.toml")
    assert done.returncode == 2
    assert ("--allow-code" in done.stderr) == (place != "plugin")
    assert ("evil:Opt" if place != "plugin" else "plugin") in done.stderr
    (evil / "allowing.toml").write_text(f"allow_code = true\n{NAMING[place]}")
    assert fsf(*command.split(), "--config", "allowing.toml").returncode == 2
    assert not (evil / "imported").exists()


SMALL: dict[str, Any] = {
    "dataset": {"name": "planted", "n_per_class": 8, "size": 16},
    **dict.fromkeys(("way", "tasks"), 2),
    **dict.fromkeys(("shot", "queries"), 1),
    "sampler": "random",
    "progress": False,
}
STAGE = {"epochs": 1, "steps": 1, "validation_tasks": 0, "optimizer": "evil:Opt"}


def test_code_of_a_file_runs_where_it_is_allowed(
    evil: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (evil / "own.toml").write_text(NAMING["training"])
    stage = {name: STAGE[name] for name in STAGE if name != "optimizer"}
    with pytest.raises(OptionError, match="allow_code=True"):
        fsframework.run(config="own.toml", training=stage, **SMALL)
    assert not (evil / "imported").exists()
    for given in (
        {"config": "own.toml", "training": stage, "allow_code": True},
        {"config": {"training": STAGE}},
        {"training": [STAGE]},
    ):
        run = fsframework.run(**given, **SMALL)
        assert run.options[0]["training"][0]["optimizer"] == "evil:Opt"
    assert (evil / "imported").exists()
    (evil / "evil.py").write_text(EVIL.replace("SGD", "AdamW"))
    monkeypatch.delitem(sys.modules, "evil")
    edited = fsframework.run(training=[STAGE], **SMALL)
    assert not edited.reused, "the code of the optimiser is part of the run"


def test_the_command_line_may_name_code(fsf: Any, evil: Path) -> None:
    (evil / "own.toml").write_text(NAMING["training"])
    for given in (("--config", "own.toml", "--allow-code"), ("-o", "training.optimizer=evil:Opt")):
        shown = json.loads(fsf("run", *given, "--dry-run", "--json").stdout)
        assert shown["resolved"]["training"][0]["optimizer"] == "evil:Opt"
