"""Tasks per second of ProtoNet on cached vectors of 640 numbers, through the pipeline's evaluation.

Run ``python benchmarks/protonet_throughput.py``. The baseline, measured in the same run, scores
one task at a time as most libraries do: gather, prototypes, ``torch.cdist``, ``argmax``.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from _options import positive

from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.engine.learning.evaluation import ImageSource, predict
from fsframework.engine.learning.model import FewShotModel
from fsframework.values import ImagePool, TaskSet

N_TASKS, N_CLASSES, N_PER_CLASS, WIDTH, REPETITIONS = 3000, 20, 600, 640, 5
REQUIRED, LIBRARY = 12_000, 1_200


def one_by_one(vectors: torch.Tensor, tasks: TaskSet) -> np.ndarray:
    """Predict one task at a time."""
    found = []
    with torch.no_grad():
        for support, query in zip(tasks.support, tasks.query, strict=True):
            prototypes = vectors[torch.tensor(support)].mean(1)
            distances = torch.cdist(vectors[torch.tensor(query).flatten()], prototypes)
            found.append(distances.argmin(1).reshape(query.shape).numpy())
    return np.stack(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=positive, metavar="N", help="default: PyTorch's choice")
    options = parser.parse_args()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    registry = Registry()
    labels = np.repeat(np.arange(N_CLASSES), N_PER_CLASS)
    keys = tuple(f"{i}" for i in range(labels.size))
    pool = ImagePool(keys, labels, tuple(f"{c}" for c in range(N_CLASSES)))
    tasks = resolve_component(registry, "sampler", "random").create().draw(pool, N_TASKS, 0)
    centres = torch.randn(N_CLASSES, WIDTH, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(labels.size, WIDTH, generator=torch.Generator().manual_seed(1))
    vectors = centres[torch.tensor(labels)] + 5 * noise
    backbone = resolve_component(registry, "backbone", "resnet12").create()
    method = resolve_component(registry, "method", "protonet").create()
    model, source = FewShotModel(backbone, method, 32, 0), ImageSource(vectors)

    def quickest(work: object) -> tuple[float, np.ndarray]:
        best, result = float("inf"), np.empty(0)
        for _ in range(REPETITIONS):
            start = time.perf_counter()
            result = work()  # type: ignore[operator]
            best = min(best, time.perf_counter() - start)
        return N_TASKS / best, result

    baseline, expected = quickest(lambda: one_by_one(vectors, tasks))
    ours, predicted = quickest(lambda: predict(model, tasks, source))
    agreement = float((predicted == expected).mean())
    print(
        f"5-way 5-shot, 15 queries per class, vectors of {WIDTH} numbers, "
        f"{torch.get_num_threads()} thread(s)"
    )
    print(f"{'':<24}{'tasks/s':>10}")
    print(f"{'in batches (pipeline)':<24}{ours:>10,.0f}   required {REQUIRED:,}")
    print(f"{'one by one, this run':<24}{baseline:>10,.0f}   a widely used library: {LIBRARY:,}")
    print(f"{'ratio':<24}{ours / baseline:>10.1f}")
    print(f"{'equal predictions':<24}{agreement:>10.4%}")


if __name__ == "__main__":
    main()
