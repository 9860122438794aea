"""What a tracker gets of a run."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fsframework.errors import RecordError

if TYPE_CHECKING:
    from fsframework import Run

__all__ = ["Entry", "State", "Tracker", "entry_of"]

State = Literal["new", "updated", "unchanged"]
_RECORD, _CURVE, _WEIGHTS = "run.json", "curve.csv", "weights.safetensors"


@dataclass(frozen=True)
class Entry:
    """A run as trackers show it.

    Args:
        name: of the run's folder.
        fingerprint: digest of everything that decides the run's outcomes: the same experiment has
            the same fingerprint, and one entry in a tracker.
        record: digest of the run's record; a record that is unchanged needs no update.
        created: when the run was made; ``seconds`` how long it took.
        options: value of every option by its dotted name.
        facts: what ran, by name: method, data set, status, versions, fingerprint, seeds.
        estimates: numbers by name: ``wacc-gap``, ``wacc-gap.low``, ``wacc-gap.high``, ...
        curve: numbers of each epoch of the training by name; its step counts from 1.
        notes: of the record.
        files: to keep with the entry, by name.
    """

    name: str
    fingerprint: str
    record: str
    created: datetime
    seconds: float
    options: Mapping[str, Any]
    facts: Mapping[str, str]
    estimates: Mapping[str, float]
    curve: Sequence[Mapping[str, float]]
    notes: Sequence[str]
    files: Mapping[str, Path]


class Tracker(Protocol):
    """Where entries go."""

    def put(self, entry: Entry) -> State:
        """Write an entry; an earlier one of the same fingerprint is updated.

        Raises:
            FsfError: the tracker refuses.
        """


def entry_of(run: Run, *, weights: bool) -> Entry:
    """Return what trackers get of a run.

    Args:
        weights: whether the files include the trained weights.

    Raises:
        RecordError: the run is unfinished.
    """
    from fsframework.cli.options import option_leaves

    record = run.record
    if record.status == "unfinished":
        raise RecordError(f"{run.folder}: is unfinished; run the same command again to resume")
    wanted = (_RECORD, _CURVE, _WEIGHTS) if weights else (_RECORD, _CURVE)
    files = {name: run.folder / name for name in wanted if (run.folder / name).is_file()}
    for file in (run.folder, *files.values()):
        if file.is_symlink():
            raise RecordError(f"{file}: is a link; what it leads to is not copied to a tracker")
    return Entry(
        name=run.name,
        fingerprint=record.fingerprint,
        record=hashlib.sha256(files[_RECORD].read_bytes()).hexdigest(),
        created=datetime.fromisoformat(record.created),
        seconds=sum(record.timings.values()),
        options=dict(option_leaves(run.options[0])),
        facts=dict(_facts(run)),
        estimates=dict(_numbers(run)),
        curve=[_point(vars(epoch)) for epoch in record.training.history],
        notes=record.notes,
        files=files,
    )


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    record, settings = run.record, run.settings
    names = ("method", "backbone", "dataset", "sampler", "status", "created", "fingerprint")
    yield from ((name, str(settings[name])) for name in names if settings[name])
    for name in ("task_seed", "training_seed"):
        if name in record.settings:
            yield name, str(record.settings[name])
    environment = record.environment
    for name in ("fsframework", "python", "torch", "numpy"):
        yield f"version.{name}", getattr(environment, name)
    for plugin in record.plugins:
        yield f"version.{plugin.distribution}", plugin.version


def _numbers(run: Run) -> Iterator[tuple[str, float]]:
    for name, estimate in run.estimates.items():
        numbers = {name: estimate.value, f"{name}.low": estimate.low, f"{name}.high": estimate.high}
        yield from ((n, number) for n, number in numbers.items() if not math.isnan(number))


def _point(epoch: Mapping[str, Any]) -> dict[str, float]:
    names = ("loss", "learning_rate", "validation_accuracy", "seconds")
    return {name: epoch[name] for name in names if epoch[name] is not None}
