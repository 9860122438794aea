"""Memory and time from images to words, and from tables of words to tasks, by number of images.

Run ``python benchmarks/attribute_memory.py``; it takes about two minutes, mostly to draw images. A
made-up captioner describes made-up images of 128 pixels with words that follow a Zipf law, so the
figures are those of the pipeline: reading, the log of captions, selection and table. Each line is a
separate process. Memory is its peak resident size minus that of a process that describes 100
images; the next column is the size of the table itself (words, keys and captions). The baseline,
measured in the same run, reads all images, describes them, and stores the words as sets until the
table is built.

Run ``python benchmarks/attribute_memory.py --commands --images 1000000`` for the commands that read
tables: processor time and peak memory of drawing 600 tasks, of ``fsf data check`` and of
``fsf attributes stats``. Their tables are made up, about nine words per image by a Zipf law, and
are kept in ``--folder``. The first of ``--fsf`` is the baseline, and all take turns ``--rounds``
times; without a second one there is no ratio. Time that is spent on compiling is not counted: each
``fsf`` runs once before, on a small table.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from _options import positive

import fsframework as fsf
from fsframework.interfaces import Captioner, Dataset, WordSelector
from fsframework.values import AttributeTable, Texts

SIZES = (10_000, 100_000)
PIXELS, N_WORDS, WORDS_PER_CAPTION = 128, 2_500, 10


class Noise(Dataset):
    """Images of noise, each drawn when it is read."""

    def __init__(self, *, n_images: int) -> None:
        self.n_images = n_images
        self.class_names = tuple(f"class-{c:02d}" for c in range(20))
        self.labels = np.arange(n_images) % 20
        self.keys = tuple(f"class-{c:02d}/{i:08d}.png" for i, c in enumerate(self.labels))
        self.splits = {"test": self.class_names}
        self.metadata: dict[str, tuple[str, ...]] = {}
        self.fingerprint = f"noise {n_images}"

    def image(self, index: int) -> Any:
        """Return noise."""
        return np.random.default_rng(index).integers(0, 256, (PIXELS, PIXELS, 3), np.uint8)


class Words(WordSelector):
    """Every word of a caption."""

    def select(self, captions: Any) -> list[frozenset[str]]:
        """Split at spaces."""
        return [frozenset(caption.split()) for caption in captions]


class Zipf(Captioner):
    """Words that follow a Zipf law, drawn with the pixels as the seed."""

    def __init__(self) -> None:
        self.selector = Words()

    def describe(self, images: Any) -> list[str]:
        """Return one caption per image."""
        captions = []
        for image in images:
            rng = np.random.default_rng(image[0, :3].ravel().tolist())
            ranks = np.minimum(rng.zipf(1.3, WORDS_PER_CAPTION), N_WORDS)
            captions.append(" ".join(f"word{rank:04d}" for rank in ranks))
        return captions


def streamed(n_images: int) -> AttributeTable:
    """Detect through the pipeline."""
    with tempfile.TemporaryDirectory() as folder:
        pool = fsf.pool(
            Noise(n_images=n_images),
            detector=Zipf(),
            device="cpu",
            cache_dir=folder,
            progress=False,
        )
    assert pool.attributes is not None
    return pool.attributes


def all_at_once(n_images: int) -> AttributeTable:
    """Detect with all images in memory, then all sets of words."""
    data, detector = Noise(n_images=n_images), Zipf()
    images = [data.image(i) for i in range(n_images)]
    captions = detector.describe(images)
    words = detector.selector.select(captions)
    return AttributeTable.from_words(data.keys, words, {}, captions)


def peak(way: str, n_images: int) -> dict[str, float]:
    """Run one way in a separate process."""
    command = [sys.executable, __file__, "--way", way, "--images", str(n_images)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(way: str, n_images: int) -> dict[str, float]:
    """Return the peak in MiB, the seconds, and the size of the table in MiB."""
    start = time.perf_counter()
    table = {"streamed": streamed, "all at once": all_at_once}[way](n_images)
    seconds = time.perf_counter() - start
    assert table.captions is not None
    texts = Texts.of(table.keys).array, Texts.of(table.captions).array
    held = sum(part.nbytes for part in (table.indptr, table.indices, *texts))
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"peak": highest / 2**20, "seconds": seconds, "table": held / 2**20}


_BLOCK = 100_000


def write_tables(folder: Path, n_images: int, n_words: int, n_classes: int) -> Path:
    """Write ``images.csv``, ``words.csv`` and ``words.parquet``, unless they are there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = folder / f"{n_images}-{n_words}-{n_classes}"
    if made.exists():
        return made
    part = made.with_suffix(".part")
    part.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    share = np.cumsum(1 / np.arange(1, n_words + 1))
    names = pa.array([f"word{word:05d}" for word in range(n_words)])
    kind = pa.schema({"key": pa.string(), "words": pa.list_(pa.string())})
    with (
        (part / "images.csv").open("wb") as images,
        (part / "words.csv").open("wb") as words,
        pq.ParquetWriter(part / "words.parquet", kind) as parquet,
    ):
        images.write(b"path,label\n")
        words.write(b"key,words\n")
        for start in range(0, n_images, _BLOCK):
            number = np.arange(start, min(n_images, start + _BLOCK))
            label = lines("class-{}", number % n_classes, 5)
            key = np.hstack([label, lines("/{}.jpg", number, 8)])
            drawn = share[-1] * rng.random((number.size, WORDS_PER_CAPTION))
            word = np.searchsorted(share, drawn)
            comma, end = (np.full((number.size, 1), ord(c), np.uint8) for c in ",\n")
            images.write(np.hstack([key, comma, label, end]).tobytes())
            cells = [lines("word{};", column, 5) for column in word.T]
            words.write(np.hstack([key, comma, *cells, end]).tobytes())
            starts = np.arange(0, word.size + 1, WORDS_PER_CAPTION, dtype=np.int32)
            own = pa.ListArray.from_arrays(starts, names.take(pa.array(word.ravel())))
            keys = pa.array(key.view(f"S{key.shape[1]}").ravel().tolist()).cast(pa.string())
            parquet.write_table(pa.table([keys, own], schema=kind))
    part.rename(made)
    return made


def lines(text: str, numbers: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.uint8]:
    """Return the text with each number in place of ``{}``, as ASCII uint8 ``(n, length)``."""
    before, after = text.encode().split(b"{}")
    made = np.empty((numbers.size, len(before) + width + len(after)), np.uint8)
    made[:, : len(before)] = np.frombuffer(before, np.uint8)
    made[:, len(before) + width :] = np.frombuffer(after, np.uint8)
    for place in range(width):
        digit = numbers // 10 ** (width - 1 - place) % 10
        made[:, len(before) + place] = ord("0") + digit
    return made


def commands(tables: Path) -> dict[str, list[str]]:
    """Return the measured commands by name."""
    images = ["--dataset", f"csv:{tables / 'images.csv'}"]
    in_csv, in_parquet = (["--attributes", str(tables / f"words.{s}")] for s in ("csv", "parquet"))
    draw = ["tasks", "make", "tasks.safetensors", "--force", *images, "--split", "all"]
    return {
        "fewstab tasks, words in CSV": [*draw, *in_csv],
        "fewstab tasks, words in Parquet": [*draw, *in_parquet],
        "random tasks": [*draw, "--sampler", "random"],
        "data check": ["data", "check", *images, *in_csv, "--skip-images"],
        "attributes stats": ["attributes", "stats", *images, *in_csv, "--split", "all"],
    }


def usage(fsf: str, arguments: list[str]) -> tuple[float, float, float]:
    """Run a command with an empty cache; return processor and wall seconds, and the peak in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        places = {"FSF_CACHE": f"{folder}/cache", "FSF_RUNS": f"{folder}/runs"}
        started = time.perf_counter()
        process = subprocess.Popen(
            [fsf, *arguments],
            cwd=folder,
            env={**os.environ, **places, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{fsf} {' '.join(arguments)} failed: {said}")
    seconds = used.ru_utime + used.ru_stime
    return seconds, time.perf_counter() - started, used.ru_maxrss / 1024


def time_commands(arguments: argparse.Namespace) -> None:
    """Print a line for each command, number of images and ``fsf``."""
    small = commands(write_tables(arguments.folder, 2_000, 50, 20))
    for program in arguments.fsf:
        usage(program, small["fewstab tasks, words in CSV"])
    print(
        f"{arguments.words:,} words, {arguments.classes:,} classes; load {os.getloadavg()[0]:.1f}"
    )
    print(
        f"{'images':>11} {'command':<32} {'cpu s':>7} {'wall s':>7} {'MiB':>7} {'speed-up':>9}  fsf"
    )
    for n_images in arguments.images:
        tables = write_tables(arguments.folder, n_images, arguments.words, arguments.classes)
        for name, command in commands(tables).items():
            rounds = range(arguments.rounds)
            found = np.array([[usage(f, command) for f in arguments.fsf] for _ in rounds])
            speed_ups = np.median(found[:, :1, 0] / found[:, :, 0], axis=0)
            for program, own, ratio in zip(
                arguments.fsf, np.median(found, axis=0), speed_ups, strict=True
            ):
                shown = f"{own[0]:>7.1f} {own[1]:>7.1f} {own[2]:>7.0f} {ratio:>9.1f}"
                print(f"{n_images:>11,} {name:<32} {shown}  {program}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--images",
        type=positive,
        nargs="+",
        default=list(SIZES),
        metavar="N",
        help="numbers of images",
    )
    parser.add_argument("--commands", action="store_true", help="measure commands on tables")
    parser.add_argument(
        "--fsf",
        nargs="+",
        default=[shutil.which("fsf") or "fsf"],
        metavar="PATH",
        help="commands fsf to compare, the baseline first (default: the installed one)",
    )
    for name, usual, what in (
        ("rounds", 3, "times that each command runs"),
        ("words", 2_000, "words of the tables"),
        ("classes", 1_000, "classes of the tables"),
    ):
        parser.add_argument(
            f"--{name}", type=positive, default=usual, metavar="N", help=f"{what} ({usual:,})"
        )
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "fsf-tables", help="of tables"
    )
    parser.add_argument("--way", choices=("streamed", "all at once"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(measure(arguments.way, arguments.images[0])))
        return
    if arguments.commands:
        time_commands(arguments)
        return
    print(
        f"{'images':>8} {'way':<12} {'MiB above 100 images':>21} {'table MiB':>10} {'images/s':>9}"
    )
    for way in ("streamed", "all at once"):
        least = peak(way, 100)["peak"]
        for n_images in arguments.images:
            found = peak(way, n_images)
            print(
                f"{n_images:>8,} {way:<12} {found['peak'] - least:>21.0f} {found['table']:>10.0f} "
                f"{n_images / found['seconds']:>9,.0f}"
            )


if __name__ == "__main__":
    main()
