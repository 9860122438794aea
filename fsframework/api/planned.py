"""Many experiments: their options merged and checked, and their finished runs found."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import fsframework
from fsframework.api.components import canonical
from fsframework.api.experiments import Description
from fsframework.api.models import resolve_device
from fsframework.api.running import Run, runs
from fsframework.errors import FsfError, OptionError

__all__ = [
    "arms_of",
    "check_options",
    "data_fingerprint",
    "find_finished",
    "identity_of",
]


def check_options(descriptions: Iterable[Description], *, here: bool = True) -> None:
    """Check that components accept their options and that the device exists; run nothing.

    Equal components are made once. A component that cannot be made for another reason, such as a
    missing file, is left for its run to report.

    Args:
        descriptions: of the experiments.
        here: whether this machine runs them, and must have their device.

    Raises:
        OptionError: a component refuses its options, or this machine lacks the device.
    """
    tried: set[str] = set()
    for one in descriptions:
        if here:
            resolve_device(one.experiment.settings.device)
        for component in one.experiment.components():
            key = canonical([component.kind, component.to_json()])
            if key in tried or component.kind == "dataset":
                continue
            tried.add(key)
            try:
                component.create()
            except OptionError:
                raise
            except (FsfError, OSError, ImportError):
                continue


def arms_of(description: Description) -> tuple[str, ...]:
    """Return the names of the arms, the control's first."""
    sampler = description.experiment.sampler
    control = sampler.create().control()
    return (sampler.name,) if control is None else tuple(control.arms)


def identity_of(description: Description) -> str:
    """Return the identity of an experiment: equal identities mean equal runs."""
    return canonical(_deciding(description.options))


def find_finished(descriptions: Sequence[Description]) -> list[Run | None]:
    """Return a finished run for each description, or ``None``, judged by the records.

    A record holds options, versions and data. It reveals neither the content of a file of words,
    nor an edit of a plugin's code without a new version, nor ways and queries that were reduced to
    what the data allow; running the experiment takes these into account.
    """
    done: dict[str, Run] = {}
    for folder in dict.fromkeys(one.session.workspace.runs for one in descriptions):
        for run in runs(folder):
            if run.record.status == "finished":
                done.setdefault(_of_run(run), dataclasses.replace(run, reused=True))
    opened: dict[str, tuple[str, str]] = {}
    return [done.get(_of_description(one, opened)) for one in descriptions]


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
            record.environment.device_type,
            sorted(p for p in plugins if p[0] != "statistic"),
        ]
    )


def _of_description(description: Description, opened: dict[str, tuple[str, str]]) -> str:
    experiment = description.experiment
    loaded = [c.plugin for c in experiment.components() if c.kind != "statistic"]
    fingerprint, split = _data_of(description, opened)
    options = _deciding(description.options)
    return canonical(
        [
            {**options, "split": options["split"] or split},
            fingerprint,
            fsframework.__version__,
            resolve_device(experiment.settings.device).type,
            sorted({(p.kind, p.name, p.distribution, p.version) for p in loaded}),
        ]
    )


def data_fingerprint(description: Description, opened: dict[str, str]) -> str:
    """Return the fingerprint of an experiment's data; empty if they cannot be opened.

    Args:
        description: of the experiment.
        opened: fingerprints by data set, to which that of a new one is added.
    """
    component = description.experiment.dataset
    key = canonical(component.to_json())
    if key not in opened:
        try:
            opened[key] = component.create().fingerprint
        except (FsfError, OSError):
            opened[key] = ""
    return opened[key]


def _data_of(description: Description, opened: dict[str, tuple[str, str]]) -> tuple[str, str]:
    """Return fingerprint and usual split of the data, opened once; empty if they cannot be."""
    component = description.experiment.dataset
    key = canonical(component.to_json())
    if key not in opened:
        try:
            dataset = component.create()
            opened[key] = dataset.fingerprint, "test" if "test" in dataset.splits else "all"
        except (FsfError, OSError):
            opened[key] = "", ""
    return opened[key]
