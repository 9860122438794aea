"""Runs that are finished before a benchmark runs, found by their records."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fsframework
from fsframework.api.components import canonical
from fsframework.api.experiments import Experiment
from fsframework.api.models import resolve_device
from fsframework.api.running import Run, runs
from fsframework.errors import FsfError

__all__ = [
    "arms_of",
    "find_finished",
    "identity_of",
]


def arms_of(experiment: Experiment) -> tuple[str, ...]:
    """Return the names of the arms, the control's first."""
    control = experiment.sampler.create().control()
    return (experiment.sampler.name,) if control is None else tuple(control.arms)


def identity_of(experiment: Experiment) -> str:
    """Return the identity of an experiment: equal identities mean equal runs."""
    return canonical(_deciding(experiment.options))


def find_finished(experiments: Sequence[Experiment], folder: Path) -> list[Run | None]:
    """Return a finished run for each experiment, or ``None``, judged by the records of a folder.

    A record holds options, versions and data. It reveals neither the content of a file of words,
    nor an edit of a plugin's code without a new version, nor ways and queries that were reduced to
    what the data allow; running the experiment takes these into account.
    """
    done: dict[str, Run] = {}
    for run in runs(folder):
        if run.record.status == "finished":
            done.setdefault(_of_run(run), dataclasses.replace(run, reused=True))
    opened: dict[str, tuple[str, str]] = {}
    return [done.get(_of_experiment(one, opened)) for one in experiments]


_NOT_DECIDING = ("statistics", "level", "interval", "device", "offline", "tensorboard")


def _deciding(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that decide the outcomes."""
    plain = json.loads(canonical(options))
    return {key: value for key, value in plain.items() if key not in _NOT_DECIDING}


def _of_run(run: Run) -> str:
    record = run.record
    plugins = [(p.kind, p.name, p.distribution, p.version) for p in record.plugins]
    return canonical(
        [
            _deciding(run.options[0]),
            record.digests.get("data"),
            record.environment.fsframework,
            record.environment.device.partition(":")[0],
            sorted(p for p in plugins if p[0] != "statistic"),
        ]
    )


def _of_experiment(experiment: Experiment, opened: dict[str, tuple[str, str]]) -> str:
    loaded = [c.plugin for c in experiment.components() if c.kind != "statistic"]
    fingerprint, split = _data_of(experiment, opened)
    options = _deciding(experiment.options)
    return canonical(
        [
            {**options, "split": options["split"] or split},
            fingerprint,
            fsframework.__version__,
            resolve_device(experiment.settings.device).type,
            sorted({(p.kind, p.name, p.distribution, p.version) for p in loaded}),
        ]
    )


def _data_of(experiment: Experiment, opened: dict[str, tuple[str, str]]) -> tuple[str, str]:
    """Return fingerprint and usual split of an experiment's data; empty if they cannot be opened.

    Args:
        experiment: whose data are opened, once.
        opened: what is known of data sets, to which a new one is added.
    """
    key = canonical(experiment.dataset.to_json())
    if key not in opened:
        try:
            dataset = experiment.dataset.create()
            opened[key] = dataset.fingerprint, "test" if "test" in dataset.splits else "all"
        except (FsfError, OSError):
            opened[key] = "", ""
    return opened[key]
