"""What checking the cache costs: a run on cached features, and the share of what reusing saves.

Run ``python benchmarks/cache_checks.py [--images N]``. The first table times ``fsf run`` as a
process on the cached features of N images, 640 numbers each (the data set and the backbone below
are as quick as can be, so that nothing hides the checks); other versions print their own figure
when this file is run with them. The second compares what it costs to check a stage with what it
takes to make it: JPEG files of 84 x 84 pixels decoded, ResNet-12 on such images, and the weights
of ResNet-12 after as many training steps as papers take, of which one is timed. The baseline is
BLAKE2b in the place of XXH3.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fsframework.interfaces import Backbone, Dataset
from fsframework.values import IntArray, UInt8Array

CLASSES, WIDTH, SIZE, TASKS = 100, 640, 84, 3_000
PAPER_STEPS = 20_000


class Noise(Dataset):
    """Classes of random images, made in no time."""

    def __init__(self, *, n: int = 206_000) -> None:
        self.keys = tuple(f"{i:06}" for i in range(n))
        self.labels = np.arange(n) % CLASSES
        self.class_names = tuple(f"class_{c:03}" for c in range(CLASSES))
        self.splits = {"test": self.class_names}
        self.metadata: dict[str, tuple[str, ...]] = {}
        self.native_size = 16
        self.fingerprint = f"noise {n}"

    def image(self, index: int) -> UInt8Array:
        """Return an image, uint8 ``(16, 16, 3)``."""
        return self.images([index], 16)[0]

    def images(
        self, indices: Sequence[int] | IntArray, size: int, interpolation: str = "bilinear"
    ) -> UInt8Array:
        """Return images, uint8 ``(n, size, size, 3)``."""
        del interpolation
        start = np.asarray(indices, np.uint64)[:, None] * np.uint64(size * size * 3)
        values = (start + np.arange(size * size * 3, dtype=np.uint64)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        return (values >> np.uint64(56)).astype(np.uint8).reshape(len(indices), size, size, 3)


class Quick(Backbone):
    """One product per image, which is not trained."""

    keeps_weights = True

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(16 * 16 * 3, WIDTH).requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        """Map images ``(n, 3, 16, 16)`` to maps ``(n, 640, 1, 1)``."""
        maps: Tensor = self.project(images.flatten(1))[:, :, None, None]
        return maps


def seconds_of(work: Callable[[], object], repeats: int = 3) -> float:
    found = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)


def run_seconds(images: int, folder: Path) -> tuple[float, float]:
    """Return the seconds of ``fsf run`` on cached images and features, and those of the CPU."""
    command = [
        *(sys.executable, "-m", "fsframework", "run", "--plugin", __file__),
        *("--dataset", "noise", "-o", f"dataset.n={images}", "--backbone", "quick"),
        *("--method", "ncc", "--sampler", "random", "--tasks", str(TASKS)),
        *("--runs-dir", str(folder / "runs"), "--cache-dir", str(folder / "cache")),
    ]

    def run() -> None:
        for name in ("runs", "cache/outcomes"):
            shutil.rmtree(folder / name, ignore_errors=True)
        subprocess.run(command, check=True, capture_output=True)

    def cpu() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    run()
    before = cpu()
    return seconds_of(run, 2), (cpu() - before) / 2


def small_photographs(count: int) -> list[bytes]:
    """Return JPEG files of 84 x 84 pixels."""
    found, rng = [], np.random.default_rng(0)
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (21, 21, 3), dtype=np.uint8))
        out = io.BytesIO()
        coarse.resize((SIZE, SIZE), Image.Resampling.BICUBIC).save(out, "JPEG", quality=90)
        found.append(out.getvalue())
    return found


def decode(files: list[bytes]) -> None:
    for raw in files:
        np.asarray(Image.open(io.BytesIO(raw)).convert("RGB"))


def stages() -> list[tuple[str, float, float, float]]:
    """Return by stage the seconds to make it, to check it, and to check it with BLAKE2b."""
    from fsf_backbones import ResNet12
    from fsframework._files import load_sealed, save_sealed
    from fsframework.engine.cache.rows import Rows, records_of
    from fsframework.engine.progress import Reporter

    def blake(rows: np.ndarray) -> None:
        for row in rows:
            hashlib.blake2b(row, digest_size=16).digest()

    found = []
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "features" / "0"

        def check(rows: np.ndarray) -> float:
            shutil.rmtree(folder, ignore_errors=True)
            stored = Rows(folder, rows.shape, rows.dtype, "rows")
            index = np.arange(len(rows))
            stored.fill(
                lambda: index,
                lambda i: (rows[i], records_of(rows[i])),
                1000,
                ("rows", 0),
                Reporter(),
            )
            return seconds_of(
                lambda: Rows(folder, rows.shape, rows.dtype, "rows").damaged(index, Reporter())
            )

        files = small_photographs(1_000)
        pixels = rng.integers(0, 256, (1_000, SIZE, SIZE, 3), dtype=np.uint8)
        found.append(
            (
                "1,000 images of 84 x 84",
                seconds_of(lambda: decode(files)),
                check(pixels),
                seconds_of(lambda: blake(pixels)),
            )
        )
        net = ResNet12().eval()
        images = torch.rand(16, 3, SIZE, SIZE).to(memory_format=torch.channels_last)
        with torch.no_grad():
            embedding = seconds_of(lambda: net(images)) / len(images)
        for what, width in (("vectors of 640", WIDTH), ("maps of 640 x 5 x 5", 25 * WIDTH)):
            rows = rng.random((1_000, width), dtype=np.float32)
            found.append(
                (
                    f"features of 1,000 images, {what}",
                    1_000 * embedding,
                    check(rows),
                    seconds_of(lambda rows=rows: blake(rows)),  # type: ignore[misc]
                )
            )
        weights = Path(place) / "weights.pt"
        save_sealed(weights, lambda path: torch.save(net.state_dict(), path))
        raw = weights.read_bytes()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)

        def step() -> None:
            net(images).mean().backward()
            optimizer.step()

        found.append(
            (
                f"weights of ResNet-12, {PAPER_STEPS:,} steps",
                seconds_of(step) * PAPER_STEPS,
                seconds_of(lambda: load_sealed(weights, lambda path: path, Reporter().note)),
                seconds_of(lambda: hashlib.blake2b(raw).digest()),
            )
        )
    return found


def main() -> None:
    from fsframework.cli.render import print_table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=206_000)
    parser.add_argument("--only-run", action="store_true", help="print the first table only")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as place:
        seconds, cpu = run_seconds(arguments.images, Path(place))
    print_table(
        ("images", "tasks", "fsf run on cached features, s", "of the CPU, s"),
        [(f"{arguments.images:,}", f"{TASKS:,}", f"{seconds:.2f}", f"{cpu:.2f}")],
    )
    if arguments.only_run:
        return
    rows = [
        (what, f"{made:.3g}", f"{checked:.3g}", f"{checked / made:.2%}", f"{blake / made:.2%}")
        for what, made, checked, blake in stages()
    ]
    print_table(("stage", "to make, s", "to check, s", "share", "share with BLAKE2b"), rows)


if __name__ == "__main__":
    main()
