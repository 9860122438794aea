"""Time to evaluate ResNet-12 ProtoNet on 3,000 tasks of a test set of 12,000 images.

Run ``python benchmarks/evaluation_at_scale.py``; it takes two to five minutes. Tasks are 5-way
5-shot with 15 queries per class and images of 84 x 84 pixels, as FewSTAB and MetaCoCo evaluate on
miniImageNet. The baseline, measured in the same run, works as most libraries do: every task sends
its 100 images through the backbone, in single precision and the default memory layout. Ours embeds
every image once and scores the tasks in batches. Both are measured on fewer images and tasks and
extrapolated; neither includes decoding.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from _options import positive
from torch import Tensor

from fsf_backbones import ResNet12
from fsframework.cli.render import print_table
from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.engine.learning.evaluation import ImageSource, predict
from fsframework.engine.learning.memory import keep_freed_memory
from fsframework.engine.learning.model import build_model
from fsframework.values import ImagePool, TaskSet

CLASSES, IMAGES, TASKS = 20, 12_000, 3_000
PER_CLASS = 20
"""Images of a class in a task."""
REFERENCE_S = 4.8
"""Seconds per task of a published implementation on a quiet machine of two cores."""


class ContiguousResNet12(ResNet12):
    """ResNet-12 in the default memory layout."""

    def forward(self, images: Tensor) -> Tensor:
        """Map images ``(n, 3, H, W)`` to maps ``(n, 640, h, w)``."""
        maps: Tensor = self.stages(images)
        return maps


def quickest(work: Callable[[], object], repeats: int = 3) -> float:
    work()
    found = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)


def drawn(count: int, images: int) -> tuple[ImagePool, TaskSet]:
    names = tuple(f"class {c}" for c in range(CLASSES))
    pool = ImagePool(tuple(map(str, range(images))), np.arange(images) % CLASSES, names)
    sampler = resolve_component(Registry(), "sampler", "random").create()
    return pool, sampler.draw(pool, count, 0)


@torch.no_grad()
def task_by_task(backbone: ResNet12, pixels: np.ndarray, tasks: TaskSet) -> np.ndarray:
    """Predict the queries of one task after the other, which is the baseline."""
    answers = []
    mean = 255 * torch.tensor(backbone.preprocessing.mean)[:, None, None]
    std = 255 * torch.tensor(backbone.preprocessing.std)[:, None, None]
    for support, query in zip(tasks.support, tasks.query, strict=True):
        index = np.concatenate([support.ravel(), query.ravel()])
        images = torch.from_numpy(pixels[index]).permute(0, 3, 1, 2).float()
        vectors = backbone.vectors(backbone(((images - mean) / std).contiguous()))
        prototypes = vectors[: support.size].reshape(*support.shape, -1).mean(dim=1)
        answers.append(torch.cdist(vectors[support.size :], prototypes).argmin(dim=1))
    return torch.stack(answers).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=positive, default=2, metavar="N", help="default: 2")
    parser.add_argument(
        "--images", type=positive, default=400, metavar="N", help="images to embed (default: 400)"
    )
    arguments = parser.parse_args()
    if arguments.images < CLASSES * PER_CLASS:
        parser.error(f"argument --images: must be at least {CLASSES * PER_CLASS}")
    torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    registry = Registry()
    parts = [
        resolve_component(registry, k, n)
        for k, n in (("backbone", "resnet12"), ("method", "protonet"))
    ]
    model = build_model(*parts, 84, 0, 0).eval()
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (arguments.images, 84, 84, 3), dtype=np.uint8)
    plain = ContiguousResNet12().eval()
    plain.load_state_dict(model.extractor.state_dict())
    _, few = drawn(2, arguments.images)
    a_task = quickest(lambda: task_by_task(plain, pixels, few), 2) / len(few)
    _, enough = drawn(200, arguments.images)
    used = np.unique(enough.images)
    _, tasks = drawn(TASKS, IMAGES)
    vectors = ImageSource(torch.randn(IMAGES, 640))
    scoring = quickest(lambda: predict(model, tasks, vectors))
    theirs = a_task * TASKS
    rows = [("task by task, contiguous fp32", f"{a_task:.2f} per task", f"{theirs:,.0f}", "1", "")]
    for precision in ("fp32", "bf16"):
        embedding = quickest(lambda p=precision: ImageSource.computed(model, pixels, used, p), 2)
        whole = embedding / len(used) * IMAGES + scoring
        rows.append(
            (
                f"ours, {precision}",
                f"{100 * embedding / len(used):.2f} per 100 images, "
                f"{1000 * scoring / TASKS:.2f} ms per task",
                f"{whole:,.0f}",
                f"{theirs / whole:.0f}",
                f"{REFERENCE_S * TASKS / whole:.0f}",
            )
        )
    columns = ("way", "seconds", "total, s", "speed-up", f"speed-up over {REFERENCE_S} s per task")
    print_table(columns, rows)


if __name__ == "__main__":
    main()
