"""Time per task of ProtoNet on cached vectors of 640 numbers, with and without drawing the tasks.

Run ``python benchmarks/protonet_throughput.py``. The baseline, measured in the same run, scores
one task at a time as most libraries do: gather, prototypes, ``torch.cdist``, ``argmax``. Where
easyfsl can be imported, its sampler, ProtoNet and FEAT are measured on the same vectors: predicting
alone with tasks gathered from one tensor, with drawing through its data set of features and a
``DataLoader``, as its notebooks do. Times are processor time of one thread, in turns; the
table shows medians, and ratios are medians of the ratios of the turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from _options import positive
from torch.utils.data import DataLoader, Sampler

from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.engine.learning.evaluation import ImageSource, predict
from fsframework.engine.learning.model import FewShotModel
from fsframework.values import ImagePool, TaskSet

N_TASKS, N_CLASSES, N_PER_CLASS, WIDTH, N_WAY, N_SHOT, N_QUERY = 600, 20, 600, 640, 5, 5, 15


def one_by_one(vectors: torch.Tensor, tasks: TaskSet) -> np.ndarray:
    """Predict one task at a time."""
    found = []
    with torch.no_grad():
        for support, query in zip(tasks.support, tasks.query, strict=True):
            prototypes = vectors[torch.tensor(support)].mean(1)
            distances = torch.cdist(vectors[torch.tensor(query).flatten()], prototypes)
            found.append(distances.argmin(1).reshape(query.shape).numpy())
    return np.stack(found)


class Peer:
    """The sampler and two methods of easyfsl on the same vectors."""

    def __init__(self, vectors: torch.Tensor, labels: np.ndarray) -> None:
        from easyfsl.datasets import FeaturesDataset
        from easyfsl.methods import FEAT, PrototypicalNetworks
        from easyfsl.modules import MultiHeadAttention
        from easyfsl.samplers import TaskSampler

        # easyfsl 1.5 passes data_source to the base class, which PyTorch no longer accepts.
        Sampler.__init__ = lambda self, data_source=None: None  # type: ignore[method-assign]
        names = [f"{c}" for c in range(N_CLASSES)]
        self.vectors = vectors
        dataset = FeaturesDataset(labels.tolist(), vectors, names)
        self.sampler = TaskSampler(dataset, N_WAY, N_SHOT, N_QUERY, N_TASKS)
        collate = self.sampler.episodic_collate_fn
        self.loader = DataLoader(dataset, batch_sampler=self.sampler, collate_fn=collate)
        self.labels = torch.arange(N_WAY).repeat_interleave(N_SHOT)
        self.methods = {
            "protonet": PrototypicalNetworks().eval(),
            "feat": FEAT(attention_module=MultiHeadAttention(1, WIDTH, WIDTH, WIDTH)).eval(),
        }

    def predict(self, name: str, items: list[list[int]]) -> np.ndarray:
        """Predict tasks given as the sampler yields them."""
        found = []
        with torch.no_grad():
            for task in items:
                drawn = self.vectors[torch.tensor(task)].unflatten(0, (N_WAY, N_SHOT + N_QUERY))
                self.methods[name].process_support_set(drawn[:, :N_SHOT].flatten(0, 1), self.labels)
                scores = self.methods[name](drawn[:, N_SHOT:].flatten(0, 1))
                found.append(scores.argmax(1).reshape(N_WAY, N_QUERY).numpy())
        return np.stack(found)

    def evaluate(self, name: str) -> np.ndarray:
        """Draw, load and predict tasks as easyfsl's notebooks do."""
        found = []
        with torch.no_grad():
            for support, support_labels, query, *_ in self.loader:
                self.methods[name].process_support_set(support, support_labels)
                found.append(self.methods[name](query).argmax(1).numpy())
        return np.stack(found)


def in_turns(works: dict[str, Callable[[], Any]], turns: int) -> dict[str, list[float]]:
    """Return microseconds of processor time per task of each, after one turn to warm up."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(turns + 1):
        for name, work in works.items():
            start = time.process_time()
            work()
            if turn:
                times[name].append((time.process_time() - start) / N_TASKS * 1e6)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=positive, default=9, metavar="N", help="default: 9")
    options = parser.parse_args()
    torch.set_num_threads(1)
    registry = Registry()
    labels = np.repeat(np.arange(N_CLASSES), N_PER_CLASS)
    keys = tuple(f"{i}" for i in range(labels.size))
    pool = ImagePool(keys, labels, tuple(f"{c}" for c in range(N_CLASSES)))
    sampler = resolve_component(registry, "sampler", "random").create()
    tasks = sampler.draw(pool, N_TASKS, 0)
    centres = torch.randn(N_CLASSES, WIDTH, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(labels.size, WIDTH, generator=torch.Generator().manual_seed(1))
    vectors = centres[torch.tensor(labels)] + 5 * noise
    source = ImageSource(vectors)

    def model(name: str) -> FewShotModel:
        backbone = resolve_component(registry, "backbone", "resnet12").create()
        method = resolve_component(registry, "method", name).create()
        return FewShotModel(backbone, method, 32, 0)

    protonet, feat = model("protonet"), model("feat")
    expected = one_by_one(vectors, tasks)
    print(f"equal predictions: {(predict(protonet, tasks, source) == expected).mean():.4%}")
    works: dict[str, Callable[[], Any]] = {
        "drawing": lambda: sampler.draw(pool, N_TASKS, 0),
        "protonet": lambda: predict(protonet, tasks, source),
        "protonet, drawing": lambda: predict(protonet, sampler.draw(pool, N_TASKS, 0), source),
        "feat": lambda: predict(feat, tasks, source),
        "one by one protonet": lambda: one_by_one(vectors, tasks),
    }
    pairs = [("protonet", "one by one protonet")]
    if importlib.util.find_spec("easyfsl"):
        peer = Peer(vectors, labels)
        items = np.concatenate([tasks.support, tasks.query], axis=2).reshape(N_TASKS, -1).tolist()
        print(f"equal to easyfsl: {(peer.predict('protonet', items) == expected).mean():.4%}")
        works |= {
            "easyfsl drawing": lambda: list(peer.sampler),
            "easyfsl protonet": lambda: peer.predict("protonet", items),
            "easyfsl protonet, drawing": lambda: peer.evaluate("protonet"),
            "easyfsl feat": lambda: peer.predict("feat", items),
        }
        pairs += [(name.removeprefix("easyfsl "), name) for name in works if "easyfsl" in name]
    times = in_turns(works, options.turns)
    print(f"5-way 5-shot, 15 queries per class, {WIDTH} numbers, one thread, load", end=" ")
    print(f"{os.getloadavg()[0]:.1f}\n{'':<28}{'us per task':>12}{'tasks/s':>10}")
    for name, found in times.items():
        median = statistics.median(found)
        print(f"{name:<28}{median:>12.1f}{1e6 / median:>10,.0f}")
    for ours, other in pairs:
        ratio = statistics.median(b / a for a, b in zip(times[ours], times[other], strict=True))
        print(f"{other} / ours: {ratio:.1f}")


if __name__ == "__main__":
    main()
