"""The core with five component packages, as wheels, runs the main job; nothing else is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIVE = (
    "fsf_backbones", "fsf_datasets", "fsf_methods", "fsf_samplers", "fsf_statistics",
)  # fmt: skip


def call(*command: str | Path, **settings: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(  # type: ignore[call-overload]
        [str(part) for part in command], capture_output=True, text=True, check=False, **settings
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """Build wheels, install six of them, and return the environment that sees only these.

    The libraries they depend on are taken from where this process has them, by links.
    """
    folder = tmp_path / "minimal"
    folder.mkdir()
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    sources = [ROOT, *(ROOT / "plugins" / name for name in FIVE)]
    call(
        *pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder / "wheels", *sources,
        cwd=folder,
    )  # fmt: skip
    names = ["fsframework", *(name.replace("_", "-") for name in FIVE)]
    call(
        *pip, "install", "-q", "--no-deps", "--no-index", "--find-links", folder / "wheels",
        "--target", folder / "site", *names,
    )  # fmt: skip
    libraries = folder / "libraries"
    libraries.mkdir()
    for place in (Path(path) for path in sys.path if path.endswith("-packages")):
        for entry in place.iterdir():
            link = libraries / entry.name
            if not entry.name.startswith(("fsf", "__")) and not link.is_symlink():
                link.symlink_to(entry)
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    return {**kept, "PYTHONPATH": f"{folder / 'site'}{os.pathsep}{libraries}"}


def fsf(environment: dict[str, str], folder: Path, *arguments: str) -> str:
    places = {"FSF_RUNS": "runs", "FSF_CACHE": "cache", "FSF_DATA": "data"}
    own = {name: str(folder / place) for name, place in places.items()}
    # -S: no site-packages, and so no editable installs.
    command = (sys.executable, "-S", "-m", "fsframework", *arguments)
    return call(*command, cwd=folder, env={**environment, **own}).stdout


def test_the_main_job_runs_and_help_names_the_commands_of_the_core_only(
    installed: dict[str, str], tmp_path: Path
) -> None:
    told = json.loads(
        fsf(
            installed, tmp_path, "run", "--method", "renet", "--sampler", "fewstab",
            "--tasks", "20", "--queries", "5", "-o", "dataset.size=32",
            "-o", "dataset.n_per_class=30",
            "-o", "training.epochs=1", "-o", "training.steps=2", "--json",
        )
    )  # fmt: skip
    assert {"wacc-random", "wacc-biased", "wacc-gap"} <= set(told["estimates"])
    text = fsf(installed, tmp_path, "--help")
    for name in ("run", "sweep", "plugins", "benchmark", "predict", "attributes", "tasks"):
        assert (f"\n  {name} " in text) is (name == "run"), name
