"""The conformance checks of every method, with the options that change how it works."""

from __future__ import annotations

from functools import partial
from importlib.metadata import entry_points
from typing import Any

import pytest

from fsf_methods.adaptation import ContrastiveCentroids
from fsframework.testing import parametrize_with_checks
from plugins.fsf_methods.tests.toys import made, method_class
from tests.toy_views import Dimmed

MAML = {"name": "maml", "n_way": 4, "train_steps": 1, "test_steps": 2, "inner_lr": 0.5}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "adm": [{}, {"n_way": 3, "n_k": 1}],
    "anil": [{}, {"head": "shared"}, {"first_order": True, "n_way": 3}],
    "ata": [{"base": "protonet", "steps": 1, "lr": 5.0}],
    "balanced": [{"base": "protonet"}, {"base": {"name": "baseline", "steps": 20}, "n_words": 2}],
    "baseline": [{"steps": 20, "lr": 0.1, "weight_decay": 0.0}],
    "baseline-plus-plus": [{"steps": 50}, {"learn_lengths": False, "scale": 10.0, "steps": 50}],
    "boil": [
        {},
        {"testing": "nil", "batch_norm": "running"},
        {"first_order": True, "classifier_lr": 0.1, "n_way": 3},
    ],
    "can": [
        {},
        {"fusion": "mean", "reduction": 5},
        {"transductive": True},
        {"transductive": True, "n_iterations": 3, "candidates": 0.2},
    ],
    "cdkt": [
        {},
        {"objective": "pl", "kernel": "rbf", "mean": -1.0, "temperature": 0.5, "test_steps": 5},
        {"kernels": "per-way", "n_way": 4, "form": "code", "objective": "pl", "n_samples": 50},
    ],
    "contrastive-centroids": [{}, {"scale": 2.0, "weight": 0.0}, {"attention": True}],
    "cosine": [{"steps": 50}],
    "deepbdc": [{}, {"reduce_dim": 8, "metric": "inner"}],
    "deta": [{"steps": 2, "n_patches": 2, "lr": 0.1}],
    "distribution-calibration": [{"n_samples": 12, "memory": 8}],
    "dfr": [{"base": "ncc"}, {"base": "feat"}],
    "dn4": [{}, {"n_k": 7}],
    "dsn": [{}, {"centre": False, "mirror": "channels"}, {"learn_scale": False}],
    "feat": [{}, {"metric": "cosine", "objective": "libfewshot"}],
    "finetune": [
        {"steps": 3},
        {"head": "cosine", "steps": 2, "lr": 0.01},
        {"head": "centroids", "batch_norm": "support", "steps": 2, "lr": 0.01},
    ],
    "ft": [{"base": {"name": "tpn"}}, {"base": {"name": "protonet"}}],
    "gnn": [{"nf": 16, "width": 8, "statistics": "batch", "unknown": "zeros"}],
    "group-dro": [{"base": "matchingnet"}, {"base": {"name": "baseline", "steps": 20}}],
    "ifsl": [
        {"base": "matchingnet"},
        {"base": MAML, "adjustment": "feature", "n_splits": 2},
        {"base": {"name": "sib", "n_way": 4}, "n_splits": 2},
        {"base": {"name": "mtl", "n_way": 4, "train_steps": 5, "inner_lr": 0.5}, "n_splits": 2},
        {"base": "protonet", "adjustment": "class", "average": "log-probabilities",
         "divide": False, "posterior": "whole", "context": "probabilities"},
    ],
    "jtt": [{"base": {"name": "baseline", "steps": 20}}],
    "knn": [{}, {"k": 1, "metric": "euclidean"}],
    "leo": [
        {},
        {"sample": False, "bias": True, "spread": "relu", "orthogonal": "outputs"},
        {"learned_rates": False, "first_order": True, "dropout": 0.1},
    ],
    "linear": [{"steps": 50}],
    "lp-ft-fb": [{"steps": 50}, {"steps": 50, "head": "dist"}],
    "lrp": [{"base": "tpn"}],
    "maml": [{"train_steps": 2, "test_steps": 3}, {}, {"head": "shared", "batch_norm": "running"}],
    "matchingnet": [{}, {"full_context": True}],
    "mtl": [
        {},
        {"head": "shared", "first_order": False, "inner_lr": 0.3, "train_steps": 5},
    ],
    "ncc": [{"normalize": False}, {"metric": "euclidean", "centre": True}],
    "neg-cosine": [{"steps": 50, "inner_margin": -0.1}],
    "putm": [{}, {"steps": 3, "beta": 1.0, "gamma": 0.3}],
    "relationnet": [{}, {"batch_norm": "batch"}],
    "stl-deepbdc": [{"classifier": "rfs"}],
    "support-weighted": [{"base": "protonet"}],
    "text-projected": [{"base": "protonet"}],
    "tpn": [{"k": 10}],
    "tsa": [
        {"steps": 2},
        {"adapter": "serial", "form": "vector", "alignment": False, "steps": 1, "tasks_at_once": 3},
    ],
    "word-projected": [{"base": "protonet"}],
    "versa": [{"dim": 32}, {"dim": 16, "sample": False, "dropout": 0.1}],
}  # fmt: skip


POINTS = entry_points(group="fsframework.methods")
TAKE_LONG = {"renet"}
METHODS = sorted(point.name for point in POINTS if point.value.startswith("fsf_methods."))


def maker(name: str, options: dict[str, Any]) -> Any:
    """Return a factory of a method; one that holds another resolves it by name each time."""
    nested = {"base", "classifier"} & options.keys()
    return partial(made, name, **options) if nested else partial(method_class(name), **options)


@parametrize_with_checks(
    [maker(name, OPTIONS.get(name, [{}])[0]) for name in METHODS if name not in TAKE_LONG]
)
def test_conformance(make: Any, check: Any) -> None:
    check(make)


@pytest.mark.slow
@parametrize_with_checks(
    [
        *(maker(name, {}) for name in sorted(TAKE_LONG)),
        *(maker(name, given) for name, (_, *others) in OPTIONS.items() for given in others),
        partial(ContrastiveCentroids, views=Dimmed(), width=8),
    ]
)
def test_conformance_with_other_options(make: Any, check: Any) -> None:
    check(make)
