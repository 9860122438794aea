"""A package from outside the repository: installed, listed, checked, run and uninstalled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import finished

ROOT = Path(__file__).parents[2]
QUICK = (
    "-o", "dataset.size=32", "-o", "dataset.n_per_class=40", "--shot", "1", "--queries", "5",
    "--tasks", "30", "-o", "training.epochs=0",
)  # fmt: skip
OURS = {
    "nearest-shot": "method",
    "spread": "statistic",
    "plain-queries": "sampler",
    "uneven": "command",
    "crowding": "benchmark",
    "hard-tasks": "section",
}


def interpreted(*arguments: str) -> str:
    """Give a command that starts an interpreter, and return what it prints."""
    command = [sys.executable, "-m", "fsframework", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def _outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the package into a folder that is then on the path of processes."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q")
    source = tmp_path / "source"
    subprocess.run(["cp", "-r", ROOT / "examples" / "third_party_plugin", source], check=True)
    site = tmp_path / "site"
    command = [*pip, "--no-deps", "--no-build-isolation", "--target", site, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("PYTHONPATH", str(site))


@pytest.mark.usefixtures("_outside")
def test_an_outside_package_is_listed_checked_run_and_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsf(*arguments: str) -> str:
        done = finished(tmp_path, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    rows = json.loads(fsf("plugins", "list", "--json"))
    ours = {r["name"]: r["kind"] for r in rows if r["distribution"] == "shotwise"}
    assert ours == OURS
    assert " 0 failed" in fsf("plugins", "check", "--distribution", "shotwise")
    told = json.loads(
        fsf(
            "run", "--method", "nearest-shot", "-o", "method.neighbours=2", "--sampler",
            "plain-queries", "--statistic", "wacc", "--statistic", "spread", *QUICK, "--json",
        )
    )  # fmt: skip
    assert told["arms"] == ["crowded", "plain"]
    assert {"wacc-crowded", "wacc-plain", "wacc-gap", "spread-gap"} <= set(told["estimates"])
    gap = told["estimates"]["spread-gap"]
    assert gap["paired"]
    # Spread is better where it is smaller: the gap is positive where plain queries are worse.
    plain, crowded = (told["estimates"][f"spread-{arm}"]["value"] for arm in ("plain", "crowded"))
    assert gap["value"] == pytest.approx(plain - crowded)
    assert "uneven" in fsf("--help")
    ranked = json.loads(fsf("uneven", "--json"))
    assert {row["measure"] for row in ranked} == {"spread-crowded", "spread-plain"}
    listed = fsf("benchmark", "crowding", "--shot", "1", *QUICK[:4], "--dry-run")
    assert "nearest-shot" in listed
    fsf("report", told["folder"], "--section", "hard-tasks", "--output", "report.html")
    assert "Tasks that all find hard" in (tmp_path / "report.html").read_text("utf-8")
    # An interpreter of its own finds the package as these did, and so does none without the folder.
    assert '"shotwise"' in interpreted("plugins", "list", "--json")
    monkeypatch.delenv("PYTHONPATH")
    after = json.loads(interpreted("plugins", "list", "--json"))
    assert not [r for r in after if r["distribution"] == "shotwise"]
    assert "uneven" not in fsf("--help")
