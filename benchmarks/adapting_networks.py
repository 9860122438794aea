"""Seconds per task in evaluation of the methods that adapt the network, against LibFewShot's.

Run ``python benchmarks/adapting_networks.py FOLDER``, where FOLDER is a checkout of
github.com/RL-VIG/LibFewShot whose requirements are installed; it takes two minutes. A task is 5-way
5-shot with 15 queries per way, images have 84 x 84 pixels, the backbone is Conv-64F with equal
weights. LibFewShot's runs in a process of its own, as it does for its users: importing fsframework
sets how PyTorch gets memory. Both run in turn on one thread; times are the process's, and a ratio
is the median of the ratios of single turns. ``apart`` is the largest difference of a score in fp32,
over the scores' standard deviation. The last column is the share of the rate at which images pass
forward through the backbone in fp32, where a step counts as three passes of the support.
"""

from __future__ import annotations

import argparse
import collections.abc
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from _options import positive
from torch import Tensor
from view_making import _declare_operators

if TYPE_CHECKING:
    from fsf_methods.gradient import BOIL, MAML

WAY, SHOT, QUERIES, RATE = 5, 5, 15, 0.01


def published(name: str) -> Any:
    """Return a method of LibFewShot, whose folder is on the path."""
    _declare_operators()
    collections.Iterable = collections.abc.Iterable  # type: ignore[attr-defined]
    from core.model.backbone.conv_four import Conv64F as Backbone
    from core.model.meta import boil, maml

    shape = {"way_num": WAY, "shot_num": SHOT, "query_num": QUERIES, "train_way": WAY}
    shape |= {"test_way": WAY, "test_shot": SHOT, "test_query": QUERIES}
    where = {"device": torch.device("cpu"), "emb_func": Backbone(is_flatten=True, last_pool=True)}
    if name == "MAML":
        inner = {"lr": RATE, "train_iter": 5, "test_iter": 10}
        return maml.MAML(inner, 1600, **shape, **where)
    rates = {"classifier_lr": RATE, "extractor_lr": RATE}
    return boil.BOIL(rates, 1600, "Once_update", **shape, **where)


@torch.no_grad()
def ours(theirs: Any, name: str) -> MAML | BOIL:
    """Return the same method of ours, with the weights of theirs."""
    from fsf_backbones import Conv64F
    from fsf_methods.gradient import BOIL, MAML

    backbone = Conv64F()
    method = MAML(inner_lr=RATE) if name == "MAML" else BOIL(extractor_lr=RATE, classifier_lr=RATE)
    method.build((3, 84, 84), 0, backbone)
    given = [*theirs.emb_func.parameters(), *theirs.classifier.parameters()]
    for own, value in zip(
        [*backbone.parameters(), *method.classify.parameters()], given, strict=True
    ):
        own.copy_(value)
    return method.eval()


def task() -> Tensor:
    """Return the images of a task, float32 ``(way, shot + queries, 3, 84, 84)``."""
    torch.manual_seed(0)
    return torch.randn(WAY, SHOT + QUERIES, 3, 84, 84) + torch.randn(WAY, 1, 3, 1, 1)


def peer(name: str, images: Tensor) -> tuple[Any, Callable[[], Tensor]]:
    """Return LibFewShot's method, and what scores the task's queries with it."""
    theirs = published(name)
    theirs.eval()
    return theirs, lambda: theirs.set_forward((images.flatten(0, 1), None))[0].detach()


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def serve(name: str) -> None:
    """Score with LibFewShot's method whenever a line comes, and print the seconds."""
    with contextlib.redirect_stdout(sys.stderr):  # it tells what it lacks
        _, call = peer(name, task())
        call()
    for _ in sys.stdin:
        print(seconds(call), flush=True)


def row(name: str, folder: Path, turns: int) -> tuple[str, ...]:
    usual = {**os.environ, "THP_MEM_ALLOC_ENABLE": "0"}  # as without fsframework
    command = [sys.executable, __file__, str(folder), "--serve", name]
    pipe = subprocess.PIPE
    server = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=usual, bufsize=1)
    assert server.stdin is not None
    assert server.stdout is not None
    images = task()
    support, query = images[None, :, :SHOT], images[:, SHOT:].flatten(0, 1)[None]
    theirs, expected = peer(name, images)
    method = ours(theirs, name)

    @torch.no_grad()
    def scores(*, half: bool = False) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            return method.scores(support, query)

    @torch.no_grad()
    def forward() -> None:
        for part in images.flatten(0, 1).split(25):
            method.backbone.encode(part)

    found = scores()[0]
    apart = float((expected() - found).abs().max() / found.std())
    times = []
    for _ in range(turns):
        print("next", file=server.stdin, flush=True)
        slow = float(server.stdout.readline())
        calls = (scores, lambda: scores(half=True), forward)
        times.append([slow, *(seconds(call) for call in calls)])
    server.communicate()
    slow, full, half, once = (statistics.median(of_one) for of_one in zip(*times, strict=True))
    ratios = [statistics.median(turn[0] / turn[i] for turn in times) for i in (1, 2)]
    passes = 3 * method.test_steps * WAY * SHOT + WAY * QUERIES
    share = passes / images.flatten(0, 1).shape[0] * once / full
    return (
        name, f"{slow:.2f}", f"{full:.2f}", f"{ratios[0]:.2f}", f"{half:.2f}", f"{ratios[1]:.2f}",
        f"{apart:.0e}", f"{share:.0%}",
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a checkout of LibFewShot")
    parser.add_argument("--turns", type=positive, default=5, metavar="N", help="default: 5")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(options.folder))
    torch.set_num_threads(1)
    if options.serve:
        serve(options.serve)
        return
    from fsframework.cli.render import print_table
    from fsframework.engine.learning.memory import keep_freed_memory

    keep_freed_memory()
    columns = ("method", "LibFewShot, s", "fp32, s", "ratio", "bf16, s", "ratio", "apart", "share")
    print_table(columns, [row(name, options.folder, options.turns) for name in ("BOIL", "MAML")])
    print("load of the machine:", *(f"{load:.1f}" for load in os.getloadavg()))


if __name__ == "__main__":
    main()
