"""Trains methods of some families in float64 and saves the weights; run alone or by torchrun."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from fsf_methods.gradient import MAML
from fsf_methods.metric import ProtoNet, RENet
from fsf_methods.transfer import NCC, RFS, Baseline
from fsf_pretext_methods import BF3S, HTS, SLA, SSFSL, SSFSLJigsaw
from fsf_self_supervised_methods import BECLR, MoCo, PsCo, SimCLR, UniSiam
from fsf_views import Jigsaw, Rotation
from fsframework.components.registry import Registry
from fsframework.components.resolution import Component, resolve_component
from fsframework.pipeline.experiment.stages import Stage
from fsframework.pipeline.learning.model import FewShotModel, build_model
from fsframework.pipeline.learning.training import EPISODES, Split, Training, assist, train
from fsframework.pipeline.processes import processes_here
from fsframework.pipeline.progress import Reporter
from tests.toy_views import Dimmed, Queued
from tests.toys import Blobs, TinyBackbone, component

WAY_SHOT = (3, 2)


class SmallMaps(TinyBackbone):
    """Maps of 2 x 2 locations from images of 16 x 16 pixels."""

    def forward(self, images: Tensor) -> Tensor:
        return functional.max_pool2d(super().forward(images), 2, ceil_mode=True)


def stage(epochs: int = 2, **options: object) -> Stage:
    """Return a stage of 12 steps per epoch by SGD, in two groups."""
    usual = {
        "epochs": epochs, "steps": 12, "n_query": 2, "batch_size": 8, "groups": 2,
        "optimizer": "sgd", "learning_rate": 0.01, "validation_tasks": 0,
    }  # fmt: skip
    return Stage(**{**usual, **options})


FAMILIES: dict[str, tuple[Component, tuple[Stage, ...]]] = {
    # Three groups on two processes, of one and two tasks.
    "metric": (component(ProtoNet), (stage(groups=3, tasks_per_step=4),)),
    "gradient": (component(MAML, n_way=3, train_steps=2, test_steps=2), (stage(tasks_per_step=2),)),
    "transfer": (component(Baseline), (stage(augment=("flip",)),)),
    "both": (component(RENet), (stage(tasks_per_step=2),)),
    # A queue and a momentum copy; the last of three groups is the first process's.
    "views": (component(Queued, views=component(Dimmed)), (stage(groups=3),)),
    "pretext": (
        component(SSFSL, views=component(Rotation), hidden=8, base=component(ProtoNet)),
        (stage(tasks_per_step=2),),
    ),
    "moco": (component(MoCo, views=component(Dimmed), queue=20, width=4, parts=2), (stage(),)),
    # Three memories, whose clusters are made in the first epoch.
    "clusters": (
        component(
            BECLR,
            views=component(Dimmed),
            inference=component(NCC),
            memory=32,
            clusters=3,
            k=2,
            start=10,
            cell=4,
        ),
        (stage(),),
    ),
    # The first stage leaves the second process without a group.
    "teacher": (component(RFS), (stage(epochs=1, groups=1), stage(epochs=1, distill=True))),
}

USUAL = tuple(FAMILIES)
FAMILIES |= {
    "simclr": (component(SimCLR, views=component(Dimmed), width=4), (stage(groups=3),)),
    "unisiam": (component(UniSiam, views=component(Dimmed), width=8), (stage(),)),
    "psco": (
        component(PsCo, views=component(Dimmed), queue=20, width=4, hidden=8),
        (stage(),),
    ),
    "puzzles": (
        component(SSFSLJigsaw, views=component(Jigsaw), hidden=8, base=component(ProtoNet)),
        (stage(tasks_per_step=2),),
    ),
    "rotations": (
        component(BF3S, views=component(Rotation), blocks=1, base=component(ProtoNet)),
        (stage(tasks_per_step=2),),
    ),
    "joint labels": (
        component(SLA, views=component(Rotation), self_distillation=True, base=component(ProtoNet)),
        (stage(tasks_per_step=2),),
    ),
    "trees": (
        component(HTS, views=component(Rotation), base=component(ProtoNet)),
        (stage(tasks_per_step=2),),
    ),
}
SLOW = tuple(name for name in FAMILIES if name not in USUAL)


def model_of(method: Component) -> Callable[[int], FewShotModel]:
    """Return what builds an untrained model in float64 from a seed."""
    return lambda seed: build_model(component(SmallMaps), method, 16, 6, seed).double()


def main(folder: Path, families: Iterable[str]) -> None:
    """Train each of these families in a folder of its own."""
    data, processes = Blobs(), processes_here()
    first, second = (
        Split(data.pool(name), data.images(data.split_indices(name), 16))
        for name in ("train", "val")
    )
    episodes = resolve_component(Registry(), "sampler", EPISODES)
    for family in families:
        method, stages = FAMILIES[family]
        fresh = model_of(method)
        model, cpu = fresh(0), torch.device("cpu")
        training = Training(stages, WAY_SHOT, (first, second), 0, cpu, episodes, fresh, processes)
        if processes.leads:
            train(model, training, folder / family, Reporter())
            save_file(model.state_dict(), folder / f"{family}.safetensors")
        else:
            assist(model, training)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2:])
