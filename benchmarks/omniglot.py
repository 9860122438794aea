"""Accuracy of the methods on Omniglot, compared with printed values.

Run ``python benchmarks/omniglot.py DATA [METHOD ...]``. DATA is a folder or the ``.zip`` archive of
Omniglot, as the data set ``omniglot`` reads it. Each method is trained with Conv-64F on 28 x 28
pixels with the recipe below, or its recipe ``published``, on the classes of Vinyals et al. 2016,
where a character rotated by 90, 180 or 270 degrees is a separate class, and tested on 1,000 random
tasks of each shape. Finished runs are reused and interrupted training resumes. All files are
written below ``--out``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from _options import one_of

import fsframework as fsf
from fsframework.cli.render import print_table

SHAPES = ((5, 1), (5, 5), (20, 1))
TASKS, TOLERANCE = 1000, 1.0

PUBLISHED: dict[str, tuple[str, dict[tuple[int, int], float]]] = {
    "protonet": ("Snell 2017, Table 1", {(5, 1): 98.8, (5, 5): 99.7, (20, 1): 96.0}),
    "matchingnet": ("Vinyals 2016, Table 1", {(5, 1): 98.1, (5, 5): 98.9, (20, 1): 93.8}),
    "relationnet": ("Sung 2018, Table 1", {(5, 1): 99.6, (5, 5): 99.8, (20, 1): 97.6}),
    "r2d2": ("Bertinetto 2019, Table 2", {(5, 1): 98.9, (5, 5): 99.7, (20, 1): 96.2}),
    "maml": ("Finn 2017, Table 1", {(5, 1): 98.7, (5, 5): 99.9, (20, 1): 95.8}),
    "versa": ("Gordon 2019, Table 2", {(5, 1): 99.70, (5, 5): 99.75, (20, 1): 97.66}),
    "gnn": ("Garcia 2018, Table 1", {(5, 1): 99.2, (5, 5): 99.7, (20, 1): 97.4}),
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
    # With an initial factor of 1, its scores cannot grow as fast as the loss requires.
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
    # With a head shared by all ways, ANIL and MAML can train on harder tasks than those tested.
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
    "versa": {"recipe": "published"},
    "gnn": {"recipe": "published"},
    "baseline-plus-plus": {"training": {**BATCHES, "epochs": 18}},
    "rfs": {"training": {**BATCHES, "epochs": 9, "stages": [{}, {"distill": True}]}},
}


def experiment_of(data: Path, shape: tuple[int, int], **more: Any) -> dict[str, Any]:
    """Return the arguments of a run on random tasks of this way and shot."""
    way, shot = shape
    return {
        "dataset": {"name": "omniglot", "path": str(data)},
        "sampler": {"name": "random", "n_way": way, "n_shot": shot, "n_query": 15},
        "tasks": TASKS,
        "recipe": "none",
        **more,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA", help="Omniglot, a folder or an archive")
    parser.add_argument(
        "methods",
        nargs="*",
        type=one_of(RECIPES),
        metavar="METHOD",
        help=f"of {', '.join(RECIPES)}",
    )
    parser.add_argument("--out", type=Path, default=Path("omniglot-runs"), metavar="FOLDER")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        parser.error(f"{arguments.data} does not exist")
    where = {"runs_dir": arguments.out / "runs", "cache_dir": arguments.out / "cache"}
    rows = []
    for method in arguments.methods or RECIPES:
        source, printed = PUBLISHED.get(method, ("none found", {}))
        recipe, minutes, model = {"method": method, **RECIPES[method]}, "", None
        for shape in SHAPES:
            way_shot = f"{shape[0]}-way {shape[1]}-shot"
            if model is None:
                tree = experiment_of(arguments.data, shape, **recipe)
            else:
                tree = experiment_of(arguments.data, shape, model=str(model))
            try:
                done = fsf.run(**tree, **where)
            except Exception as error:
                rows.append((method, way_shot, f"{type(error).__name__}: {error}", "", "", "", ""))
                continue
            if model is None:
                seconds = sum(epoch.seconds for epoch in done.record.training.history)
                minutes, model = f"{seconds / 60:.1f}", done.folder
            found = done.estimates["acc-random"]
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
