"""Seconds per training step of one process and of two that torchrun starts, one thread each.

Run ``python benchmarks/several_processes.py``; it takes about five minutes. A step has two groups
of one 5-way 5-shot task with 15 queries per way, of 84 x 84 pixels through Conv-64F. One process
computes one group after the other, two compute one each and exchange gradients by gloo; the steps
and their weights are the same. With ``--pin`` each process keeps to a processor core of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from _options import one_of, positive

from fsf_backbones import Conv64F
from fsf_methods.gradient import MAML
from fsf_methods.metric import ProtoNet
from fsframework.components.kinds import kind_of
from fsframework.components.registry import Loaded, Plugin, Registry
from fsframework.components.resolution import Component, resolve_component
from fsframework.pipeline.experiment.stages import Stage
from fsframework.pipeline.learning.memory import keep_freed_memory
from fsframework.pipeline.learning.model import build_model
from fsframework.pipeline.learning.training import EPISODES, Split, Training, assist, train
from fsframework.pipeline.processes import processes_here
from fsframework.pipeline.progress import Reporter
from fsframework.values import ImagePool

METHODS = {"ProtoNet": ProtoNet, "MAML": MAML}
GROUPS, N_CLASSES, N_PER_CLASS, SIDE = 2, 20, 30, 84


def component(cls: type) -> Component:
    """Return a class with its default options, as if it had been loaded by name."""
    plugin = Plugin(kind_of(cls) or "", cls.__name__.lower(), cls.__module__, "benchmark", "1")
    return Component(Loaded(plugin, cls), {}, {})


def training_data() -> Split:
    """Return images of noise."""
    labels = np.repeat(np.arange(N_CLASSES), N_PER_CLASS)
    keys = tuple(f"{i:04}" for i in range(len(labels)))
    names = tuple(f"class {i:02}" for i in range(N_CLASSES))
    pixels = np.random.default_rng(0).integers(0, 256, (len(labels), SIDE, SIDE, 3), np.uint8)
    return Split(ImagePool(keys, labels, names, {}, None), pixels)


def train_timed(name: str, steps: int, pin: bool) -> None:
    """Train as one process of a job; the first one prints the seconds per step."""
    processes = processes_here()
    torch.set_num_threads(1)
    if pin:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[processes.rank % len(cores)]})
    keep_freed_memory()
    stage = Stage(
        epochs=2, steps=steps, n_query=15, tasks_per_step=GROUPS, groups=GROUPS, validation_tasks=0
    )
    model = build_model(component(Conv64F), component(METHODS[name]), SIDE, N_CLASSES, 0)
    episodes = resolve_component(Registry(), "sampler", EPISODES)
    cpu, splits = torch.device("cpu"), (training_data(), None)
    training = Training((stage,), (5, 5), splits, 0, cpu, episodes, None, processes)
    if not processes.leads:
        assist(model, training)
        return
    with tempfile.TemporaryDirectory() as folder:
        # The first epoch warms up.
        times = []
        train(
            model, training, Path(folder), Reporter(), lambda _: times.append(time.perf_counter())
        )
    print((times[1] - times[0]) / steps)


def seconds_per_step(name: str, n_processes: int, options: argparse.Namespace) -> float:
    """Measure a training by a number of processes."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(n_processes)]
    command = [sys.executable, *launcher, __file__, "--steps", str(options.steps), "--train", name]
    if options.pin:
        command.append("--pin")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--steps", type=positive, default=5, metavar="N", help="steps measured (default: 5)"
    )
    parser.add_argument(
        "--repeats", type=positive, default=2, metavar="N", help="trainings of each (default: 2)"
    )
    parser.add_argument("--pin", action="store_true", help="give each process a core of its own")
    parser.add_argument("--train", choices=METHODS, help=argparse.SUPPRESS)
    parser.add_argument(
        "methods",
        nargs="*",
        type=one_of(METHODS),
        metavar="METHOD",
        help=f"of {', '.join(METHODS)}",
    )
    options = parser.parse_args()
    if options.train:
        train_timed(options.train, options.steps, options.pin)
        return
    print("seconds per step of two groups; one thread per process")
    print(f"{'method':<12}{'1 process':>12}{'2 processes':>14}{'speed-up':>10}")
    for name in options.methods or METHODS:
        # In turn, and the fastest of each counts.
        pairs = [
            [seconds_per_step(name, n, options) for n in (1, 2)] for _ in range(options.repeats)
        ]
        one, two = (min(found) for found in zip(*pairs, strict=True))
        print(f"{name:<12}{one:>12.3f}{two:>14.3f}{one / two:>10.2f}", flush=True)


if __name__ == "__main__":
    main()
