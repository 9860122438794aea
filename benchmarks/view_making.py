"""Images per second whose views are made, against torchvision image by image.

Run ``python benchmarks/view_making.py``; it takes about two minutes. Each maker of views
makes the views of 128 random images at once; torchvision's transforms (v2) make the same kinds of
views of one image after the other. Both start from uint8 pixels, ours in the layout in which
training reads them, and end in one batch of floats. Both run in turn and the median of the ratios
counts; with ``--threads 1`` they are ratios of processor time, which other work hardly affects.
``augment`` is what ``training.augment`` does to a batch, against Kornia's own operations for the
same changes; ``colours`` is the changes of colour within ``simclr``, against Kornia's.

The second table is a training step of SimCLR, Conv-64F on 128 images: the share of its time that
its views take. It needs ``fsf-self-supervised``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from _options import positive
from kornia import augmentation
from torch import Tensor, nn

from fsf_backbones import Conv64F
from fsf_self_supervised.methods import SimCLR as SimCLRMethod
from fsf_self_supervised.views import (
    ColorPermutation,
    Jigsaw,
    MoCoV2,
    MultiCrop,
    Patches,
    Rotation,
    SimCLR,
)
from fsf_self_supervised.views._color import jittered
from fsframework.engine.learning.augmentation import augmented
from fsframework.engine.learning.memory import keep_freed_memory
from fsframework.interfaces import Batch, ViewMaker

N = 128
Form = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=positive, default=7, help="measurements of each form")
    parser.add_argument("--threads", type=positive, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    keep_freed_memory()
    _declare_operators()
    print(f"{'views':24}  {'pixels':>6}  {'images/s':>9}  {'reference':>9}  {'ratio':>5}")
    for size in (32, 42, 84):
        pixels = torch.randint(0, 256, (N, size, size, 3), dtype=torch.uint8)
        for name, ours, other in _forms(pixels):
            seconds, ratio = _compared(ours, other, given.turns)
            rates = f"{N / seconds:9,.0f}  {N / seconds / ratio:9,.0f}"
            print(f"{name:24}  {size:6}  {rates}  {ratio:5.1f}")
    print(f"\n{'step of simclr':24}  {'pixels':>6}  {'images/s':>9}  {'views':>6}")
    for size in (32, 42, 84):
        share, rate = _step(size, given.turns)
        print(f"{'':24}  {size:6}  {rate:9,.0f}  {share:6.1%}")


_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
"""Kept, since what it declares ends with it."""


def _declare_operators() -> None:
    """Declare operators of torchvision that its wheel cannot load beside PyTorch's for CPUs."""
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            _LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _forms(pixels: Tensor) -> list[tuple[str, Form, Form]]:
    """Return name, batched form and reference of each case."""
    from torchvision.transforms import v2

    size = pixels.shape[1]
    single = list(pixels.permute(0, 3, 1, 2).contiguous())
    images = _floats(pixels)
    blur = v2.RandomApply([v2.GaussianBlur(SimCLR_kernel(size), (0.1, 2.0))], 0.5)

    def random(scale: tuple[float, float], jitter: tuple[float, ...], side: int) -> v2.Compose:
        return v2.Compose(
            [
                v2.RandomResizedCrop(side, scale),
                v2.RandomHorizontalFlip(),
                v2.RandomApply([v2.ColorJitter(*jitter)], 0.8),
                v2.RandomGrayscale(0.2),
                blur,
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    strong, mild = (0.8, 0.8, 0.8, 0.2), (0.4, 0.4, 0.4, 0.1)
    to_float = v2.ToDtype(torch.float32, scale=True)
    large, small = random((0.14, 1.0), strong, size), random((0.05, 0.14), strong, size * 3 // 7)
    cell = size // 3

    def cut(image: Tensor) -> Tensor:
        crop = v2.RandomCrop(cell - cell // 4)
        cells = image.unfold(1, cell, cell).unfold(2, cell, cell)[:, :3, :3].flatten(1, 2)
        return torch.stack([to_float(crop(cells[:, place])) for place in range(9)])

    pairs: list[tuple[ViewMaker, Callable[[Tensor], Any]]] = [
        (SimCLR(), _pair(random((0.08, 1.0), strong, size))),
        (MoCoV2(), _pair(random((0.2, 1.0), mild, size))),
        (MultiCrop(), lambda i: (_views(large, i, 2), _views(small, i, 4))),
        (
            Rotation(),
            lambda i: torch.stack(
                [to_float(v2.functional.rotate(i, 90.0 * turn)) for turn in range(4)]
            ),
        ),
        (
            ColorPermutation(),
            lambda image: torch.stack([to_float(image[order]) for order in _ORDERS]),
        ),
        (Patches(), cut),
        (Jigsaw(), lambda image: cut(image)[torch.randperm(9)]),
    ]
    found: list[tuple[str, Form, Form]] = [
        (
            type(maker).__name__,
            lambda maker=maker: maker.make(_floats(pixels)),
            lambda one=one: _batch([one(image) for image in single]),
        )
        for maker, one in pairs
    ]
    kinds = ("resized-crop", "color-jitter", "flip")
    same = nn.Sequential(
        augmentation.RandomResizedCrop((size, size), (0.08, 1.0), cropping_mode="resample"),
        augmentation.RandomHorizontalFlip(),
        augmentation.ColorJitter(0.4, 0.4, 0.4, p=1.0),
    )
    colours = augmentation.ColorJitter(*strong, p=0.8)
    return [
        *found,
        ("augment (Kornia)", lambda: augmented(255 * images, kinds), lambda: same(images)),
        ("colours (Kornia)", lambda: jittered(images, strong, 0.8), lambda: colours(images)),
    ]


def _floats(pixels: Tensor) -> Tensor:
    """Return images ``(n, 3, H, W)`` as training passes them on."""
    return pixels.permute(0, 3, 1, 2).to(torch.float32) / 255


_ORDERS = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]


def SimCLR_kernel(size: int) -> int:  # noqa: N802
    """Return the width of the blur that SimCLR uses at a size."""
    return max(3, size // 10 // 2 * 2 + 1)


def _pair(one: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda image: _views(one, image, 2)


def _views(one: Callable[[Tensor], Tensor], image: Tensor, count: int) -> Tensor:
    return torch.stack([one(image) for _ in range(count)])


def _batch(views: list[Any]) -> list[Tensor]:
    """Return the views of all images in one tensor, or in one per size."""
    if isinstance(views[0], Tensor):
        return [torch.stack(views)]
    return [torch.stack(sized) for sized in zip(*views, strict=True)]


def _compared(ours: Form, other: Form, turns: int) -> tuple[float, float]:
    """Return our fastest time, and the median of the ratios of the other's to it."""
    with torch.no_grad():
        times = [(_seconds(ours), _seconds(other)) for _ in range(turns + 1)]
    ratios = [theirs / own for own, theirs in times[1:]]
    own = min(own for own, _ in times)
    return own, statistics.median(ratios)


def _seconds(form: Form) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    form()
    return clock() - start


def _step(size: int, turns: int) -> tuple[float, float]:
    """Return the share of a step's time that its views take, and the images per second."""
    torch.manual_seed(0)
    backbone, method = Conv64F(), SimCLRMethod(views=SimCLR())
    vector = backbone.encode(torch.zeros(2, 3, size, size)).shape[1:]
    method.build(tuple(vector), 0, backbone)
    method.train()
    optimiser = torch.optim.Adam([p for p in method.parameters() if p.requires_grad])
    images = torch.rand(N, 3, size, size)
    shares, rates = [], []
    for _ in range(turns + 1):
        start = time.perf_counter()
        with torch.no_grad():
            made = method.views.make(images)
            flat = made.images.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        between = time.perf_counter()
        optimiser.zero_grad()
        method.loss(Batch(views=flat.unflatten(0, (N, -1)), applied=made.applied)).backward()
        optimiser.step()
        whole = time.perf_counter() - start
        shares.append((between - start) / whole)
        rates.append(N / whole)
    return statistics.median(shares[1:]), max(rates)


if __name__ == "__main__":
    main()
