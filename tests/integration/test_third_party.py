"""A package from outside the repository, pip-installed into a fresh environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_an_outside_package_is_listed_checked_and_run(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def call(*command: str | Path) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    call(sys.executable, "-m", "venv", "venv")
    bin_folder = tmp_path / "venv" / "bin"
    # From the root: the requirement files name the packages by paths relative to it.
    install = [bin_folder / "pip", "install", "-q", "-r", "requirements.txt"]
    subprocess.run(install, cwd=ROOT, env=env, check=True)
    call(bin_folder / "pip", "install", "-q", ROOT / "examples" / "third_party_plugin")
    fsf = bin_folder / "fsf"
    rows = json.loads(call(fsf, "plugins", "list", "--json").stdout)
    ours = {r["name"]: r for r in rows if r["distribution"] == "shotwise"}
    assert {n: r["kind"] for n, r in ours.items()} == {
        "nearest-shot": "method",
        "spread": "statistic",
    }
    for name in ours:
        assert "0 failed" in call(fsf, "plugins", "check", name).stdout
    told = json.loads(
        call(
            fsf, "run", "--method", "nearest-shot", "-o", "method.neighbours=2",
            "--statistic", "wacc", "--statistic", "spread", "-o", "dataset.size=32",
            "-o", "dataset.n_per_class=40", "--query", "5", "--tasks", "50", "--json",
        ).stdout
    )  # fmt: skip
    assert {"wacc-R", "wacc-A", "wacc-gap", "spread-R", "spread-A"} <= set(told["estimates"])
    assert 0 < told["estimates"]["spread-R"]["value"] < 1
