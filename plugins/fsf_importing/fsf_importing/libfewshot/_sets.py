"""Classifiers of LibFewShot that transform the images of a task as sets, as they are here."""

from __future__ import annotations

from fsf_importing.libfewshot._here import ClassifierHere, Tasks
from fsf_importing.libfewshot._names import affine
from fsf_importing.libfewshot._section import Section
from fsframework.interfaces import DataError

__all__ = ["dsn", "feat", "fgfl"]

_METRICS = {"euclidean": "euclidean", "cos_sim": "cosine"}


def dsn(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a DSN; its factor is in the checkpoint even where it is not used."""
    given = Section(kwargs, where, ("discriminative", "enable_scale", "eps", "lamb"))
    scaled = given.flag("enable_scale", True)
    weight = given.number("lamb", 0.03) if given.flag("discriminative", False) else 0.0
    options = {
        "centre": False,
        "mirror": "channels",
        "learn_scale": scaled,
        "smoothing": given.number("eps", 0.1),
        "discriminative_weight": weight,
    }
    return ClassifierHere(
        "dsn",
        "vectors",
        options,
        {"scale": "method.scale"} if scaled else {},
        ignored=() if scaled else ("scale",),
    )


def feat(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a FEAT."""
    keys = ("balance", "hdim", "mode", "temperature", "temperature2")
    given = Section(kwargs, where, keys)
    options = {
        "metric": _METRICS[given.choice("mode", tuple(_METRICS))],
        "temperature": given.number("temperature"),
        "regulariser_temperature": given.number("temperature2"),
        "balance": given.number("balance"),
        "objective": "libfewshot",
    }
    return ClassifierHere(
        "feat",
        "vectors",
        options,
        attention("slf_attn"),
        check_options={"dropout": 0.0, "attention_dropout": 0.0},
    )


def fgfl(kwargs: object, where: str, tasks: Tasks) -> ClassifierHere:
    """Read a GAINModel, LibFewShot's name of FGFL, which does not use its configured backbone."""
    keys = ("balance", "temperature", "temperature2", "use_euclidean")
    given = Section(kwargs, where, keys)
    if not given.flag("use_euclidean", False):
        raise DataError(f"{where}.use_euclidean must be true: scores are distances here")
    options = {
        "temperature": given.number("temperature", 64),
        "regulariser_temperature": given.number("temperature2", 64),
        "balance": given.number("balance", 0.01),
    }
    return ClassifierHere(
        "fgfl",
        "two encoders",
        options,
        attention("slf_attn2"),
        check_options={"dropout": 0.0, "attention_dropout": 0.0},
        ignored=("emb_func.", "slf_attn2.attention.ba"),  # the latter is never used
    )


def attention(theirs: str) -> dict[str, str]:
    """Return the names of a self-attention's weights there and here."""
    layers = {"w_qs": "queries", "w_ks": "keys", "w_vs": "values"}
    names = {f"{theirs}.{a}.weight": f"method.attention.{b}.weight" for a, b in layers.items()}
    names |= affine(f"{theirs}.layer_norm", "method.attention.norm")
    return names | affine(f"{theirs}.fc", "method.attention.leave")
