"""Time and memory of drawing attribute-biased tasks, compared with the definition in NumPy.

Run ``python benchmarks/task_sampling.py``; it takes a few minutes. ``--constructions`` adds the
paper's other constructions. Each size runs in a separate process, which reads a synthetic table,
draws once to warm up (Numba compiles on the first draw after installing), then draws 3,000 tasks
several times and reports the shortest time.

The time is that of ``draw``, from the table to the task set, on one thread, in processor
time, so other work on the machine hardly matters. ``literal`` is the time of a few tasks drawn in
the same process by the same definition, one class and one word at a time, from booleans.
The fingerprints of pool and table belong to the data and are stored with them, so they are computed
first and shown separately. Memory is the peak resident size of the process minus that of a bare
interpreter: NumPy, Numba, table and tasks.
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
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fsframework.values import AttributeTable

N_TASKS, N_WAY, N_QUERY = 3_000, 5, 15
REPETITIONS, N_LITERAL = 5, 8


class Size(NamedTuple):
    """The size of a table and of the support: classes, images per class, words and shots."""

    n_classes: int
    n_images: int
    n_words: int
    n_shot: int


class Construction(NamedTuple):
    """A sampler, and its options ``support`` and ``query`` where it has them."""

    sampler: str
    support: str = ""
    query: str = ""


SIZES = (
    Size(20, 600, 1_235, 1),
    Size(20, 600, 1_235, 5),
    Size(160, 1_289, 2_532, 1),
    Size(160, 1_289, 2_532, 5),
)

METACOCO = 20, 155, 12_268
"""Classes, contexts and images of MetaCoCo's test split (Zhang et al. 2024, Table 1)."""

CONSTRUCTIONS = (
    Construction("fewstab", "exclusive", "inter-least"),
    Construction("fewstab-published"),
    Construction("fewstab", "exclusive", "inter"),
    Construction("fewstab", "exclusive", "intra"),
    Construction("fewstab", "targeted", "inter-least"),
    Construction("fewstab", "random", "inter-least"),
)
"""The first two are always measured."""


def write_words(file: Path, n_classes: int, n_images: int, n_words: int) -> None:
    """Write the words of the images of a synthetic table, with the images sorted by class.

    An image has Poisson(4) words. A word has a probability of 55 % to be drawn by a Zipf law of
    exponent 1.45 over its class's own order of the words, else by one of exponent 1.75 over an
    order that all classes share.
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
    image, word = np.divmod(np.unique(rows * n_words + columns), n_words)
    indptr = np.searchsorted(image, np.arange(counts.size + 1))
    np.savez(file, indptr=indptr, indices=word.astype(np.int32))


class Literal:
    """Draws tasks by the definitions as written, from one matrix of booleans per class."""

    def __init__(self, table: AttributeTable, n_classes: int, n_shot: int) -> None:
        import numpy as np

        has = np.zeros((len(table), len(table.words)), bool)
        has[np.repeat(np.arange(len(table)), np.diff(table.indptr)), table.indices] = True
        self.has = np.split(has, n_classes)
        present = np.array([has.sum(axis=0) for has in self.has])
        absent = len(self.has[0]) - present
        self.spurious = (present >= n_shot) & (absent > 0)
        self.eligible = (present >= n_shot) & (absent >= N_QUERY)
        self.words = np.flatnonzero(self.eligible.any(axis=0))
        self.n_shot = n_shot
        self.rng = np.random.default_rng(0)

    def fewstab(self) -> None:
        """Draw a task of ``fewstab`` with its default constructions."""
        import numpy as np

        while True:
            classes = self.rng.choice(len(self.has), N_WAY, replace=False)
            selected: list[int] = []
            for label in classes:
                words = np.setdiff1d(np.flatnonzero(self.spurious[label]), selected)
                if words.size:
                    selected.append(int(self.rng.choice(words)))
            if len(selected) == N_WAY and all(
                self.images(label, selected, way) for way, label in enumerate(classes)
            ):
                return

    def images(self, label: int, selected: list[int], way: int) -> bool:
        """Draw the images of a way; return whether there are enough."""
        import numpy as np

        has = self.has[label]
        own, others = has[:, selected[way]], has[:, np.delete(selected, way)].any(axis=1)
        support, intra = np.flatnonzero(own & ~others), np.flatnonzero(~own)
        if support.size < self.n_shot or intra.size < N_QUERY:
            return False
        self.rng.choice(support, self.n_shot, replace=False)
        inter = np.flatnonzero(~own & others)
        candidates = has[inter if inter.size >= N_QUERY else intra]
        share = candidates.mean(axis=0)
        share[selected] = 0
        np.argsort(candidates @ share)[:N_QUERY]
        return True

    def published(self) -> None:
        """Draw a task of ``fewstab-published``."""
        import numpy as np

        failed = [0, 0]
        while True:
            selected = self.rng.choice(self.words, N_WAY, replace=False)
            eligible = self.eligible[:, selected]
            classes: list[int] = []
            for way in range(N_WAY):
                free = np.flatnonzero(eligible[:, way] & (eligible.sum(axis=1) > 1))
                free = np.setdiff1d(free, classes)
                if free.size:
                    classes.append(int(self.rng.choice(free)))
            if len(classes) == N_WAY and self.all_images(classes, selected, failed):
                return

    def all_images(self, classes: list[int], selected: Any, failed: list[int]) -> bool:
        """Draw the images of a task; return whether there are enough."""
        import numpy as np

        shown = [self.has[label][:, selected] for label in classes]
        for way, has in enumerate(shown):
            others = has.sum(axis=1) - has[:, way]
            support = np.flatnonzero(has[:, way] & (others <= failed[0] // 5))
            if support.size < self.n_shot:
                failed[0] += 1
                return False
            failed[0] = 0
            self.rng.choice(support, self.n_shot, replace=False)
        for way, has in enumerate(shown):
            lacks = ~has[:, way] & (has.any(axis=1) | (failed[1] >= 5))
            if lacks.sum() < N_QUERY:
                failed[1] += 1
                return False
            failed[1] = 0
            words = np.setdiff1d(self.words, selected)
            candidates = self.has[classes[way]][lacks][:, words]
            score = np.log(candidates * candidates.mean(axis=0) + 1e-10).sum(axis=1)
            np.argsort(score)[:N_QUERY]
        return True


def measure(
    file: Path, size: Size, repetitions: int, construction: Construction
) -> dict[str, float]:
    """Draw from the table in a file and return milliseconds per task and MiB.

    Without repetitions, draw a single task, which compiles the sampler where necessary.
    """
    n_classes, n_images, n_words, n_shot = size
    bare = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    import numpy as np

    from fsf_samplers import FewStabPublishedSampler, FewStabSampler
    from fsframework.values import AttributeTable, ImagePool

    keys = tuple(f"{i:06}" for i in range(n_classes * n_images))
    words = tuple(f"{i:06}" for i in range(n_words))
    stored = np.load(file)
    table = AttributeTable(keys, words, stored["indptr"], stored["indices"])
    labels = np.repeat(np.arange(n_classes), n_images)
    pool = ImagePool(keys, labels, tuple(f"{i:03}" for i in range(n_classes)), {}, table)
    start = time.process_time()
    _ = pool.key_digest, pool.fingerprint, table.fingerprint
    fingerprints = time.process_time() - start

    numbers: dict[str, Any] = {"n_way": N_WAY, "n_shot": n_shot, "n_query": N_QUERY}
    if construction.sampler == "fewstab":
        options = {"support": construction.support, "query": construction.query}
        sampler: Any = FewStabSampler(**numbers, **options)
    else:
        sampler = FewStabPublishedSampler(**numbers)
    tasks = sampler.draw(pool, N_TASKS if repetitions else 1, 0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for seed in range(repetitions):
        start = time.process_time()
        sampler.draw(pool, N_TASKS, seed)
        seconds.append(time.process_time() - start)

    literal = 0.0
    if repetitions and construction in CONSTRUCTIONS[:2]:
        drawn_by = Literal(table, n_classes, n_shot)
        draw = drawn_by.fewstab if construction.sampler == "fewstab" else drawn_by.published
        start = time.process_time()
        for _ in range(N_LITERAL):
            draw()
        literal = (time.process_time() - start) / N_LITERAL * 1e3
    return {
        "ms": min(seconds, default=0.0) / N_TASKS * 1e3,
        "literal": literal,
        "relaxed": float(tasks.relaxed.mean()),
        "fingerprints": fingerprints * 1e3,
        "memory": (peak - bare) / 1024,
    }


def measure_contexts(n_shot: int, arm: str) -> dict[str, float]:
    """Draw by context from a pool of MetaCoCo's size and return milliseconds per task.

    Every class has 31 of the 155 contexts, of Zipf-like sizes.
    """
    import numpy as np

    from fsf_samplers import ContextSampler
    from fsframework.interfaces import TaskSampler
    from fsframework.values import ImagePool

    n_classes, n_contexts, n_images = METACOCO
    rng = np.random.default_rng(0)
    labels = np.arange(n_images) % n_classes
    places = rng.choice(31, n_images, p=1 / np.arange(1, 32) / np.sum(1 / np.arange(1, 32)))
    own = np.array([rng.choice(n_contexts, 31, replace=False) for _ in range(n_classes)])
    context = own[labels, places]
    keys = tuple(f"{i:06}" for i in range(n_images))
    names = tuple(f"{i:03}" for i in range(n_classes))
    pool = ImagePool(keys, labels, names, {"context": tuple(f"{c:03}" for c in context)})
    _ = pool.key_digest, pool.fingerprint
    sampler: TaskSampler = ContextSampler(n_shot=n_shot, n_query=N_QUERY)
    control = sampler.control()
    if control is not None and arm == control.arms[0]:
        sampler = control.sampler
    sampler.draw(pool, N_TASKS, 0)
    seconds = []
    for seed in range(REPETITIONS):
        start = time.process_time()
        sampler.draw(pool, N_TASKS, seed)
        seconds.append(time.process_time() - start)

    def literal() -> None:
        for label in rng.choice(n_classes, N_WAY, replace=False):
            mine = labels == label
            sizes = np.bincount(context[mine], minlength=n_contexts)
            first, second = rng.choice(np.flatnonzero(sizes >= n_shot + N_QUERY), 2, replace=False)
            support = rng.choice(np.flatnonzero(mine & (context == first)), n_shot, replace=False)
            queried = np.flatnonzero(mine & (context == (first if arm == "iid" else second)))
            rng.choice(np.setdiff1d(queried, support), N_QUERY, replace=False)

    start = time.process_time()
    for _ in range(100):
        literal()
    return {
        "ms": min(seconds) / N_TASKS * 1e3,
        "literal": (time.process_time() - start) / 100 * 1e3,
    }


def apart(what: str, *arguments: object) -> str:
    """Run this script in a separate process and return its output.

    This process stays small, since the peak of a child includes the size of its parent.
    """
    command = [sys.executable, __file__, f"--{what}", *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--constructions", action="store_true", help="also measure the paper's other constructions"
    )
    parser.add_argument("--contexts", action="store_true", help="measure only the sampler context")
    parser.add_argument("--write", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=9, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write_words(Path(given.write[0]), *map(int, given.write[1:]))
        return
    if given.measure:
        file, *numbers = given.measure[:6]
        *size, repetitions = map(int, numbers)
        chosen = Construction(*given.measure[6:])
        print(json.dumps(measure(Path(file), Size(*size), repetitions, chosen)))
        return

    print(f"{N_TASKS:,} tasks of {N_WAY} ways and {N_QUERY} queries, best of {REPETITIONS}")
    print("classes x contexts, images   shot   ms/task   literal    ratio    tasks/s   sampler")
    for n_shot, arm in ((1, "iid"), (1, "ood"), (5, "iid"), (5, "ood")):
        found = measure_contexts(n_shot, arm)
        print(
            f"{METACOCO[0]:>7} x {METACOCO[1]}, {METACOCO[2]:>12,} {n_shot:>6} {found['ms']:>9.3f} "
            f"{found['literal']:>9.2f} {found['literal'] / found['ms']:>8,.0f} "
            f"{1e3 / found['ms']:>10,.0f}   context {arm}",
            flush=True,
        )
    if given.contexts:
        return
    print()
    print(
        "classes x images x words   shot   ms/task   literal    ratio   relaxed   peak MiB"
        "   fingerprints ms   sampler"
    )
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            file = Path(folder) / f"words{size.n_classes}.npz"
            if not file.exists():
                apart("write", file, *size[:3])
            for one in CONSTRUCTIONS if given.constructions else CONSTRUCTIONS[:2]:
                apart("measure", file, *size, 0, *one)  # compiles where necessary
                result = json.loads(apart("measure", file, *size, REPETITIONS, *one))
                literal, ratio = result["literal"], result["literal"] / result["ms"]
                compared = f"{literal:>9.1f} {ratio:>8,.0f}" if literal else f"{'':>18}"
                print(
                    f"{size.n_classes:>7} x {size.n_images:>6,} x {size.n_words:>5,} "
                    f"{size.n_shot:>6} "
                    f"{result['ms']:>9.3f} {compared} {result['relaxed']:>9.0%} "
                    f"{result['memory']:>10.0f} {result['fingerprints']:>17.0f}   "
                    f"{' '.join(one)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
