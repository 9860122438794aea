"""Time of the heads that adapt at test time, many tasks at once against one by one.

Run ``python benchmarks/adaptation_heads.py``; it takes about two minutes. A task is 5-way 5-shot.
Vector heads take 75 queries of 64 numbers, TSA and DETA 15 images of 32 x 32 pixels through
Conv-64F with five steps. One by one means the same vectorised code on one task per call. On CPUs
TSA and DETA adapt one task at a time anyway: their time is that of the convolutions. Forms run in
turn and the fastest time of each counts.
"""

from __future__ import annotations

import argparse

import torch
from _options import positive
from renet_head import quickest
from torch import Tensor

from fsf_adaptation_methods import CDKT, DETA, PUTM, TSA
from fsf_backbones import Conv64F
from fsf_gradient_methods import ANIL
from fsf_interventional_methods import IFSL
from fsf_metric_methods import MatchingNet
from fsframework.interfaces import Batch, FewShotMethod

WAY, SHOT, SIZE, SIDE, N_BASE = 5, 5, 64, 32, 64
VECTOR_TASKS, IMAGE_TASKS = 100, 3

METHODS: dict[str, FewShotMethod] = {
    "ifsl on matchingnet": IFSL(base=MatchingNet()),
    "ifsl on anil": IFSL(base=ANIL()),
    "cdkt": CDKT(),
    "putm": PUTM(),
    "tsa": TSA(steps=5),
    "deta": DETA(steps=5, n_patches=5),
}


def prepared(method: FewShotMethod) -> tuple[Tensor, Tensor]:
    """Build a method and return embedded tasks for it."""
    images = method.consumes == "images"
    item = (3, SIDE, SIDE) if images else (SIZE,)
    tasks, n = (IMAGE_TASKS, 15) if images else (VECTOR_TASKS, 75)
    method.build(item, N_BASE, Conv64F())
    method.eval()
    support, query = torch.rand(tasks, WAY, SHOT, *item), torch.rand(tasks, n, *item)
    with torch.no_grad():
        return method.embed_episode(Batch(support=support, query=query))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=positive, default=2, metavar="N", help="default: 2")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    print(f"{'head':<22}{'ms per task':>12}{'one by one':>12}{'times':>8}")
    for name, method in METHODS.items():
        support, query = prepared(method)

        def together(m: FewShotMethod = method, s: Tensor = support, q: Tensor = query) -> None:
            with torch.no_grad():
                m.scores(s, q)

        def one_by_one(m: FewShotMethod = method, s: Tensor = support, q: Tensor = query) -> None:
            with torch.no_grad():
                for own, queries in zip(s.split(1), q.split(1), strict=True):
                    m.scores(own, queries)

        fast, slow = (1e3 * seconds / len(query) for seconds in quickest(together, one_by_one))
        print(f"{name:<22}{fast:>12.3f}{slow:>12.3f}{slow / fast:>8.1f}")


if __name__ == "__main__":
    main()
