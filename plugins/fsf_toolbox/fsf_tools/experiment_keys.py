"""What tells experiments of a sweep apart."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import fsframework
from fsframework.api.components import canonical
from fsframework.api.experiments import Experiment, stage_digests
from fsframework.errors import FsfError
from fsframework.values import digest_of

__all__ = ["key_of_experiment"]

_INDIFFERENT = ("offline",)
"""Settings that change neither the run nor what its record tells."""


def key_of_experiment(experiment: Experiment, data_fingerprint: str) -> str:
    """Return the digest of everything that an experiment is told, its code and its data.

    Unlike the fingerprint of its run, it needs neither words nor tasks; nor does it know the device
    that ``auto`` becomes, which may differ where workers run.
    """
    options = {k: v for k, v in experiment.options.items() if k not in _INDIFFERENT}
    return digest_of(
        "experiment",
        fsframework.__version__,
        canonical([options, experiment.name]),
        [_or_error(attrgetter("fingerprint"), one) for one in experiment.components()],
        [data_fingerprint, _or_error(stage_digests, experiment.stages)],
    )[:24]


def _or_error(read: Callable[[Any], Any], of: Any) -> str:
    """Return what is read as a text, or why it cannot be read, as the run will say."""
    try:
        return canonical(read(of))
    except (FsfError, OSError) as error:
        return str(error)
