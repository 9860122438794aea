"""What ran: written before a run starts, completed when it ends, readable for ever after."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from fsframework._files import atomic_write
from fsframework.errors import FsfError, RecordError, close_matches
from fsframework.values import Estimate

__all__ = ["RECORD_NAME", "RECORD_VERSION", "RunRecord", "find_run", "list_records"]

RECORD_VERSION = 1
RECORD_NAME = "run.json"

Status = Literal["unfinished", "finished", "imported"]


@dataclass(frozen=True)
class RunRecord:
    """One run: what was asked for, what it came to, with what versions, and what it gave.

    Args:
        fingerprint: Digest of everything that decides the outcomes; statistics are not in it,
            since any can be computed from the outcomes later.
        status: ``finished`` once every estimate asked for is in it; ``imported`` where the weights
            are another library's and nothing was evaluated.
        given: options as the user gave them.
        resolved: every option of every component; ``origins`` where each value came from.
        plugins: kind, name, target, distribution and version of every plugin used.
        environment: versions of fsframework, Python and the numerical libraries, device, dtype.
        digests: of tasks, weights, images and attributes.
        notes: what a reader must know (relaxed tasks, images without attributes, ...).
        cautions: those of the notes that stand under every table that shows the run: classes the
            model may have seen before, data that are not as published.
        data: name of the data, size of the images, and what the weights were trained on.
        timings: wall-clock seconds by stage, 0 where a stage was reused.
        training: a row an epoch, and the best validation accuracy.
        tasks: of each kind sampler, options, seed, shape and number.
        statistics: fingerprint of each statistic computed.
        estimates: results by name: ``acc-R``, ``wacc-R``, ``wacc-A``, ``wacc-gap``, ...
    """

    fingerprint: str
    status: Status
    created: str
    given: Mapping[str, Any]
    resolved: Mapping[str, Any]
    origins: Mapping[str, Any]
    plugins: tuple[Mapping[str, str], ...]
    environment: Mapping[str, str]
    digests: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    tasks: Mapping[str, Any] = field(default_factory=dict)
    statistics: Mapping[str, str] = field(default_factory=dict)
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    schema_version: int = RECORD_VERSION

    @property
    def seen_size(self) -> int | None:
        """Height and width in pixels of the images its model saw, as far as it is known."""
        size = self.data.get("image_size") or self.resolved.get("image_size")
        return None if size is None else int(size)

    def save(self, folder: Path) -> None:
        """Write ``run.json`` into ``folder``, whole or not at all."""
        raw = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        raw["estimates"] = {name: e.to_json() for name, e in self.estimates.items()}
        atomic_write(folder / RECORD_NAME, json.dumps(raw, indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the record of a run folder.

        Raises:
            RecordError: there is none, it is not JSON, lacks a field or is of a newer version.
        """
        path = Path(folder) / RECORD_NAME
        try:
            raw = json.loads(path.read_text())
        except FileNotFoundError:
            raise RecordError(f"{folder}: holds no run ({RECORD_NAME} is missing)") from None
        except (OSError, ValueError) as error:
            raise RecordError(f"{path}: cannot be read ({error})") from None
        raw = _upgraded(raw, path)
        known = {f.name for f in dataclasses.fields(cls)}
        try:
            raw["estimates"] = {n: Estimate.from_json(e) for n, e in raw["estimates"].items()}
            raw["plugins"], raw["notes"] = tuple(raw["plugins"]), tuple(raw["notes"])
            raw["cautions"] = tuple(raw.get("cautions", ()))
            return cls(**{name: value for name, value in raw.items() if name in known})
        except (KeyError, TypeError, AttributeError, ValueError, FsfError) as error:
            raise RecordError(f"{path}: is damaged ({error})") from None

    def merged(self, other: RunRecord, *, overwrite: bool = False) -> RunRecord:
        """Return this record with the other's estimates added.

        Raises:
            RecordError: the fingerprints differ, or an estimate differs and ``overwrite`` is
                false.
        """
        if self.fingerprint != other.fingerprint:
            raise RecordError(
                f"runs {self.fingerprint[:12]} and {other.fingerprint[:12]} are not the same run; "
                "only results of equal fingerprints are merged"
            )
        both = self.estimates.keys() & other.estimates.keys()
        changed = sorted(n for n in both if self.estimates[n] != other.estimates[n])
        if changed and not overwrite:
            raise RecordError(f"{', '.join(changed)} would be overwritten with other values")
        plugins = [*self.plugins, *(p for p in other.plugins if p not in self.plugins)]
        return dataclasses.replace(
            self,
            estimates={**self.estimates, **other.estimates},
            statistics={**self.statistics, **other.statistics},
            plugins=tuple(plugins),
        )


def _upgraded(raw: Any, path: Path) -> dict[str, Any]:
    """Bring a record of any older version to the present one."""
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if not isinstance(version, int):
        raise RecordError(f"{path}: is not a run record")
    if version > RECORD_VERSION:
        raise RecordError(
            f"{path}: schema_version {version} was written by a newer fsframework; "
            f"this one reads versions up to {RECORD_VERSION}"
        )
    return dict(raw)


def list_records(folder: Path) -> list[tuple[Path, RunRecord | RecordError]]:
    """Return every run folder below ``folder`` with its record, or why it cannot be read."""
    found: list[tuple[Path, RunRecord | RecordError]] = []
    for path in sorted(folder.glob(f"*/{RECORD_NAME}")):
        try:
            found.append((path.parent, RunRecord.load(path.parent)))
        except RecordError as error:
            found.append((path.parent, error))
    return found


def find_run(run: str, runs_dir: Path) -> Path:
    """Return the folder of a run given as a folder, or as the name of one or its beginning.

    Raises:
        RecordError: there is none, or the beginning fits several.
    """
    if (Path(run) / RECORD_NAME).exists():
        return Path(run)
    names = sorted(p.parent.name for p in runs_dir.glob(f"*/{RECORD_NAME}"))
    near = [run] if run in names else [name for name in names if name.startswith(run)]
    if len(near) == 1:
        return runs_dir / near[0]
    if near:
        some = ", ".join(near[:5]) + (", ..." if len(near) > 5 else "")
        raise RecordError(f"{run!r} begins the names of {len(near)} runs: {some}")
    hint = close_matches(run, names)
    raise RecordError(f"no run {run!r} in {runs_dir}{hint}; see fsf runs list")
