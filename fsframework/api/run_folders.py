"""The folders of runs: finding and removing them, even those with a damaged record."""

from __future__ import annotations

import shutil
from pathlib import Path

from fsframework.errors import FsfError
from fsframework.pipeline.cache.workspace import Workspace
from fsframework.records import RECORD_NAME, find_run

__all__ = ["remove_run", "run_folder"]


def run_folder(run: str | Path, runs_dir: str | Path | None = None) -> Path:
    """Return the folder of a run given by its folder, its name, or the beginning of its name.

    Args:
        run: folder or name.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.

    Raises:
        RecordError: no run or several runs match.
    """
    return find_run(str(run), Workspace.default(None if runs_dir is None else Path(runs_dir)).runs)


def remove_run(run: str | Path, runs_dir: str | Path | None = None) -> Path:
    """Remove a run with its weights and outcomes; what is cached stays.

    Args:
        run: its folder, its name, or the beginning of its name.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.

    Returns:
        The folder that was removed.

    Raises:
        RecordError: no run or several runs match.
        FsfError: the file system refuses.
    """
    folder = run_folder(run, runs_dir)
    try:
        # The record first: what a killed removal leaves behind is no longer a run.
        (folder / RECORD_NAME).unlink()
        shutil.rmtree(folder)
    except OSError as error:
        raise FsfError(f"cannot remove {folder}: {error.strerror or error}") from error
    return folder
