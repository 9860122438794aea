"""Images per second through the backbones in evaluation, BatchNorm folded and as a layer.

Run ``python benchmarks/embedding_rate.py``; it takes about two minutes. Images have 84 x 84 pixels,
16 at a time. The baseline is the same network with a hook on every convolution, which keeps its
BatchNorm a layer. Both run in turn on one thread; times are the process's, and a ratio is the
median of the ratios of single turns. The last column is the largest difference of a vector, over
the largest number in it.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time

import torch
from _options import positive
from torch import nn

from fsf_backbones import Conv64F, ResNet12, ResNet18, WideResNet
from fsframework.cli.render import print_table
from fsframework.engine.learning.memory import keep_freed_memory
from fsframework.interfaces import Backbone

IMAGES, BACKBONES = 16, (Conv64F, ResNet12, ResNet18, WideResNet)


def layered(backbone: Backbone) -> Backbone:
    """Return a copy whose BatchNorms are not folded."""
    copied = copy.deepcopy(backbone)
    for module in copied.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda *_: None)
    return copied


def seconds(backbone: Backbone, images: torch.Tensor) -> float:
    start = time.process_time()
    backbone.encode(images)
    return time.process_time() - start


@torch.no_grad()
def row(make: type[Backbone], turns: int) -> tuple[str, ...]:
    torch.manual_seed(0)
    folded = make().train()
    folded(torch.randn(IMAGES, 3, 84, 84) + 1)  # running statistics that are not 0 and 1
    plain = layered(folded.eval())
    images = torch.randn(IMAGES, 3, 84, 84)
    one, other = folded.encode(images), plain.encode(images)
    times = [(seconds(plain, images), seconds(folded, images)) for _ in range(turns)]
    before, now = (IMAGES / statistics.median(way) for way in zip(*times, strict=True))
    ratio = statistics.median(slow / fast for slow, fast in times)
    apart = float((one - other).abs().max() / other.abs().max())
    return make.__name__, f"{before:.0f}", f"{now:.0f}", f"{ratio:.2f}", f"{apart:.0e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--turns", type=positive, default=9, metavar="N", help="of each way (default: 9)"
    )
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    keep_freed_memory()
    columns = ("backbone", "images/s, layers", "images/s, folded", "ratio", "apart")
    print_table(columns, [row(make, turns) for make in BACKBONES])
    print("load of the machine:", *(f"{load:.1f}" for load in os.getloadavg()))


if __name__ == "__main__":
    main()
