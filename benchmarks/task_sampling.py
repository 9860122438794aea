"""Time and memory of drawing FewSTAB tasks, beside the published generator's.

Run ``python benchmarks/task_sampling.py``; it takes about a minute. Each size has a process of its
own, which reads a synthetic table, draws once to warm up (Numba compiles on the first draw after
installing), then draws 3,000 tasks several times and reports the quickest.

The time is that of ``draw`` from the packed table to the task set, single-threaded, in processor
time, so that other work on the machine disturbs it less. The fingerprints of pool and table, which
belong to the data and are kept with them, are made before and shown apart. Memory is the highest
resident size of the process less that of a bare interpreter: NumPy, Numba, table and tasks.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

N_TASKS, N_WAY, N_QUERY = 3_000, 5, 15
REPETITIONS = 7

# classes, images a class, words, shots; the published generator's milliseconds a task
SIZES = (
    (20, 600, 1_235, 1, 282.0),
    (20, 600, 1_235, 5, 29.6),
    (160, 1_289, 2_532, 1, 478.0),
    (160, 1_289, 2_532, 5, 44.9),
)


def write_bits(file: Path, n_classes: int, n_images: int, n_words: int) -> None:
    """Write the bits of a synthetic table, images sorted by class.

    An image has Poisson(4) words, 55 percent of them from a Zipf law of exponent 1.45 over its
    class's own order of the words, the others from one of exponent 1.75 over a common order.
    """
    import numpy as np

    rng = np.random.default_rng(0)
    rank = np.arange(1, n_words + 1)
    own, common = (np.cumsum(w) / w.sum() for w in (rank**-1.45, rank**-1.75))
    orders = rng.permuted(np.tile(np.arange(n_words), (n_classes, 1)), axis=1)
    counts = rng.poisson(4, n_classes * n_images)
    rows = np.repeat(np.arange(counts.size), counts)
    from_own = rng.random(rows.size) < 0.55
    drawn = rng.random(rows.size)
    of_class = orders[rows // n_images, np.searchsorted(own, drawn)]
    columns = np.where(from_own, of_class, np.searchsorted(common, drawn))
    bits = np.zeros((counts.size, -(-n_words // 8)), np.uint8)
    np.bitwise_or.at(bits, (rows, columns >> 3), (1 << (columns & 7)).astype(np.uint8))
    np.save(file, bits)


def measure(
    file: Path, n_classes: int, n_images: int, n_words: int, n_shot: int, repetitions: int
) -> dict[str, float]:
    """Draw from the table in a file; return milliseconds a task and mebibytes."""
    bare = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    import numpy as np

    from fsf_samplers import FewStabSampler
    from fsframework.values import AttributeTable, ImagePool

    keys = tuple(f"{i:06}" for i in range(n_classes * n_images))
    words = tuple(f"{i:06}" for i in range(n_words))
    bits = np.load(file)
    bits.flags.writeable = False  # the table then takes the array as it is
    table = AttributeTable(keys, words, bits)
    labels = np.repeat(np.arange(n_classes), n_images)
    pool = ImagePool(keys, labels, tuple(f"{i:03}" for i in range(n_classes)), {}, table)
    start = time.process_time()
    _ = pool.key_digest, pool.fingerprint, table.fingerprint
    fingerprints = time.process_time() - start

    sampler = FewStabSampler(n_way=N_WAY, n_shot=n_shot, n_query=N_QUERY)
    tasks = sampler.draw(pool, N_TASKS, 0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for seed in range(repetitions):
        start = time.process_time()
        sampler.draw(pool, N_TASKS, seed)
        seconds.append(time.process_time() - start)
    return {
        "ms": min(seconds, default=0.0) / N_TASKS * 1e3,
        "relaxed": float(tasks.relaxed.mean()),
        "fingerprints": fingerprints * 1e3,
        "memory": (peak - bare) / 1024,
    }


def apart(what: str, *arguments: object) -> str:
    """Do it in a process of its own; this one stays small, since a child's peak starts at it."""
    command = [sys.executable, __file__, f"--{what}", *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=6, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write_bits(Path(given.write[0]), *map(int, given.write[1:]))
        return
    if given.measure:
        print(json.dumps(measure(Path(given.measure[0]), *map(int, given.measure[1:]))))
        return

    print(f"{N_TASKS:,} tasks of {N_WAY} ways and {N_QUERY} queries, best of {REPETITIONS}")
    print(
        "classes x images x words   shot   ms/task   published    ratio"
        "   relaxed   peak MiB   fingerprints ms"
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bits.npy"
        for n_classes, n_images, n_words, n_shot, published in SIZES:
            size = n_classes, n_images, n_words
            apart("write", file, *size)
            apart("measure", file, *size, n_shot, 0)  # compiles, if nothing has before
            result = json.loads(apart("measure", file, *size, n_shot, REPETITIONS))
            print(
                f"{n_classes:>7} x {n_images:>6,} x {n_words:>5,} {n_shot:>6} {result['ms']:>9.3f} "
                f"{published:>11.1f} {published / result['ms']:>8,.0f} {result['relaxed']:>9.0%} "
                f"{result['memory']:>10.0f} {result['fingerprints']:>17.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
