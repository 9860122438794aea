"""Peak memory of detection, from images to a table, by number of images.

Run ``python benchmarks/attribute_memory.py``; it takes about two minutes, mostly to draw images. A
made-up captioner describes made-up images of 128 pixels with words that follow a Zipf law, so the
figures are those of the pipeline: reading, the log of captions, selection and table. Each line is a
separate process. Memory is its peak resident size minus that of a process that describes 100
images; the next column is the size of the table itself (bits, keys and captions). The baseline,
measured in the same run, reads all images, describes them, and stores the words as sets until the
table is built.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
from _options import positive

import fsframework as fsf
from fsframework.interfaces import Captioner, Dataset, WordSelector
from fsframework.values import AttributeTable

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
    held = table.bits.nbytes + sum(map(sys.getsizeof, (*table.keys, *table.captions)))
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"peak": highest / 2**20, "seconds": seconds, "table": held / 2**20}


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
    parser.add_argument("--way", choices=("streamed", "all at once"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(measure(arguments.way, arguments.images[0])))
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
