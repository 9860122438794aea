"""Whatever happens to a cached file, a run gives the numbers of a fresh cache and says so."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from fsframework.engine.learning import training
from tests.conftest import Fsf

RUN = (
    "run", "--json", "--method", "protonet", "--sampler", "fewstab", "--detector", "metadata",
    "--way", "3", "--shot", "1", "--queries", "2", "--tasks", "60", "--image-size", "16",
    "-o", "dataset.n_per_class=6", "-o", "training.epochs=2", "-o", "training.steps=2",
    "-o", "training.tasks_per_step=1", "-o", "training.validation_tasks=4",
)  # fmt: skip
STAGES = {
    "images": ("images/*/array.npy", ("features", "outcomes", "training")),
    "digests of images": ("images/*/rows.bin", ("features", "outcomes", "training")),
    "features": ("features/*/array.npy", ("outcomes",)),
    "digests of features": ("features/*/rows.bin", ("outcomes",)),
    "detections": ("detections/*/answers.jsonl", ("attributes",)),
    "words": ("attributes/*.parquet", ()),
    "tasks": ("tasks/*.safetensors", ()),
    "weights": ("training/*/weights.safetensors", ()),
    "checkpoint": ("training/*/checkpoint.safetensors", ("training/*/weights.*",)),
    "outcomes": ("outcomes/*.parquet", ()),
}
"""By stage: a file, and what must be missing for a run to read it."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Where the first caches are kept and, once they are there, the numbers of their run."""
    return {"folder": tmp_path_factory.mktemp("kept")}


def ran(fsf: Fsf, tmp_path: Path, runs: str, *more: str) -> tuple[dict[str, Any], list[str]]:
    """Run anew; return the numbers, and the lines about the cache."""
    done = fsf(*RUN, "--runs-dir", str(tmp_path / runs), *more)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    folder = Path(said["folder"])
    raw = json.loads((folder / "run.json").read_text())
    assert not said["reused"]
    numbers = {
        "estimates": raw["estimates"],
        "digests": raw["digests"],
        "arms": raw["arms"],
        "history": [{**row, "seconds": 0} for row in raw["training"]["history"]],
        "weights": (folder / "weights.safetensors").read_bytes(),
    }
    # What is left of a log that was cut off is indistinguishable from that of a killed process.
    about = ("note: /", "detection: ")
    return numbers, [
        line
        for line in done.stderr.splitlines()
        if line.startswith(about) and "done in" not in line
    ]


@pytest.fixture
def cached(kept: dict[str, Any], fsf: Fsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with every stage, a checkpoint included; another of other data lies beside it."""
    cache = tmp_path / "cache"
    if "numbers" not in kept:
        monkeypatch.setattr(training, "remove_sealed", lambda path: None)
        for name, more in (("other", ("-o", "dataset.seed=1", "--seed", "1")), ("cache", ())):
            kept["numbers"], said = ran(fsf, tmp_path, f"first-{name}", *more)
            assert [line for line in said if "detection" not in line] == []
            cache.rename(kept["folder"] / name)
    shutil.copytree(kept["folder"] / "cache", cache)
    return cache


def zeroed_block(raw: bytes) -> bytes:
    third = len(raw) // 3
    return raw[:third] + bytes(third) + raw[2 * third :]


def flipped_byte(raw: bytes) -> bytes:
    # The last images are those under test, and all of them are used.
    place = len(raw) - len(raw) // 20 - 1
    return raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]


CONTENTS: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda raw: raw[: len(raw) // 2],
    "emptied": lambda raw: b"",
    "garbage": lambda raw: np.random.default_rng(0).bytes(len(raw)),
    "zeroed": lambda raw: bytes(len(raw)),
    "zeroed block": zeroed_block,
    "flipped byte": flipped_byte,
}


def wrong_shape(file: Path, other: Path) -> None:
    if file.suffix == ".npy":
        np.save(file, np.zeros((3, 5), np.float32))
    elif file.suffix == ".safetensors":
        save_file({"classes": np.zeros((3, 5), np.float32)}, file)
    elif file.suffix == ".jsonl":
        file.write_text("[1, 2]\n" * 100)
    else:
        file.write_bytes(file.read_bytes() * 2)


def a_folder(file: Path, other: Path) -> None:
    file.unlink()
    (file / "inner").mkdir(parents=True)


def a_link(file: Path, other: Path) -> None:
    file.unlink()
    file.symlink_to(other)


REPLACEMENTS: dict[str, Callable[[Path, Path], object]] = {
    "wrong shape": wrong_shape,
    "swapped": lambda file, other: shutil.copyfile(other, file),
    "a folder": a_folder,
    "a link": a_link,
    "a link to nothing": lambda file, other: a_link(file, other.with_name("nothing")),
}
DAMAGES = (*CONTENTS, *REPLACEMENTS)
CASES = [
    pytest.param(stage, damage, marks=[] if (s + 2 * d) % 5 < 2 else pytest.mark.slow)
    for s, stage in enumerate(STAGES)
    for d, damage in enumerate(DAMAGES)
]
"""Every damage of every stage; at any time four or five of each, which meet each other evenly."""


def without(cache: Path, patterns: tuple[str, ...]) -> None:
    for path in itertools.chain.from_iterable(cache.glob(pattern) for pattern in patterns):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("stage", "damage"), CASES)
def test_what_is_damaged_is_made_again(
    fsf: Fsf, tmp_path: Path, kept: dict[str, Any], cached: Path, stage: str, damage: str
) -> None:
    pattern, after = STAGES[stage]
    without(cached, after)
    (file, *_), (other, *_) = (
        sorted(cached.glob(pattern)),
        sorted((kept["folder"] / "other").glob(pattern)),
    )
    before = other.read_bytes()
    if damage in CONTENTS:
        file.write_bytes(CONTENTS[damage](file.read_bytes()))
    else:
        REPLACEMENTS[damage](file, other)
    numbers, said = ran(fsf, tmp_path, "second")
    assert numbers == kept["numbers"]
    assert said, "a line says so"
    assert all("again" in line or "detection" in line for line in said), said
    assert len(said) <= 2
    assert other.read_bytes() == before, "nothing is written through a link"
    without(cached, after)
    numbers, said = ran(fsf, tmp_path, "third")
    assert numbers == kept["numbers"]
    assert said == [], "it has healed"
