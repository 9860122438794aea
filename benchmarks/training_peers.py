"""Training steps beside plain PyTorch and beside LibFewShot, as ratios of processor time.

Run ``python benchmarks/training_peers.py``, or name rows; each takes seconds to a minute. SimCLR
and MoCo, with their views, stand beside plain loops written from the papers: torchvision's
transforms image by image, the default memory layout, the loss as its formula. With ``--libfewshot
FOLDER``, a checkout of LibFewShot with what it needs installed, the other rows stand beside its
models: forward, backward and Adam on one 5-way 5-shot task of 100 images of 84 x 84 pixels through
Conv-64F, without reading and changing the images. Ours is measured with bfloat16 too, as an option
gives it. Each side has a process with one thread, set up as its users have it; they take turns, and
the medians of the ratios count. FGFL is measured on a ResNet-12, the only backbone that it has
there, with 20 images.
"""

from __future__ import annotations

import argparse
import collections
import collections.abc
import contextlib
import copy
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from _options import one_of, positive
from torch import Tensor, nn
from torch.nn import functional
from training_step import N_BASE, N_QUERY, SHOT, WAY, ContiguousConv64F, batch_of
from view_making import SimCLR_kernel, _declare_operators

from fsf_backbones import Conv64F, ResNet12
from fsf_methods.local import DeepBDC
from fsf_methods.metric import CAN, DN4, R2D2, ProtoNet, RENet
from fsf_methods.sets import DSN, FGFL
from fsf_self_supervised import methods, views
from fsframework.engine.learning.memory import keep_freed_memory
from fsframework.interfaces import Backbone, Batch, FewShotMethod

SIZE, QUEUE, MOMENTUM = 84, 4096, 0.999
SIDES = ("ours", "bfloat16", "peer")
Step = Callable[[], object]


def head() -> nn.Sequential:
    """Return the projection of both papers: two layers, 128 numbers."""
    return nn.Sequential(nn.Linear(1600, 1600), nn.ReLU(), nn.Linear(1600, 128))


def transform(jitter: tuple[float, ...], least: float) -> Callable[[Tensor], Tensor]:
    """Return torchvision's transforms that make one view of one image."""
    _declare_operators()
    from torchvision.transforms import v2

    return v2.Compose(
        [
            v2.RandomResizedCrop(SIZE, (least, 1.0)),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(*jitter)], 0.8),
            v2.RandomGrayscale(0.2),
            v2.RandomApply([v2.GaussianBlur(SimCLR_kernel(SIZE), (0.1, 2.0))], 0.5),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )


def plain_simclr(images: list[Tensor]) -> Step:
    """Return a step of Chen et al. 2020, "A Simple Framework", algorithm 1."""
    network = nn.Sequential(ContiguousConv64F(), nn.Flatten(), head())
    optimiser = torch.optim.Adam(network.parameters(), 1e-3)
    view = transform((0.8, 0.8, 0.8, 0.2), 0.08)

    def step() -> None:
        shown = torch.stack([view(image) for _ in range(2) for image in images])
        rows = functional.normalize(network(shown), dim=1)
        cosines = (rows @ rows.T / 0.5).fill_diagonal_(-torch.inf)
        loss = functional.cross_entropy(cosines, torch.arange(len(rows)).roll(len(images)))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return step


def plain_moco(images: list[Tensor]) -> Step:
    """Return a step of He et al. 2020, "Momentum Contrast", algorithm 1, with MoCo v2's head."""
    network = nn.Sequential(ContiguousConv64F(), nn.Flatten(), head())
    slow = copy.deepcopy(network).requires_grad_(False)
    optimiser = torch.optim.Adam(network.parameters(), 1e-3)
    view = transform((0.4, 0.4, 0.4, 0.1), 0.2)
    queue = functional.normalize(torch.randn(QUEUE, 128), dim=1)

    def step() -> None:
        nonlocal queue
        first, second = (torch.stack([view(image) for image in images]) for _ in range(2))
        asked = functional.normalize(network(first), dim=1)
        with torch.no_grad():
            for own, followed in zip(slow.parameters(), network.parameters(), strict=True):
                own.mul_(MOMENTUM).add_(followed, alpha=1 - MOMENTUM)
            keys = functional.normalize(slow(second), dim=1)
        logits = torch.cat([(asked * keys).sum(1, keepdim=True), asked @ queue.T], dim=1) / 0.2
        loss = functional.cross_entropy(logits, torch.zeros(len(asked), dtype=torch.int64))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        queue = torch.cat([keys, queue])[:QUEUE]

    return step


def our_pairs(method: FewShotMethod, pixels: Tensor) -> Step:
    """Return the same step of a method that learns from views."""
    backbone = Conv64F()
    method.build((1600,), 0, backbone)
    optimiser = torch.optim.Adam([p for p in method.parameters() if p.requires_grad], 1e-3)

    def step() -> None:
        assert method.views is not None
        with torch.no_grad():
            made = method.views.make(pixels.permute(0, 3, 1, 2) / 255)
            flat = made.images.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        shown = flat.unflatten(0, (len(pixels), -1))
        optimiser.zero_grad()
        method.loss(Batch(views=shown, applied=made.applied)).backward()
        optimiser.step()
        carried, method.carried = method.carried, {}
        with torch.no_grad():
            method.after_step({name: tensor.detach() for name, tensor in carried.items()})

    return step


PAIRS: dict[str, tuple[Callable[[], FewShotMethod], Callable[[list[Tensor]], Step]]] = {
    "SimCLR": (lambda: methods.SimCLR(views=views.SimCLR()), plain_simclr),
    "MoCo": (
        lambda: methods.MoCo(views=views.MoCoV2(), queue=QUEUE, parts=1),
        plain_moco,
    ),
}


@dataclass(frozen=True)
class Row:
    """A method beside LibFewShot's, with the options of its configuration there."""

    make: Callable[[], FewShotMethod]
    options: dict[str, object] = field(default_factory=dict)
    pooled: bool = True
    peer: str = ""
    shot: int = SHOT
    n_query: int = N_QUERY

    def backbone(self) -> Backbone:
        """Return our backbone."""
        if self.peer:
            return ResNet12(drop_rate=0.1)
        return Conv64F(last_pool=self.pooled)


ROWS = {
    "ProtoNet": Row(ProtoNet),
    "R2D2": Row(R2D2),
    "DSN": Row(DSN, {"discriminative": True}),
    "DN4": Row(DN4, {"n_k": 3}, pooled=False),
    "CAN": Row(CAN, {"scale_cls": 7, "num_class": N_BASE, "nFeat": 64, "HW": 10}, pooled=False),
    "RENet": Row(
        RENet,
        {
            "feat_dim": 64,
            "num_classes": N_BASE,
            "lambda_epi": 0.25,
            "temperature": 0.2,
            "temperature_attn": 5.0,
        },
    ),
    "DeepBDC": Row(DeepBDC, pooled=False),
    "FGFL": Row(
        lambda: FGFL(regulariser_temperature=32),
        {"temperature2": 32, "balance": 0.01, "use_euclidean": True},
        peer="GAINModel",
        shot=1,
        n_query=15,
    ),
}


def ours(row: Row, images: Tensor) -> Step:
    """Return our step on one task."""
    backbone, method = row.backbone(), row.make()
    shapes = {"images": (3, SIZE, SIZE), "maps": (64, *([5, 5] if row.pooled else [10, 10]))}
    method.build(shapes.get(method.consumes, (1600,)), N_BASE, backbone)
    both = nn.ModuleList([backbone, method])
    optimiser = torch.optim.Adam([p for p in both.parameters() if p.requires_grad], 1e-3)

    def step() -> None:
        optimiser.zero_grad()
        method.loss(batch_of(backbone, method, images, 1, row.shot)).backward()
        optimiser.step()

    return step


def theirs(folder: Path, name: str, images: Tensor) -> Step:
    """Return LibFewShot's step on one task."""
    collections.Iterable = collections.abc.Iterable  # type: ignore[attr-defined]
    _declare_operators()
    sys.path.append(str(folder))
    import core.model as peers
    from core.model.backbone.utils.bdc_pool import BdcPool

    row = ROWS[name]
    flat = name in ("ProtoNet", "R2D2", "DSN")
    backbone = peers.Conv64F(is_flatten=flat, last_pool=row.pooled)
    if name == "DeepBDC":
        backbone = nn.Sequential(backbone, BdcPool(input_dim=(64, 10, 10)))
    shape = {"way": WAY, "shot": row.shot, "query": row.n_query // WAY}
    model = getattr(peers, row.peer or name)(
        emb_func=backbone,
        device=torch.device("cpu"),
        **{f"{key}_num": value for key, value in shape.items()},
        **{f"test_{key}": value for key, value in shape.items()},
        **row.options,
    )
    model.train()
    # R2D2 there calls a function that PyTorch no longer has, and CAN and RENet ask for a GPU.
    torch.solve = lambda b, a: (torch.linalg.solve(a, b), None)  # type: ignore[assignment, misc]
    Tensor.cuda = lambda tensor: tensor  # type: ignore[assignment, method-assign, misc]
    labels = torch.arange(WAY)[None, :, None].expand(1, WAY, len(images) // WAY)
    shown: object = [images, labels]
    if name == "RENet":  # the loss of its base classes is of further images
        shown = [images, labels, images, labels.flatten()]
    elif name == "FGFL":
        shown = images
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)

    def step() -> None:
        _, _, loss = model(shown)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return step


def serve(pipe: Connection, side: str, name: str, given: argparse.Namespace) -> None:
    """Make steps of one side when asked, and answer with their seconds."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if side == "peer":
        os.environ["THP_MEM_ALLOC_ENABLE"] = "0"  # as without fsframework
    else:
        keep_freed_memory()
    if name in PAIRS:
        method, plain = PAIRS[name]
        pixels = torch.randint(0, 256, (given.batch, SIZE, SIZE, 3), dtype=torch.uint8)
        single = list(pixels.permute(0, 3, 1, 2).contiguous())
        step = plain(single) if side == "peer" else our_pairs(method(), pixels)
    else:
        row = ROWS[name]
        images = torch.randn(WAY * row.shot + row.n_query, 3, SIZE, SIZE)
        with contextlib.redirect_stdout(None):  # it tells its devices
            step = theirs(given.libfewshot, name, images) if side == "peer" else ours(row, images)
    while pipe.recv():
        start = time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=side == "bfloat16"):
            step()
        pipe.send(time.process_time() - start)


def measured(name: str, given: argparse.Namespace) -> None:
    """Print a row: seconds of each side, and the medians of the peer's ratios to both of ours."""
    context = multiprocessing.get_context("spawn")
    pipes = []
    for side in SIDES:
        pipe, end = context.Pipe()
        context.Process(target=serve, args=(end, side, name, given), daemon=True).start()
        end.close()
        pipes.append(pipe)
    seconds: list[list[float]] = []
    for _ in range(given.turns + 1):
        row = []
        for pipe in pipes:
            pipe.send(True)
            row.append(pipe.recv())
        seconds.append(row)
    for pipe in pipes:
        pipe.send(False)
    columns = [f"{statistics.median(column):.3f}" for column in zip(*seconds[1:], strict=True)]
    ratios = [
        f"{statistics.median(row[2] / row[side] for row in seconds[1:]):.2f}" for side in (0, 1)
    ]
    print_row(name, *columns, *ratios, f"{os.getloadavg()[0]:.1f}")


def print_row(first: str, *others: str) -> None:
    """Print a row of the table."""
    print(f"{first:<12}" + "".join(f"{text:>12}" for text in others), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--libfewshot", type=Path, metavar="FOLDER", help="a checkout of it")
    parser.add_argument("--turns", type=positive, default=5, help="measured pairs (default: 5)")
    parser.add_argument("--batch", type=positive, default=64, help="images of SimCLR and MoCo")
    parser.add_argument("rows", nargs="*", type=one_of([*PAIRS, *ROWS]), metavar="ROW")
    given = parser.parse_args()
    print_row("step", *(f"{side} s" for side in SIDES), "ratio", "bfloat16", "load")
    for name in given.rows or [*PAIRS, *(ROWS if given.libfewshot else ())]:
        if name in ROWS and given.libfewshot is None:
            parser.error(f"{name} needs --libfewshot")
        measured(name, given)


if __name__ == "__main__":
    main()
