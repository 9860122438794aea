"""Accuracy of the methods on Omniglot, printed values beside.

Run ``python benchmarks/omniglot.py DATA [METHOD ...]``; DATA is Omniglot, a folder or the ``.zip``
archive, as the data set ``omniglot`` reads it. Each method is trained with Conv-64F on 28 x 28
pixels, on the classes of Vinyals et al. 2016, characters turned by 90, 180 and 270 degrees being
classes of their own, by the recipe below, and tested on 1,000 random tasks of each shape. What is
finished is not done again; an interrupted training goes on. Everything lies below ``--out``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from fsframework.cli.render import LogReporter, print_table
from fsframework.components.registry import Registry
from fsframework.pipeline.cache.workspace import Workspace
from fsframework.pipeline.experiment.configuration import resolve_experiment
from fsframework.pipeline.run import run_experiment

SHAPES = ((5, 1), (5, 5), (20, 1))
TASKS, TOLERANCE = 1000, 1.0

PUBLISHED: dict[str, tuple[str, dict[tuple[int, int], float]]] = {
    "protonet": ("Snell 2017, Table 1", {(5, 1): 98.8, (5, 5): 99.7, (20, 1): 96.0}),
    "matchingnet": ("Vinyals 2016, Table 1", {(5, 1): 98.1, (5, 5): 98.9, (20, 1): 93.8}),
    "relationnet": ("Sung 2018, Table 1", {(5, 1): 99.6, (5, 5): 99.8, (20, 1): 97.6}),
    "r2d2": ("Bertinetto 2019, Table 2", {(5, 1): 98.9, (5, 5): 99.7, (20, 1): 96.2}),
    "maml": ("Finn 2017, Table 1", {(5, 1): 98.7, (5, 5): 99.9, (20, 1): 95.8}),
}

EPISODES = {
    "n_query": 5,
    "validation_tasks": 200,
    "schedule": "cosine",
    "weight_decay": 0.0,
    "learning_rate": 2e-3,
    "steps": 200,
}
BATCHES = {
    "optimizer": "sgd",
    "batch_size": 128,
    "validation_tasks": 200,
    "schedule": "cosine",
    "weight_decay": 5e-4,
    "learning_rate": 0.1,
    "precision": "bf16",
    "steps": 500,
}
RECIPES: dict[str, dict[str, Any]] = {
    "protonet": {"training": {**EPISODES, "epochs": 20, "steps": 100, "n_way": 60}},
    # Its scores cannot grow as fast as its loss would have them if they start at a factor of 1.
    "r2d2": {
        "method": {"name": "r2d2", "initial_alpha": 20.0},
        "training": {**EPISODES, "epochs": 25, "n_way": 60, "precision": "bf16"},
    },
    "matchingnet": {
        "method": {"name": "matchingnet", "temperature": 0.05},
        "training": {**EPISODES, "epochs": 25, "n_way": 60, "precision": "bf16"},
    },
    "relationnet": {
        "method": {"name": "relationnet", "objective": "cross-entropy"},
        "backbone": {"name": "conv64f", "last_pool": False, "maxpool_last2": False},
        "training": {**EPISODES, "epochs": 35, "n_way": 20},
    },
    # With a head that all ways share, the two can learn on harder tasks than they are tested on.
    "anil": {
        "method": {"name": "anil", "head": "shared", "inner_lr": 1.0, "train_steps": 3},
        "training": {**EPISODES, "epochs": 25, "n_way": 20},
    },
    "maml": {
        "method": {
            "name": "maml",
            "head": "shared",
            "inner_lr": 0.4,
            "train_steps": 2,
            "test_steps": 10,
        },
        "training": {**EPISODES, "epochs": 25, "n_way": 20, "n_query": 3},
    },
    "baseline-plus-plus": {"training": {**BATCHES, "epochs": 18}},
    "rfs": {"training": {**BATCHES, "epochs": 9, "stages": [{}, {"distill": True}]}},
}


def experiment_of(data: Path, shape: tuple[int, int], **more: Any) -> dict[str, Any]:
    """Return the options of a run on random tasks of a way and shot."""
    way, shot = shape
    return {
        "dataset": {"name": "omniglot", "path": str(data)},
        "sampler": {"name": "random", "n_way": way, "n_shot": shot, "n_query": 15},
        "tasks": TASKS,
        "recipe": None,
        **more,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("methods", nargs="*", default=[*RECIPES], metavar="METHOD")
    parser.add_argument("--out", type=Path, default=Path("omniglot-runs"))
    arguments = parser.parse_args()
    registry = Registry()
    workspace = Workspace(arguments.out / "runs", arguments.out / "cache")
    rows = []
    for method in arguments.methods:
        source, printed = PUBLISHED.get(method, ("none found", {}))
        recipe, minutes, model = {"method": method, **RECIPES[method]}, "", None
        for shape in SHAPES:
            way_shot = f"{shape[0]}-way {shape[1]}-shot"
            if model is None:
                tree = experiment_of(arguments.data, shape, **recipe)
            else:
                tree = experiment_of(arguments.data, shape, model=str(model))
            try:
                done = run_experiment(
                    resolve_experiment(registry, tree), registry, workspace, LogReporter()
                )
            except Exception as error:
                rows.append((method, way_shot, f"{type(error).__name__}: {error}", "", "", "", ""))
                continue
            if model is None:
                seconds = sum(row["seconds"] for row in done.record.training["history"])
                minutes, model = f"{seconds / 60:.1f}", done.folder
            found = done.record.estimates["acc-R"]
            value = 100 * found.value
            wanted = printed.get(shape)
            verdict = ""
            if wanted is not None:
                verdict = "within 1.0" if value >= wanted - TOLERANCE else "below"
            rows.append(
                (
                    method,
                    way_shot,
                    f"{value:.2f} ± {100 * found.half_width:.2f}",
                    "" if wanted is None else f"{wanted:.1f}",
                    verdict,
                    minutes,
                    source,
                )
            )
    columns = ("method", "tasks", "Acc, %", "printed", "", "training, min", "printed in")
    print_table(columns, rows)


if __name__ == "__main__":
    sys.exit(main())
