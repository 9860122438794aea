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


def test_the_stages_are_those_that_are_cached(cached: Path) -> None:
    for pattern, _ in STAGES.values():
        assert list(cached.glob(pattern)), pattern


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


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
def cached(kept: Path, fsf: Fsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with every stage, a checkpoint included; another of other data lies beside it."""
    cache = tmp_path / "cache"
    if not (kept / "cache").exists():
        monkeypatch.setattr(training, "remove_sealed", lambda path: None)
        for name, more in (("other", ("-o", "dataset.seed=1", "--seed", "1")), ("cache", ())):
            kept_numbers, said = ran(fsf, tmp_path, f"first-{name}", *more)
            assert [line for line in said if "detection" not in line] == []
            cache.rename(kept / name)
        (kept / "numbers.json").write_text(json.dumps(kept_numbers, default=bytes.hex))
    shutil.copytree(kept / "cache", cache)
    return cache


def truncated(file: Path, other: Path) -> None:
    raw = file.read_bytes()
    file.write_bytes(raw[: len(raw) // 2])


def emptied(file: Path, other: Path) -> None:
    file.write_bytes(b"")


def garbage(file: Path, other: Path) -> None:
    file.write_bytes(np.random.default_rng(0).bytes(file.stat().st_size))


def zeroed_block(file: Path, other: Path) -> None:
    raw = bytearray(file.read_bytes())
    third = len(raw) // 3
    raw[third : 2 * third] = bytes(third)
    file.write_bytes(raw)


def zeroed(file: Path, other: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def flipped_byte(file: Path, other: Path) -> None:
    raw = bytearray(file.read_bytes())
    # The last images are those under test, and all of them are used.
    raw[len(raw) - len(raw) // 20 - 1] ^= 1
    file.write_bytes(raw)


def wrong_shape(file: Path, other: Path) -> None:
    if file.suffix == ".npy":
        np.save(file, np.zeros((3, 5), np.float32))
    elif file.suffix == ".safetensors":
        save_file({"classes": np.zeros((3, 5), np.float32)}, file)
    elif file.suffix == ".jsonl":
        file.write_text("[1, 2]\n" * 100)
    else:
        file.write_bytes(file.read_bytes() * 2)


def swapped(file: Path, other: Path) -> None:
    shutil.copyfile(other, file)


def a_folder(file: Path, other: Path) -> None:
    file.unlink()
    (file / "inner").mkdir(parents=True)


def a_link(file: Path, other: Path) -> None:
    file.unlink()
    file.symlink_to(other)


def a_link_to_nothing(file: Path, other: Path) -> None:
    file.unlink()
    file.symlink_to(other.with_name("nothing"))


DAMAGES = (
    truncated, emptied, garbage, zeroed_block, zeroed, flipped_byte, wrong_shape, swapped, a_folder,
    a_link, a_link_to_nothing,
)  # fmt: skip


def expected(kept: Path) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads((kept / "numbers.json").read_text())
    return {**raw, "weights": bytes.fromhex(raw["weights"])}


def without(cache: Path, patterns: tuple[str, ...]) -> None:
    for path in itertools.chain.from_iterable(cache.glob(pattern) for pattern in patterns):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("stage", STAGES)
def test_what_is_damaged_is_made_again(
    fsf: Fsf, tmp_path: Path, kept: Path, cached: Path, stage: str, damage: Callable[..., None]
) -> None:
    pattern, after = STAGES[stage]
    without(cached, after)
    (file, *_), (other, *_) = sorted(cached.glob(pattern)), sorted((kept / "other").glob(pattern))
    before = other.read_bytes()
    damage(file, other)
    numbers, said = ran(fsf, tmp_path, "second")
    assert numbers == expected(kept)
    assert said, "a line says so"
    assert all("again" in line or "detection" in line for line in said), said
    assert len(said) <= 2
    assert other.read_bytes() == before, "nothing is written through a link"
    without(cached, after)
    numbers, said = ran(fsf, tmp_path, "third")
    assert numbers == expected(kept)
    assert said == [], "it has healed"
