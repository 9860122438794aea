"""Entries as offline runs of Weights & Biases."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsf_trackers.entries import Entry, State
from fsframework.errors import FsfError, OptionError, install_hint
from fsframework.values import atomic_write

__all__ = ["WandbTracker"]

_MARK = "fsf-record.json"
"""File in a run's folder that tells what was written there; it is written last."""
_LONGEST_TAG = 64
_WEAVE = "WANDB_DISABLE_WEAVE"


class WandbTracker:
    """Offline runs in a folder, for ``wandb sync``.

    The fingerprint is the run's id, so that syncing again replaces the run on the server.

    Args:
        folder: of the folder ``wandb``.
        project: name of the project.

    Raises:
        OptionError: wandb is not installed.
        FsfError: the folder cannot be written.
    """

    def __init__(self, folder: Path, project: str) -> None:
        # It reports its own faults to its makers unless it is told not to.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        try:
            import wandb
        except ImportError as error:
            raise OptionError(
                f"wandb is not installed ({error}); install it with: {install_hint('wandb')}"
            ) from None
        self._wandb: Any = wandb
        self._folder, self._project = folder.absolute(), project
        try:
            (self._folder / "wandb").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FsfError(f"{folder}: {error.strerror or error}") from error
        if not os.access(self._folder / "wandb", os.W_OK):
            raise FsfError(f"{folder / 'wandb'}: this folder cannot be written")

    def put(self, entry: Entry) -> State:
        """Write an entry; an earlier one of the same fingerprint is replaced."""
        pattern = f"offline-run-*-{entry.fingerprint}"
        earlier = sorted((self._folder / "wandb").glob(pattern))
        if len(earlier) == 1 and _has(earlier[0], entry):
            return "unchanged"
        # First, since wandb names folders by the second and would write into the earlier one.
        for folder in earlier:
            shutil.rmtree(folder)
        try:
            self._write(entry)
        except self._wandb.Error as error:
            raise FsfError(f"wandb: {' '.join(str(error).split())}") from error
        return "updated" if earlier else "new"

    def _write(self, entry: Entry) -> None:
        wandb = self._wandb
        settings = wandb.Settings(
            console="off", disable_code=True, disable_git=True, reinit="create_new", silent=True,
            # The machine of the export is not that of the run.
            x_disable_machine_info=True, x_disable_meta=True, x_disable_stats=True,
            x_save_requirements=False,
        )  # fmt: skip
        facts = entry.facts
        tags = [facts[name] for name in ("method", "dataset", "sampler", "status") if name in facts]
        with _no_weave():
            run = wandb.init(
                project=self._project,
                id=entry.fingerprint,
                name=entry.name,
                notes="\n\n".join(entry.notes),
                tags=sorted({tag[:_LONGEST_TAG] for tag in tags}),
                config={**entry.options, **facts},
                dir=str(self._folder),
                mode="offline",
                resume="allow",
                settings=settings,
            )
        place = Path(run.dir)
        for step, point in enumerate(entry.curve, start=1):
            run.log(dict(point), step=step)
        run.summary.update(dict(entry.estimates))
        for name, path in entry.files.items():
            shutil.copyfile(path, place / name)
            run.save(str(place / name), base_path=str(place), policy="now")
        run.finish()
        mark = {"record": entry.record, "files": sorted(entry.files)}
        atomic_write(place.parent / _MARK, json.dumps(mark) + "\n")


@contextmanager
def _no_weave() -> Iterator[None]:
    """Keep wandb from starting Weave, or advertising it, where a language model is imported."""
    before = os.environ.get(_WEAVE)
    os.environ.setdefault(_WEAVE, "true")
    try:
        yield
    finally:
        if before is None:
            del os.environ[_WEAVE]


def _has(folder: Path, entry: Entry) -> bool:
    """Return whether a run's folder holds an entry with all its files."""
    try:
        mark = json.loads((folder / _MARK).read_text())
        return mark["record"] == entry.record and set(entry.files) <= set(mark["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return False  # a killed export
