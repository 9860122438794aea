"""The cells of a grid: one experiment each, run one after another, none twice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsframework
from fsframework.components.registry import Registry
from fsframework.components.resolution import canonical
from fsframework.errors import FsfError
from fsframework.pipeline.cache.workspace import Workspace
from fsframework.pipeline.experiment.configuration import Experiment
from fsframework.pipeline.lineage import footnotes
from fsframework.pipeline.progress import Reporter
from fsframework.pipeline.run import run_experiment
from fsframework.records import RunRecord, list_records

__all__ = ["Cell", "CellResult", "cell_footnotes", "finished_runs", "run_cells"]


@dataclass(frozen=True)
class Cell:
    """One experiment of a grid.

    Args:
        name: for messages.
        experiment: resolved.
        data_fingerprint: of the data set.
    """

    name: str
    experiment: Experiment
    data_fingerprint: str

    @property
    def key(self) -> str:
        """What the cell is; equal cells are one."""
        return canonical([self.experiment.to_json(), self.data_fingerprint])


@dataclass(frozen=True)
class CellResult:
    """A cell that was run: its folder and record, or the reason why there are none.

    Args:
        reused: whether an earlier call had finished it.
    """

    cell: Cell
    folder: Path | None = None
    record: RunRecord | None = None
    reused: bool = False
    reason: str = ""


def cell_footnotes(results: Iterable[CellResult]) -> list[str]:
    """Return what must stand under a table of these cells, each sentence once."""
    return footnotes({r.cell.name: r.record.cautions for r in results if r.record is not None})


def run_cells(
    cells: Sequence[Cell], registry: Registry, workspace: Workspace, reporter: Reporter
) -> list[CellResult]:
    """Run every cell; one that fails keeps its reason and does not hinder the others.

    A finished cell is taken as it is, an interrupted one goes on where it stopped. Weights,
    words, features and the outcomes of random tasks are shared between cells through the cache.
    """
    results = []
    for number, cell in enumerate(cells, start=1):
        reporter.say(f"cell {number} of {len(cells)}: {cell.name}")
        try:
            run = run_experiment(cell.experiment, registry, workspace, reporter)
        except FsfError as error:
            result = CellResult(cell, reason=" ".join(str(error).split()))
        except Exception as error:
            # As when a GPU's memory is too small for one method: the others may still fit.
            first = (str(error).splitlines() or [""])[0]
            result = CellResult(cell, reason=f"unexpected {type(error).__name__}: {first}")
        else:
            result = CellResult(cell, run.folder, run.record, run.reused)
        if result.reason:
            reporter.say(f"cell {number} failed: {result.reason}")
        elif result.reused:
            reporter.say(f"cell {number} was finished before: {result.folder}")
        results.append(result)
    return results


def finished_runs(
    cells: Sequence[Cell], workspace: Workspace, device_type: str
) -> list[Path | None]:
    """Return for each cell the folder of a finished run, as far as the records tell.

    A record tells options, versions and data, but neither the content of a file of words nor
    an edit of a plugin's code that left its version as it was; running the cell finds these.

    Args:
        device_type: what the cells would run on, ``cpu`` or ``cuda``.
    """
    done: dict[str, Path] = {}
    for folder, record in list_records(workspace.runs):
        if isinstance(record, RunRecord) and record.status == "finished":
            identity = [
                _deciding(record.resolved),
                record.digests.get("data"),
                record.environment.get("fsframework"),
                str(record.environment.get("device")).partition(":")[0],
                _versions([p for p in record.plugins if p["kind"] != "statistic"]),
            ]
            done.setdefault(canonical(identity), folder)
    found = []
    for cell in cells:
        experiment = cell.experiment
        plugins = [vars(c.loaded.plugin) for c in experiment.components() if c.kind != "statistic"]
        identity = [
            _deciding(experiment.to_json()),
            cell.data_fingerprint,
            fsframework.__version__,
            device_type,
            _versions(plugins),
        ]
        found.append(done.get(canonical(identity)))
    return found


_NOT_DECIDING = ("statistics", "level", "interval", "device", "offline", "tensorboard")


def _deciding(resolved: Any) -> dict[str, Any]:
    """Return the options that decide the outcomes."""
    plain = json.loads(canonical(resolved))
    return {key: value for key, value in plain.items() if key not in _NOT_DECIDING}


def _versions(plugins: Sequence[Any]) -> list[list[str]]:
    found = {(p["kind"], p["name"], p["distribution"], p["version"]) for p in plugins}
    return [list(one) for one in sorted(found)]
