"""The experiments of a sweep as items of work, and the file that describes them to workers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import fsframework
from fsframework._digest import digest_of
from fsframework._files import atomic_write
from fsframework._reading import parse_json, read_file
from fsframework.components.resolution import Component, canonical
from fsframework.errors import FsfError, OptionError, RecordError
from fsframework.pipeline.experiment.configuration import Experiment
from fsframework.pipeline.identity import stage_digests
from fsframework.pipeline.work.trees import packed, unpacked

__all__ = ["Item", "Manifest", "group_of", "key_of_experiment"]

_VERSION = 1
_INDIFFERENT = ("offline",)
"""Settings that change neither the run nor what its record tells."""


@dataclass(frozen=True)
class Item:
    """One experiment.

    Args:
        key: equal for equal experiments; see ``key_of_experiment``.
        name: for people, such as ``protonet, 1 shot``; unique within the sweep.
        tags: what tells it from the other experiments of the sweep, by the name of the option.
        tree: its options, a tree of ``Given``; ``None`` if they include classes or objects that
            only the process knows that describes the sweep.
        group: see ``group_of``.
    """

    key: str
    name: str
    tags: Mapping[str, Any]
    tree: Mapping[str, Any] | None
    group: str


@dataclass(frozen=True)
class Manifest:
    """What workers must know of a sweep.

    Args:
        name: of the sweep.
        items: in the order in which they are taken.
        plugins: files whose plugin classes are loaded.
        created: date and time, ISO 8601, UTC.
    """

    name: str
    items: tuple[Item, ...]
    plugins: tuple[str, ...] = ()
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def save(self, path: Path, *, for_workers: bool) -> None:
        """Write the file, whole or not at all.

        Args:
            path: of the file.
            for_workers: whether other processes run the experiments, and need their options.

        Raises:
            OptionError: an option is a class or an object, which only this process knows.
        """
        items = []
        for item in self.items:
            tree: Any = None
            try:
                tree = packed(item.tree, item.name)
            except OptionError:
                if for_workers:
                    raise
            items.append({**vars(item), "tags": dict(item.tags), "tree": tree})
        raw = {**vars(self), "items": items, "schema_version": _VERSION}
        atomic_write(path, json.dumps(raw, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file.

        Raises:
            RecordError: it is missing, damaged, or a newer version wrote it.
        """
        try:
            raw: Any = parse_json(read_file(path))
            if not isinstance(raw, dict) or not isinstance(raw.get("schema_version"), int):
                raise RecordError(f"{path}: does not describe a sweep")
            if raw["schema_version"] > _VERSION:
                raise RecordError(
                    f"{path}: schema_version {raw['schema_version']} was written by a newer "
                    f"fsframework; this one reads versions up to {_VERSION}"
                )
            items = tuple(
                Item(
                    key=str(one["key"]),
                    name=str(one["name"]),
                    tags=dict(one["tags"]),
                    tree=None if one["tree"] is None else unpacked(one["tree"]),
                    group=str(one["group"]),
                )
                for one in raw["items"]
            )
            return cls(str(raw["name"]), items, tuple(raw["plugins"]), str(raw["created"]))
        except FileNotFoundError:
            raise RecordError(f"{path}: no such sweep") from None
        except OSError as error:
            raise RecordError(f"{path}: cannot be read ({error.strerror})") from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise RecordError(f"{path}: is damaged ({error})") from None


def key_of_experiment(experiment: Experiment, data_fingerprint: str) -> str:
    """Return the digest of everything that an experiment is told, its code and its data.

    Unlike the fingerprint of its run, it needs neither words nor tasks; nor does it know the device
    that ``auto`` becomes, which may differ where workers run.
    """
    options = {k: v for k, v in experiment.to_json().items() if k not in _INDIFFERENT}
    return digest_of(
        "experiment",
        fsframework.__version__,
        canonical([options, experiment.name]),
        _fingerprints(experiment.components()),
        [data_fingerprint, _weights_of(experiment)],
    )[:24]


def _weights_of(experiment: Experiment) -> str:
    """Return what decides the stages besides their options: weights read, code of methods."""
    try:
        return canonical(stage_digests(experiment.stages))
    except FsfError as error:  # the run will say so
        return str(error)


def group_of(experiment: Experiment) -> str:
    """Return a digest of what an experiment trains, or else of what computes its features.

    Experiments with an equal digest need not wait for each other, but two that start at once would:
    the second for the weights of the first.
    """
    parts = [experiment.dataset, experiment.backbone]
    if experiment.learns:
        parts.append(experiment.method)
    told: list[Any] = [experiment.settings.image_size]
    if experiment.learns:
        shape = [experiment.sampler.options.get(name) for name in ("n_way", "n_shot")]
        told += [experiment.training_json(), experiment.settings.training_seed, shape]
    return digest_of("group", canonical(told), _fingerprints(parts))[:16]


def _fingerprints(components: Sequence[Component]) -> list[str]:
    found = []
    for component in components:
        try:
            found.append(component.fingerprint)
        except (FsfError, OSError) as error:  # a file that is missing: the run will say so
            found.append(str(error))
    return found
