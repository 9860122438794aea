"""Values of options that every method refuses, naming the option and the value."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fsframework.interfaces import OptionError
from plugins.fsf_methods.tests.toys import made, method_class

NAN = float("nan")
REFUSED: dict[str, dict[str, Any]] = {
    "adm": {"n_way": 1, "n_k": 0, "ridge": 0.0},
    "anil": {"inner_lr": -1.0, "test_steps": 0, "n_way": 1},
    "ata": {"steps": -1, "lr": 0.0, "probability": 1.5, "kernel_sizes": (3, 4)},
    "atlnet": {
        "scale": 0.0, "attention_scale": -1.0, "least_threshold": 2.0, "threshold_range": -0.1,
    },
    "baseline": {"steps": 0, "lr": 0.0, "weight_decay": -1.0},
    "baseline-plus-plus": {"scale": 0.0},
    "boil": {"extractor_lr": -1.0, "classifier_lr": -1.0, "testing": "x"},
    "can": {
        "scale": 0.0, "temperature": -1.0, "reduction": 0, "fusion": "max", "weight_nearest": -0.5,
        "n_iterations": 0, "candidates": 1.5,
    },
    "cdkt": {"temperature": 0.0, "test_steps": 0, "kernel": "cosine"},
    "contrastive-centroids": {
        "weight": -1.0, "episode_weight": -1.0, "temperature": 0.0, "width": 0, "scale": 0.0,
    },
    "covamnet": {"divisor": "all", "dropout": 1.0},
    "cpea": {"smoothing": 1.0, "dropout": -0.1},
    "deepbdc": {"reduce_dim": 1, "metric": "l1"},
    "deta": {"n_patches": 0, "momentum": 1.5, "least_area": 2.0, "temperature": 0.0},
    "distribution-calibration": {
        "k": 0, "alpha": -1.0, "beta": 0.0, "n_samples": 0, "memory": 1, "c": 0.0, "tol": 0.0,
        "seed": -1,
    },
    "dn4": {"n_k": 0},
    "dsn": {"mirror": "rows", "smoothing": 1.0, "discriminative_weight": -0.1},
    "feat": {
        "metric": "dot", "objective": "code", "balance": -1.0, "temperature": 0.0,
        "regulariser_temperature": 0.0, "dropout": 1.0, "attention_dropout": -0.5,
    },
    "fgfl": {
        "temperature": 0.0, "regulariser_temperature": -1.0, "balance": -1.0, "dropout": 1.0,
        "attention_dropout": -0.5,
    },
    "finetune": {
        "head": "mlp", "steps": -1, "lr": -0.1, "head_lr": -0.1, "probe_steps": -1,
        "firth_c": -0.1, "batch_norm": "query", "tasks_at_once": 0,
    },
    "frn": {
        "divisor": 0.0, "loss_divisor": -1.0, "auxiliary_weight": -0.5, "auxiliary_norm": "all",
    },
    "ft": {"theta_beta": NAN},
    "gnn": {"n_way": 1, "nf": 7, "width": -1, "graph": "all"},
    "ifsl": {"adjustment": "both", "n_splits": 0, "window": 0},
    "knn": {"k": 0, "metric": "l1"},
    "leo": {
        "latent_size": 0, "inner_lr": 0.0, "inner_steps": -1, "kl_weight": -0.1, "spread": "x",
        "orthogonal": "x", "dropout": 1.0,
    },
    "linear": {"optimizer": "lbfgs"},
    "logistic": {"c": NAN, "tol": -1.0},
    "lp-ft-fb": {"head": "cosine", "firth_c": -1.0},
    "lrp": {"epsilon": -1.0},
    "maml": {
        "head": "x", "n_way": None, "inner_lr": 0.0, "train_steps": 0, "batch_norm": "x",
    },
    "matchingnet": {"temperature": 0.0, "n_steps": 0},
    "mtl": {"n_way": 1, "inner_lr": 0.0, "train_steps": 0, "test_steps": 0},
    "ncc": {"metric": "l1"},
    "neg-cosine": {
        "margin": -1.5, "inner_margin": 2.0, "scale": 0.0, "inner_scale": -1.0,
    },
    "putm": {"steps": -1, "temperature": 0.0, "beta": 1.1, "gamma": -1.0},
    "r2d2": {"initial_lambda": 0.0, "initial_alpha": 0.0, "initial_beta": NAN},
    "relationnet": {"objective": "hinge", "hidden": 0, "batch_norm": "x"},
    "renet": {"temperature": 0.0, "temperature_attn": -1.0, "lambda_epi": NAN},
    "rfs": {"c": 0.0, "tol": -1.0, "alpha": -1.0, "beta": -1.0, "temperature": 0.0},
    "sib": {"n_way": 1, "steps": -1, "lr": 0.0, "initial_bias": NAN},
    "skd": {
        "gamma": -1.0, "alpha": -1.0, "distill_gamma": -1.0, "distill_alpha": -1.0,
        "temperature": 0.0, "c": 0.0, "tol": 0.0,
    },
    "tpn": {"k": 0, "alpha": 1.0, "distance": "max"},
    "tsa": {"adapter": "parallel", "form": "scalar", "steps": -1, "lr": -1.0, "tasks_at_once": 0},
    "versa": {"dim": 0, "n_samples": 0, "average": "weights", "dropout": 1.0},
}  # fmt: skip
WITHIN = {"ata": "protonet", "ft": "protonet", "ifsl": "ncc", "lrp": "protonet"}


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [(name, *given) for name, refused in REFUSED.items() for given in refused.items()],
)
def test_a_value_outside_its_range_is_refused(name: str, option: str, value: Any) -> None:
    within = {"base": made(WITHIN[name])} if name in WITHIN else {}
    with pytest.raises(OptionError, match=rf"^{option} must .*{re.escape(repr(value))}"):
        method_class(name)(**within, **{option: value})


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("cdkt", {"kernels": "per-way", "n_way": 1}, "n_way must .* got 1"),
        ("cdkt", {"n_samples": 10}, "n_samples .* kernels = 'per-way'"),
        ("deta", {"least_area": 0.0}, "least_area must .* got 0"),
        ("ft", {"base": "protonet", "layers": ()}, "layers must name at least one"),
        ("ifsl", {"base": "dn4"}, "base .* DN4 consumes maps"),
        ("ifsl", {"base": "ncc", "context": "probabilities"}, "'class', got 'combined'"),
        ("lrp", {"base": "protonet", "xi": 0.0, "lambda_": 0.0}, "xi and lambda_"),
        ("maml", {"n_way": 1}, "n_way must .* got 1"),
        ("stl-deepbdc", {"classifier": "logistic"}, "batches, but Logistic .* nothing"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(name: str, options: Any, named: str) -> None:
    with pytest.raises(OptionError, match=named):
        made(name, **options)
