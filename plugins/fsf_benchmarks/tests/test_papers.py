"""Every table and figure on the page of the papers is made by the command beside it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

import fsframework as fsf_api
from tests.conftest import Fsf

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "reproductions.md"

PAPERS = {
    "FewSTAB": (
        *(f"Table {n}" for n in range(1, 7)), *(f"Table S{n}" for n in range(1, 12)),
        *(f"Figure {n}" for n in range(1, 7)), *(f"Figure S{n}" for n in range(1, 4)),
    ),
    "Lafargue et al.": tuple(f"{kind} {n}" for kind in ("Table", "Figure") for n in range(1, 7)),
    "MetaCoCo": tuple(f"{kind} {n}" for kind in ("Table", "Figure") for n in range(1, 8)),
}  # fmt: skip
"""What each paper has; a row of the page has one or several of them."""

PARTS_OF_OTHERS = {
    ("FewSTAB", "Figure 5"): "Figure S1",
    ("FewSTAB", "Table 5"): "Table S6",
    ("Lafargue et al.", "Figure 5"): "Figure 4",
}
"""What is a part of another table or figure, and carries that one's name."""


class Row(NamedTuple):
    """A row of the page."""

    paper: str
    names: tuple[str, ...]
    command: str
    reason: str


def rows() -> list[Row]:
    found = []
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        for line in section.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not line.startswith("|") or not re.match(r"(Table|Figure) ", cells[0]):
                continue
            command = re.fullmatch(r"`(fsf .*)`", cells[2])
            paper, names = section.partition("\n")[0], tuple(cells[0].split(", "))
            found.append(Row(paper, names, command[1] if command else "", cells[2]))
    return found


def test_the_page_has_each_table_and_figure_once() -> None:
    for paper, names in PAPERS.items():
        listed = [name for row in rows() if row.paper == paper for name in row.names]
        assert sorted(listed) == sorted(names)
    assert {row.paper for row in rows()} == set(PAPERS)
    assert all(row.command or row.reason.startswith("none: ") for row in rows())


SUBSTITUTES = {
    "folder:./mini": "toy-images",
    "folder:./dtd": "planted",
    "vit-gpt2": "toy-eyes",
    "blip": "metadata:words",
    "metacoco": "toy-contexts",
}
"""What a command is run with instead, in options and labelled options."""

_TOYS = ("--plugin", str(HERE / "toy_grid.py"))
_NEAR = ("--method", "toy-near", "--method", "toy-first", "--method", "toy-blind")
_INSTANT = ("--backbone", "toy-pixels", "--sampler", "toy-sampler", "--tasks", "6")
_TRAINED = (
    "--backbone", "conv64f", "--sampler", "toy-sampler", "--tasks", "6", "-o", "image_size=16",
    "-o", "training.epochs=1", "-o", "training.steps=1", "-o", "training.validation_tasks=0",
)  # fmt: skip
_OPEN = (
    "-o", "dataset.n_per_class=40", "-o", "dataset.size=16", "-o", "benchmark.trials=1",
    "--method", "ncc", "--shot", "5",
)  # fmt: skip
_COCO = (
    "--dataset", "toy-contexts", "--tasks", "6", "--queries", "2", "-o", "image_size=16",
    "-o", "training.epochs=0", "--shot", "1", "--method", "protonet",
)  # fmt: skip
_WAYS = ("-o", "benchmark.ways=2,5")
_OF_TABLES = ("--backbone", "conv64f", "--backbone", "resnet10", "--backbone", "resnet12")
SMALL = {
    "benchmark.training_shots": (*_TOYS, *_TRAINED, "--method", "protonet"),
    "benchmark.ifsl": (*_TOYS, *_TRAINED, "--method", "toy-near"),
    "benchmark.settings": (),
    "benchmark fewstab": (*_TOYS, *_INSTANT, *_NEAR),
    "tasks show": (*_TOYS, "--sampler", "toy-sampler"),
    "figure-2,figure-3": (),
    "benchmark.baseline": (*_OPEN, "--method", "finetune", "--config", "brief.toml"),
    "benchmark open-intervals": (*_OPEN, "--method", "logistic"),
    "data similarity": (
        *_TOYS,
        "--plugin",
        str(HERE / "toy_clip.py"),
        "--detector",
        "toy-clip",
        "--template",
        "red {}",
    ),
    "benchmark contexts": (*_TOYS, *_COCO[2:], "--backbone", "conv64f"),
    "benchmark.only=1,4,5": (*_TOYS, "--dataset", "toy-contexts"),
    "benchmark.only=figure-4": (*_TOYS, *_COCO, "--backbone", "conv64f", *_WAYS),
    "benchmark metacoco": (*_TOYS, *_COCO, "--method", "matchingnet", *_OF_TABLES),
}
"""Options that make a command small, by a part of it; the first that fits is taken."""


BRIEF = """
[[overrides]]
method = "finetune"
[overrides.set.method]
steps = 1
"""


def small(command: str) -> list[str]:
    words = shlex.split(command)[1:]
    for place, word in enumerate(words):
        label, equals, value = word.rpartition("=")
        if words[place - 1] in ("--dataset", "--detector") and value in SUBSTITUTES:
            words[place] = f"{label}{equals}{SUBSTITUTES[value]}"
    return [*words, *next(more for part, more in SMALL.items() if part in command)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose backbone stands for each model of a command."""
    done = fsf_api.run(
        method="baseline", backbone="conv64f", sampler="random", tasks=2, shot=1, queries=2,
        dataset={"name": "planted", "n_per_class": 8, "size": 16}, image_size=16,
        training={"epochs": 1, "steps": 1}, progress=False,
        runs_dir=tmp_path_factory.mktemp("models"), cache_dir=tmp_path_factory.mktemp("own"),
    )  # fmt: skip
    return done.folder


_SLOW = ("training_shots", "ifsl", "open-intervals --dataset", "contexts", "figure-5")
_COMMANDS = [
    pytest.param(
        row,
        id=f"{row.paper}, {row.names[0]}",
        marks=[pytest.mark.slow] * any(part in row.command for part in _SLOW),
    )
    for row in rows()
    if row.command
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("row", _COMMANDS)
def test_the_command_makes_it(
    row: Row, fsf: Fsf, model: Path, tmp_path: Path, shared_cache: Path
) -> None:
    (tmp_path / "brief.toml").write_text(BRIEF)
    asked = [re.sub(r"=runs/\w+$", f"={model}", word) for word in small(row.command)]
    done = fsf(*asked, *(("--json",) if asked[0] == "benchmark" else ()))
    assert done.returncode == 0, done.stderr
    if asked[0] == "benchmark":
        document = json.loads(done.stdout)
        made = {t["table"] for t in document["tables"]} | {f["figure"] for f in document["figures"]}
        for name in row.names:
            assert PARTS_OF_OTHERS.get((row.paper, name), name) in made
    for option in ("--figure", "--output"):
        if option in asked:
            path = tmp_path / asked[asked.index(option) + 1]
            drawn = list(tmp_path.glob(f"{path.stem}*{path.suffix}"))
            assert all(one.stat().st_size > 1000 for one in drawn)
            assert drawn
