"""Every installed first-party plugin keeps its contract, and `fsf plugins check` says so."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fsframework.components.registry import Plugin, Registry
from fsframework.testing import check_component, installed_command, toy_records
from tests.conftest import Fsf
from tests.tiny_models import tiny_model

# The published data sets need their files; their own tests check each on a miniature of it.
FIRST_PARTY = [
    p
    for p in Registry().plugins()
    if p.distribution.startswith("fsf-")
    and p.target.partition(":")[0] != "fsf_datasets.published"
    and (p.kind, p.name) != ("dataset", "declared")
    # An engine must run; the packages of launchers and of methods check all of theirs.
    and p.kind not in ("launcher", "method")
]


def images(root: Path) -> Path:
    """A folder of two images a class, and a table of them."""
    for c in range(20):
        (root / f"c{c}").mkdir(parents=True)
        for i in range(2):
            size = (20 + c, 24)
            Image.new("RGB", size, (10 * c, 100 * i, 7)).save(root / f"c{c}" / f"{i}.png")
    rows = [f"c{c}/{i}.png,c{c}" for c in range(20) for i in range(2)]
    (root / "images.csv").write_text("path,label\n" + "\n".join(rows) + "\n")
    return root


TINY = {"vit-gpt2": "vit-gpt2", "blip": "blip", "captioner": "git", "clip-words": "clip"}
"""The model of ``tiny_model`` for each detector that takes one."""


SMALL: dict[str, dict[str, Any]] = {
    "resnet10": {"stem": "3x3", "widths": (4, 6, 8, 10)},
    "resnet18": {"widths": (4, 6, 8, 10)},
    "resnet50": {"stem": "3x3", "widths": (4, 6, 8, 10)},
    "wrn-28-10": {"width": 1},
    "timm": {"model": "test_vit", "weights": "none", "image_size": 32},
}
"""Options that make a large component a small one, or that a component must be given."""


def captions(path: Path) -> Path:
    lines = [{"key": r.key, "caption": r.metadata["caption"]} for r in toy_records()]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.mark.parametrize("plugin", FIRST_PARTY, ids=lambda p: f"{p.kind} {p.name}")
def test_a_first_party_plugin_keeps_its_contract(plugin: Plugin, tmp_path: Path) -> None:
    if plugin.kind == "command":
        make = installed_command(plugin.name)
    else:
        make = Registry().load(plugin.kind, plugin.name)
    if plugin.name in ("folder", "csv"):
        root = images(tmp_path / "images")
        make = partial(make, path=root if plugin.name == "folder" else root / "images.csv")
    elif plugin.name == "planted":
        make = partial(make, size=24, n_per_class=3)
    elif plugin.name in TINY:
        make = partial(make, model=str(tiny_model(TINY[plugin.name])))
    elif plugin.name in SMALL:
        make = partial(make, **SMALL[plugin.name])
    elif plugin.name == "captions-file":
        make = partial(make, path=captions(tmp_path / "captions.jsonl"))
    results = check_component(make, plugin.kind)
    assert [f"{r.name}: {r.message}" for r in results if not r.passed] == []
    assert sum(r.outcome == "passed" for r in results) > len(results) / 2


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


def test_show_tells_options_and_facts(fsf: Fsf) -> None:
    told = json.loads(fsf("plugins", "show", "renet", "--json").stdout)
    options = {o["option"]: o for o in told["options"]}
    assert options["method.temperature"]["default"] == 0.2
    assert told["facts"]["consumes"] == "maps"
    shown = fsf("plugins", "show", "renet").stdout
    assert "method.temperature_attn" in shown
    assert "Relational" in shown
