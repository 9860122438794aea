"""What the scripts that time methods' heads have in common: cases, measurements, and the table.

A head is scored in two forms: by the method, all tasks of a batch in one call, and by a plain form,
one task after the other, with the paper's formulas vectorised within the task. A head without a
plain form of its own is compared with itself, called on one task at a time. The same holds for a
training step, that is loss and gradients of a batch of episodes, by items as a backbone gives them.

Both forms run in turn, again and again, on one thread; times are the process's, and a ratio is the
median of the ratios of single turns, so that other work on the machine hardly affects it.

``MFLOP`` are the floating-point operations of the matrix products and convolutions of a task, which
PyTorch counts as they are called; decompositions, sorting and arithmetic element by element are not
among them. The same products, with the same shapes and strides but nothing between them, are then
called in turn with the head: ``GFLOP/s`` is what the head reaches, and ``products`` what they
reach. A head that takes little longer than its products is bound by its arithmetic.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from _options import positive
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from fsf_backbones import Conv64F
from fsframework.engine.learning.memory import keep_freed_memory
from fsframework.interfaces import Backbone, Batch, FewShotMethod

__all__ = ["N_QUERY", "SHOT", "WAY", "Case", "Flat", "run", "scikit_learn", "support_labels"]

WAY, SHOT, N_QUERY, N_BASE = 5, 5, 75, 64
LEAST_ROUNDS = 4


@dataclass(frozen=True)
class Case:
    """One row.

    Args:
        name: of the head.
        make: creates the method.
        item: shape of an item that the method consumes.
        tasks: per batch, in evaluation.
        plain: scores one task from its embedded support ``(way, shot, *embedded)`` and queries
            ``(n, *embedded)``; ``None`` for the method itself.
        plain_tasks: that the plain form scores in a turn, a divisor of ``tasks``.
        scored: whether to measure scores at all.
        trained: episodes per training step; 0 where nothing is trained on episodes.
        queries: per task.
        wide: shape of what it is trained on, if that is another one.
        backbone: creates the backbone of methods that consume images or are trained on them.
    """

    name: str
    make: Callable[[], FewShotMethod]
    item: tuple[int, ...]
    tasks: int = 16
    plain: Callable[[Any, Tensor, Tensor], Tensor] | None = None
    plain_tasks: int = 2
    scored: bool = True
    trained: int = 4
    queries: int = N_QUERY
    wide: tuple[int, ...] | None = None
    backbone: Callable[[], Backbone] = Conv64F


class Flat(Backbone):
    """Takes images as vectors, so that a method that consumes images is timed without a network."""

    def forward(self, images: Tensor) -> Tensor:
        """Return the images ``(n, 3, H, W)``."""
        return images

    def vectors(self, maps: Tensor) -> Tensor:
        """Return ``(n, 3 * H * W)``."""
        return maps.flatten(1)


def support_labels(way: int = WAY, shot: int = SHOT) -> Tensor:
    """Return the ways of the support images, ``(way * shot,)``."""
    return torch.arange(way).repeat_interleave(shot)


def scikit_learn(method: Any, support: Tensor, query: Tensor) -> Tensor:
    """Fit scikit-learn's logistic regression to one task, with vectors of length 1."""
    items, queries = (normalize(x.flatten(0, -2).numpy()) for x in (support, query))
    model = LogisticRegression(C=1, max_iter=1000).fit(items, support_labels())
    return torch.from_numpy(model.decision_function(queries))


class _Products(TorchDispatchMode):
    """Collects calls whose operations PyTorch counts, with the shapes of their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], object]] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func.overloadpacket in flop_registry and not func.overloadpacket.__name__.endswith("_"):
            like, named = tree_map_only(Tensor, _like, (args, dict(kwargs or {})))
            self.calls.append(partial(func, *like, **named))
        return func(*args, **(kwargs or {}))


def _like(tensor: Tensor) -> Tensor:
    """Return other numbers in the same shape and layout."""
    size, stride = tensor.size(), tensor.stride()
    length = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    return torch.rand(length, dtype=tensor.dtype).as_strided(size, stride)


def _products(form: Callable[[], object]) -> tuple[float, Callable[[], None]]:
    """Return a form's number of operations, and a function that only repeats its products."""
    with FlopCounterMode(display=False) as counter:
        form()
    with _Products() as found:
        form()

    def repeat() -> None:
        for call in found.calls:
            call()

    return float(counter.get_total_flops()), repeat


def _turns(forms: Sequence[Callable[[], object]], seconds: float) -> list[list[float]]:
    """Run forms in turn for about this many seconds; return the times of each."""
    times: list[list[float]] = [[] for _ in forms]
    for form in forms:
        form()
    end = time.perf_counter() + seconds
    while len(times[0]) < LEAST_ROUNDS or time.perf_counter() < end:
        for form, own in zip(forms, times, strict=True):
            start = time.process_time()
            form()
            own.append(time.process_time() - start)
    return times


def _ratio(slow: list[float], fast: list[float]) -> float:
    return statistics.median(s / f for s, f in zip(slow, fast, strict=True))


def _scored(case: Case, seconds: float) -> str:
    """Return the columns of evaluation."""
    method = _built(case, case.item)
    method.eval()
    with torch.no_grad():
        support, query = method.embed_episode(_batch(case, case.item, case.tasks))

        def batched() -> Tensor:
            return method.scores(support, query)

        def of_task(own: Tensor, queries: Tensor) -> Tensor:
            if case.plain is not None:
                return case.plain(method, own, queries)
            return method.scores(own[None], queries[None])[0]

        # So that turns are short, each takes other tasks.
        turns = itertools.cycle(range(0, case.tasks, case.plain_tasks))

        def one_by_one() -> Tensor:
            first = next(turns)
            chosen = slice(first, first + case.plain_tasks)
            tasks = zip(support[chosen], query[chosen], strict=True)
            return torch.stack([of_task(*task) for task in tasks])

        found, expected = batched()[: case.plain_tasks], one_by_one().detach()
        spread = (expected.amax(dim=2) - expected.amin(dim=2)).mean()
        apart = float((found - expected).abs().max() / spread)
        flops, products = _products(batched)
        ours, theirs, bare = _turns([batched, one_by_one, products], seconds)
    fast = 1e3 / case.tasks * statistics.median(ours)
    slow = 1e3 / case.plain_tasks * statistics.median(theirs)
    ratio = _ratio(theirs, ours) * case.tasks / case.plain_tasks
    mflop = flops / case.tasks / 1e6
    speed = mflop / fast
    of_products = f"{speed * _ratio(ours, bare):>9.1f}" if flops else f"{'':>9}"
    return (
        f"{case.tasks:>6}{fast:>10.3f}{slow:>10.3f}{ratio:>7.1f}{apart:>9.0e}"
        f"{mflop:>9.1f}{speed:>9.1f}{of_products}"
    )


def _trained(case: Case, seconds: float) -> str:
    """Return the columns of training."""
    method = _built(case, case.item)
    method.train()
    batch = _batch(case, case.wide or case.item, case.trained)
    assert batch.support is not None
    assert batch.query is not None
    assert batch.query_labels is not None
    leaves = [batch.support.requires_grad_(), batch.query.requires_grad_()]
    leaves += [p for p in method.parameters() if p.requires_grad]
    single = [
        Batch(support=s[None], query=q[None], query_labels=labels[None])
        for s, q, labels in zip(batch.support, batch.query, batch.query_labels, strict=True)
    ]

    def batched() -> None:
        torch.autograd.grad(method.loss(batch), leaves, allow_unused=True)

    def one_by_one() -> None:
        for own in single:
            torch.autograd.grad(method.loss(own), leaves, allow_unused=True)

    ours, theirs = _turns([batched, one_by_one], seconds)
    milliseconds = 1e3 / case.trained
    fast, slow = (milliseconds * statistics.median(times) for times in (ours, theirs))
    return f"{case.trained:>6}{fast:>10.3f}{slow:>10.3f}{_ratio(theirs, ours):>7.2f}"


def _built(case: Case, item: tuple[int, ...]) -> FewShotMethod:
    torch.manual_seed(0)
    method = case.make()
    method.build(item, N_BASE, case.backbone())
    return method


def _batch(case: Case, item: tuple[int, ...], tasks: int) -> Batch:
    """Return rectified noise around a centre per class, as a backbone might give it."""
    generator = torch.Generator().manual_seed(0)
    centres = 0.3 * torch.randn(tasks, WAY, *item, generator=generator)
    labels = (torch.arange(case.queries) % WAY).expand(tasks, -1)
    support = torch.randn(tasks, WAY, SHOT, *item, generator=generator) + centres[:, :, None]
    query = torch.randn(tasks, case.queries, *item, generator=generator) + centres[:, labels[0]]
    return Batch(support=support.relu(), query=query.relu(), query_labels=labels)


def _row(case: Case, seconds: float) -> str:
    items = " x ".join(map(str, case.item))
    scored = _scored(case, seconds) if case.scored else f"{'as its base':>30}{'':>39}"
    trained = _trained(case, seconds) if case.trained else ""
    return f"{case.name:<26}{items:>13}{scored}{trained}"


def run(cases: Sequence[Case], description: str, notes: str = "") -> None:
    """Read the options and print the table."""
    names = [case.name for case in cases]
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument(
        "--seconds", type=positive, default=10, metavar="S", help="per measurement (default: 10)"
    )
    parser.add_argument(
        "heads", nargs="*", metavar="HEAD", help=f"begin with one of {', '.join(names)}"
    )
    options = parser.parse_args()
    chosen = [c for c in cases if any(map(c.name.startswith, options.heads or [""]))]
    keep_freed_memory()
    torch.set_num_threads(1)
    print(f"{WAY}-way {SHOT}-shot; milliseconds per task, one thread, processor time")
    print(
        f"{'head':<26}{'items':>13}{'tasks':>6}{'batched':>10}{'plain':>10}{'ratio':>7}"
        f"{'apart':>9}{'MFLOP':>9}{'GFLOP/s':>9}{'products':>9}"
        f"{'tasks':>6}{'training':>10}{'singly':>10}{'ratio':>7}"
    )
    with threadpool_limits(1):
        for case in chosen:
            print(_row(case, options.seconds), flush=True)
    print("apart: largest difference of a score from the plain form's, over a query's spread")
    if notes:
        print(notes)
