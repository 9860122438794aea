"""Images per second that the data set ``planted`` renders on one core.

Run ``python benchmarks/planted_rendering.py``; it takes half a minute.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy starts its threads

import time

import numpy as np
from _options import positive

from fsf_datasets import Planted

FLOOR = 1000  # images per second at 84 pixels
N_IMAGES, N_REPEATS = 1000, 5


def images_per_second(data: Planted, size: int) -> float:
    """Return the best of several runs, in images per second of processor time."""
    chosen = np.random.default_rng(0).permutation(len(data.keys))[:N_IMAGES]
    data.images(chosen[:10], size)  # the first call draws contours and poses
    seconds = []
    for _ in range(N_REPEATS):
        start = time.process_time()
        data.images(chosen, size)
        seconds.append(time.process_time() - start)
    return N_IMAGES / min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--sizes",
        type=positive,
        nargs="+",
        default=[32, 84, 224],
        metavar="PIXELS",
        help="default: 32 84 224",
    )
    options = parser.parse_args()
    start = time.process_time()
    data = Planted()
    construction = time.process_time() - start
    print(
        f"{len(data.keys)} images with words and captions: {construction:.3f} s without rendering"
    )
    print(f"{'size':>5} {'images/s':>9} {'of the floor':>13}")
    for size in options.sizes:
        rate = images_per_second(data, size)
        ratio = f"{rate / FLOOR:.2f}" if size == 84 else "-"
        print(f"{size:>5} {rate:>9.0f} {ratio:>13}")
    print(f"floor: {FLOOR} images/s at 84 pixels on one core")


if __name__ == "__main__":
    main()
