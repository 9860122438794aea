"""Under every table that shows a contaminated run stands that it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Fsf
from tests.toy_published import write_toy

NOTE = (
    "contamination: the backbone was pretrained on imagenet-1k, from which the classes of toy-set"
)
LACKS = (
    "toy-set is not as published: split train: 6 classes and 132 images, published are 6 and 120"
)
BACKBONE = '''
from torch import nn

from fsframework.interfaces import Backbone


class Seen(Backbone):
    """A backbone that has seen much."""

    name = "seen"
    pretrained_on = "imagenet-1k"

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=4)

    def forward(self, images):
        return self.conv(images)
'''


@pytest.fixture
def ran(fsf: Fsf, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    plugin, place = write_toy(tmp_path)
    (tmp_path / "seen.py").write_text(BACKBONE)
    fsf("data", "add", "toy-set", str(place), "-o", "per_class=22", "--plugin", str(plugin))

    def call(*options: str) -> dict[str, Any]:
        done = fsf(
            *("run", "--plugin", str(plugin), "--plugin", "seen.py", "--dataset", "toy-set"),
            *("--sampler", "random", "--tasks", "4", "--recipe", "none", "--json", *options),
            *("-o", "training.epochs=0"),
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return call


def test_it_stands_under_every_table(fsf: Fsf, ran: Callable[..., dict[str, Any]]) -> None:
    runs = [Path(ran("--backbone", "seen", "--method", m)["folder"]) for m in ("protonet", "ncc")]
    clean = Path(ran("--backbone", "conv64f")["folder"])
    shown = fsf("runs", "show", runs[0].name).stdout
    assert (shown.count(NOTE), shown.count(LACKS)) == (1, 1)
    listed = fsf("runs", "list").stdout
    (number,) = (line[1] for line in listed.splitlines() if line[3:].strip().startswith(NOTE))
    rows = {line.split()[0]: line for line in listed.splitlines() if line.startswith(("p", "n"))}
    assert all(f"[{number}]" in rows[run.name] for run in runs)
    assert f"[{number}]" not in rows[clean.name]
    for form in ("table", "markdown", "csv", "latex"):
        done = fsf("compare", *map(str, runs), "--format", form)
        assert NOTE in done.stdout, done.stderr
        assert LACKS in done.stdout
        assert form != "latex" or done.stdout.count(NOTE) == done.stdout.count(r"\caption")
    compared = json.loads(fsf("compare", *map(str, runs), "--json").stdout)
    assert NOTE in compared["cautions"]["ncc"][0]
    half = fsf("compare", str(runs[0]), str(clean)).stdout
    assert f"protonet seen: {NOTE}" in half
    ranked = fsf("rank", *map(str, [*runs, clean]), "--columns", "acc-random", "wacc-random").stdout
    assert f"{runs[0].name}, {runs[1].name}: {NOTE}" in ranked


def test_weights_of_a_run_inherit_it_and_a_fresh_backbone_has_none(
    ran: Callable[..., dict[str, Any]],
) -> None:
    first = ran("--backbone", "seen")
    assert any(NOTE in note for note in ran("--model", first["folder"], "--tasks", "5")["notes"])
    notes = " ".join(ran("-o", "dataset.per_class=20")["notes"])
    assert "contamination" not in notes
    assert "published" not in notes


def test_it_stands_under_the_tables_of_a_benchmark(
    fsf: Fsf, tmp_path: Path, ran: Callable[..., dict[str, Any]]
) -> None:
    run = ran("--backbone", "seen")["folder"]
    for suffix in ("md", "csv", "tex", "json"):
        done = fsf(
            *("benchmark", "open-intervals", "--plugin", "toy_plugin.py", "--plugin", "seen.py"),
            *("--dataset", "toy-set", "--model", f"seen={run}", "--shot", "1"),
            *("--method", "ncc", "--method", "protonet", "--output", f"t.{suffix}"),
        )
        assert done.returncode == 0, done.stderr
        tables = done.stdout.split("Table ")[1:]
        assert tables
        assert all(NOTE in table for table in tables)
        assert NOTE in (tmp_path / f"t.{suffix}").read_text()
