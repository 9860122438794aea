"""Every installed first-party plugin keeps its contract, and `fsf plugins check` says so."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fsframework.components.registry import Registry
from fsframework.testing import check_component, installed_command
from tests.conftest import Fsf

ROOT = Path(__file__).parents[2]
FIRST_PARTY = [p for p in Registry().plugins() if p.distribution.startswith("fsf-")]
COMMANDS = [plugin.name for plugin in FIRST_PARTY if plugin.kind == "command"]


def test_the_package_of_every_other_plugin_runs_the_checks_on_it() -> None:
    """Methods, launchers and published data sets have tests that find them by the registry."""
    unchecked = []
    for plugin in FIRST_PARTY:
        if plugin.kind in ("command", "dataset", "method", "launcher"):
            continue
        tests = (ROOT / "plugins" / plugin.distribution.replace("-", "_") / "tests").glob("*.py")
        checking = (text for file in tests if "_with_checks(" in (text := file.read_text()))
        name = plugin.target.partition(":")[2]
        if not any(re.search(rf"\b{name}\b", text) for text in checking):
            unchecked.append(f"{plugin.kind} {plugin.name}")
    assert unchecked == []


def passes(make: Any, kind: str) -> None:
    results = check_component(make, kind)
    assert [f"{r.name}: {r.message}" for r in results if not r.passed] == []
    assert sum(r.outcome == "passed" for r in results) > len(results) / 2


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_keeps_its_contract(name: str) -> None:
    passes(installed_command(name), "command")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["folder", "csv", "planted"])
def test_a_data_set_keeps_its_contract(name: str, tmp_path: Path) -> None:
    make = partial(Registry().load("dataset", name), size=24, n_per_class=3)
    if name != "planted":
        root = images(tmp_path / "images")
        path = root if name == "folder" else root / "images.csv"
        make = partial(Registry().load("dataset", name), path=path)
    passes(make, "dataset")


def images(root: Path) -> Path:
    """A folder of two images per class, and a table of them."""
    rows = ["path,label"]
    for c in range(20):
        (root / f"c{c}").mkdir(parents=True)
        for i in range(2):
            size = (20 + c, 24)
            Image.new("RGB", size, (10 * c, 100 * i, 7)).save(root / f"c{c}" / f"{i}.png")
            rows.append(f"c{c}/{i}.png,c{c}")
    (root / "images.csv").write_text("\n".join(rows))
    return root


def test_check_passes_and_fails_with_its_exit_code(fsf: Fsf, tmp_path: Path) -> None:
    good = fsf("plugins", "check", "wacc")
    assert good.returncode == 0, good.stdout
    assert "0 failed" in good.stdout
    broken = tmp_path / "broken.py"
    broken.write_text(
        "from fsframework.interfaces import Statistic\n"
        "class Broken(Statistic):\n"
        "    'Twice too large.'\n"
        "    def per_task(self, outcomes):\n"
        "        return 2 * outcomes.class_accuracy.mean(axis=1)\n"
    )
    bad = fsf("plugins", "check", "broken", "--plugin", broken, "--json")
    assert bad.returncode == 1
    assert [r["name"] for r in json.loads(bad.stdout) if r["outcome"] == "failed"] == [
        "check_bounds"
    ]


def test_all_plugins_of_a_name_are_checked(fsf: Fsf, tmp_path: Path) -> None:
    good = fsf("plugins", "check", "tasks")
    assert good.returncode == 0, good.stdout
    summaries = [line for line in good.stdout.splitlines() if " 0 failed, " in line]
    assert [line.partition(":")[0] for line in summaries] == ["command tasks", "section tasks"]
    broken = tmp_path / "acc.py"
    broken.write_text(
        "from fsf_reports.interfaces import Section\n"
        "class Acc(Section):\n"
        "    def blocks(self, runs):\n"
        "        return 3\n"
    )
    bad = fsf("plugins", "check", "acc", "--plugin", broken, "--json")
    assert bad.returncode == 1
    rows = json.loads(bad.stdout)
    assert {r["kind"] for r in rows} == {"section", "statistic"}
    assert {r["kind"] for r in rows if r["outcome"] == "failed"} == {"section"}
    told = fsf("plugins", "check", "acc", "--plugin", broken, "-o", "size=3")
    assert told.returncode == 2
    assert "'acc' is a section and a statistic; choose one with --kind" in told.stderr


SEVERAL = """
from fsframework.interfaces import Statistic

class Half(Statistic):
    "Half of the accuracy."
    def per_task(self, outcomes):
        return outcomes.class_accuracy.mean(axis=1) / 2

class Demanding(Half):
    "It must be told a factor."
    def __init__(self, *, factor: float):
        self.factor = factor

class Twice(Half):
    "Twice too large."
    def per_task(self, outcomes):
        return 4 * super().per_task(outcomes)
"""


def test_all_plugins_of_a_distribution_are_checked(fsf: Fsf, distribution: Any) -> None:
    classes = {"half": "Half", "demanding": "Demanding"}
    group = {name: f"several_toys:{cls}" for name, cls in classes.items()}
    distribution("several-toys", {"fsframework.statistics": group}, "several_toys", SEVERAL)
    bad = {"twice": "several_toys:Twice", "lost": "several_toys:Nothing"}
    distribution("bad-toys", {"fsframework.statistics": bad})
    good = fsf("plugins", "check", "--distribution", "several-toys", "--json")
    assert good.returncode == 0, good.stdout
    rows = json.loads(good.stdout)
    skipped = [
        r["plugin"] for r in rows if (r["name"], r["outcome"]) == ("check_bounds", "skipped")
    ]
    assert skipped == ["demanding"]
    told = fsf("plugins", "check", "--distribution", "bad-toys", "--json")
    assert told.returncode == 1
    failed = [(r["plugin"], r["name"]) for r in json.loads(told.stdout) if r["outcome"] == "failed"]
    assert failed == [("lost", "check_construction"), ("twice", "check_bounds")]
    for wrong in ("--all", "acc"), ("--distribution", "nowhere"), ("--all", "-o", "size=3"), ():
        assert fsf("plugins", "check", *wrong).returncode == 2


def test_show_tells_options_and_facts(fsf: Fsf) -> None:
    told = json.loads(fsf("plugins", "show", "renet", "--json").stdout)
    options = {o["option"]: o for o in told["options"]}
    assert options["method.temperature"]["default"] == 0.2
    assert told["facts"]["consumes"] == "maps"
    assert not {"carried", "views", "n_way"} & {*told["facts"]}
    wrapper = json.loads(fsf("plugins", "show", "group-dro", "--json").stdout)
    assert wrapper["facts"] == {"argument": "base", "needs_words": True}
    shown = fsf("plugins", "show", "renet").stdout
    assert "method.temperature_attn" in shown
    assert "Relational" in shown
