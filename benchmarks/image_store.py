"""Images packed and read back per second, and the memory of packing, reading and features.

Run ``python benchmarks/image_store.py [--images N] [--many N ...]``. The photographs are noise with
the spectrum of natural images, 500 x 375 pixels, saved as JPEG at two qualities; their mean size is
printed, since decoding time depends on it. The baseline of packing opens, converts and resizes one
image at a time. The baseline of reading copies one row at a time from the same file, mapped by
NumPy. Memory is the peak resident size of whole processes, including interpreter and libraries, at
several numbers of small images.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from _options import positive
from PIL import Image

from fsf_tools.data.packing import decoding_difference
from fsframework.cli.render import print_table
from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.engine.cache.images import ImageStore
from fsframework.engine.progress import Reporter
from fsframework.engine.session import Workspace

SIZE, WIDTH, HEIGHT = 84, 500, 375
QUALITIES = (75, 92)
PHOTOGRAPHS, READS = 600, 40_000
MANY = (10_000, 100_000)
DIFFERENT, STORED = 500, 20_000
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
FEATURES = """
import sys
from pathlib import Path
import numpy as np
from fsframework.engine.learning.evaluation import ImageSource
from fsframework.engine.cache.images import ImageStore, Source
from fsframework.engine.learning.memory import keep_freed_memory
from fsframework.engine.learning.model import build_model
from fsframework.engine.progress import Reporter
from fsframework.engine.session import Workspace
from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
keep_freed_memory()
registry, folder = Registry(), Path(sys.argv[1])
where = {"name": "folder", "path": str(folder / "images"), "split_fractions": (0.0, 0.0, 1.0)}
dataset = resolve_component(registry, "dataset", where)
options = {"name": "conv64f", "pooling": "mean"}
model = build_model(
    resolve_component(registry, "backbone", options),
    resolve_component(registry, "method", "protonet"), 84, 0, 0,
)
workspace = Workspace(folder / "runs", folder / "cache")
data = dataset.create()
store = ImageStore(data, dataset, 84, "bilinear", "exact", workspace)
pixels = Source(store, data).pixels("test", Reporter())
if sys.argv[2] == "read":
    order = np.random.default_rng(0).permutation(len(pixels))
    for start in range(0, len(order), 512):
        pixels[order[start : start + 512]]
else:
    ImageSource.cached(model, pixels, workspace, Reporter(), sys.argv[2])
"""


def photographs(folder: Path, count: int, quality: int) -> float:
    """Write artificial photographs and return their mean size in KB."""
    rng = np.random.default_rng(0)
    frequency = np.hypot(np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH))
    amplitude = 1 / np.maximum(frequency, 1 / WIDTH) ** 1.15

    def noise() -> np.ndarray:
        phase = np.exp(2j * np.pi * rng.random(amplitude.shape))
        return np.fft.irfft2(amplitude * phase, s=(HEIGHT, WIDTH))

    different = [folder / "a" / f"{i}.jpg" for i in range(min(count, 200))]
    (folder / "a").mkdir(parents=True)
    (folder / "b").mkdir()
    for file in different:
        light = noise()
        colours = np.stack([light + 0.35 * noise() for _ in range(3)], axis=-1)
        colours = 120 + 55 * (colours - colours.mean()) / colours.std()
        Image.fromarray(colours.clip(0, 255).astype(np.uint8)).save(file, quality=quality)
    for i in range(len(different), count):
        os.link(different[i % len(different)], folder / "b" / f"{i}.jpg")
    return float(np.mean([file.stat().st_size for file in different])) / 1000


def store_of(folder: Path, cache: Path, decoding: str) -> ImageStore:
    component = resolve_component(Registry(), "dataset", f"folder:{folder}")
    workspace = Workspace(cache / "runs", cache)
    data = component.create()
    return ImageStore(data, component, SIZE, "bilinear", decoding, workspace)  # type: ignore[arg-type]


def one_by_one(files: list[Path]) -> None:
    """Decode and resize one image at a time, which is the baseline."""
    for file in files:
        with Image.open(file) as image:
            np.asarray(image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR))


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def fill(store: ImageStore) -> None:
    store.fill(np.arange(len(store)), "fatal", "images", Reporter())


def packing(folder: Path, count: int) -> None:
    rows = []
    for quality in QUALITIES:
        images = folder / f"quality-{quality}"
        size = photographs(images, count, quality)
        files = sorted(images.rglob("*.jpg"))
        one_by_one(files[:100])
        baseline = count / seconds(lambda files=files: one_by_one(files))
        rows.append((f"{size:.0f} KB", "one by one", f"{baseline:,.0f}", "1.0", ""))
        for decoding in ("exact", "scaled"):
            rates = []
            for attempt in range(3):
                store = store_of(images, folder / f"cache-{quality}-{attempt}", decoding)
                rates.append(count / seconds(lambda s=store: fill(s)))
            rate = max(rates)
            apart = ""
            if decoding == "scaled":
                found = decoding_difference(store)
                assert found is not None
                apart = (
                    f"mean {found.mean:.1f}, 99 % below {found.percentile_99:.0f}, "
                    f"largest {found.largest} of 255"
                )
            rows.append(
                (f"{size:.0f} KB", decoding, f"{rate:,.0f}", f"{rate / baseline:.1f}", apart)
            )
    print_table(("JPEG", "decoding", "images/s", "speed-up", "difference of pixels"), rows)


def reading(store: ImageStore) -> None:
    """Print the rates of random reads from a store larger than a processor's caches."""
    order = np.random.default_rng(1).integers(len(store), size=READS)
    mapped = np.load(store.rows.path, mmap_mode="r")

    def row_by_row() -> None:
        for index in order:
            np.array(mapped[index])

    def in_batches(size: int) -> None:
        for start in range(0, READS, size):
            store.read(order[start : start + size])

    row_by_row()
    baseline = READS / seconds(row_by_row)
    rows = [("NumPy's memory map, row by row", f"{baseline:,.0f}", "1.0")]
    for batch in (100, 400):
        rate = max(READS / seconds(lambda b=batch: in_batches(b)) for _ in range(3))
        rows.append((f"the store, {batch} at a time", f"{rate:,.0f}", f"{rate / baseline:.1f}"))
    print()
    print_table(("random images of 84 x 84", "images per second", "speed-up"), rows)


def small_images(folder: Path, count: int) -> None:
    """Write many small files, most of which are links to the same few."""
    rng = np.random.default_rng(0)
    for label in range(20):
        (folder / f"class_{label:02d}").mkdir(parents=True)
    made = []
    for i in range(count):
        file = folder / f"class_{i % 20:02d}" / f"image_{i:07d}.jpg"
        if i < DIFFERENT:
            pixels = rng.integers(0, 256, (12, 12, 3)).astype(np.uint8)
            Image.fromarray(pixels).resize((SIZE, SIZE)).save(file)
            made.append(file)
        else:
            os.link(made[i % DIFFERENT], file)


def peak(command: list[str], cache: Path) -> tuple[float, float]:
    """Return the peak resident size of a command in MB, and its seconds."""
    started = time.perf_counter()
    environment = {**os.environ, "FSF_CACHE": str(cache)}
    # Through a small process, since a child's peak includes the size of its parent at the fork.
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *command],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    return int(done.stdout.split()[-1]) / 1024, time.perf_counter() - started


def memory(folder: Path, counts: list[int]) -> None:
    rows = []
    idle, _ = peak([sys.executable, "-c", "import torch"], folder)
    rows.append(("", "only importing torch", f"{idle:,.0f}", "", ""))
    for count in counts:
        home = folder / str(count)
        small_images(home / "images", count)
        split = ["-o", "dataset.split_fractions=0,0,1"]
        pack = ["fsf", "data", "pack", "--dataset", f"folder:{home / 'images'}", *split]
        script = [sys.executable, "-c", FEATURES, str(home)]
        jobs = {
            "fsf data pack": pack,
            "reading all, at random": [*script, "read"],
            "features, conv64f": [*script, "fp32"],
        }
        for name, command in jobs.items():
            megabytes, spent = peak(command, home / "cache")
            bytes_of_pixels = count * SIZE * SIZE * 3 / 1e6
            rows.append(
                (f"{count:,}", name, f"{megabytes:,.0f}", f"{bytes_of_pixels:,.0f}", f"{spent:.0f}")
            )
    print()
    print_table(("images", "job", "peak, MB", "pixels, MB", "seconds"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--images", type=positive, default=PHOTOGRAPHS, metavar="N", help="photographs to pack"
    )
    parser.add_argument(
        "--many",
        type=positive,
        nargs="*",
        default=[*MANY],
        metavar="N",
        help="numbers of small images whose memory is measured",
    )
    arguments = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} cores; {resource.getpagesize()} bytes per page")
    with tempfile.TemporaryDirectory() as name:
        packing(Path(name), arguments.images)
        small_images(Path(name) / "small", STORED)
        store = store_of(Path(name) / "small", Path(name) / "cache", "exact")
        fill(store)
        reading(store)
        memory(Path(name), arguments.many)


if __name__ == "__main__":
    main()
