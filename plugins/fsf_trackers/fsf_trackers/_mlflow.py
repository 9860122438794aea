"""Entries in MLflow."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsf_trackers.entries import Entry, State
from fsframework.errors import FsfError, OptionError, argument, install_hint

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run

__all__ = ["MlflowTracker"]

_FINGERPRINT, _RECORD, _NOTES = "fingerprint", "record", "mlflow.note.content"
_MOST_METRICS, _MOST_OTHERS = 1000, 100
"""Of a request, as MLflow allows."""
_PACKAGES = "fsf-trackers[mlflow]"
_FILE = "sqlite:///"


class MlflowTracker:
    """Runs of one experiment of MLflow.

    MLflow cannot change a parameter or remove a metric, so that an entry whose record has changed
    is written anew, and the earlier one goes to MLflow's trash. The tags that others gave it stay.

    Args:
        uri: of the store; by default MLflow's own.
        experiment: name; it is made if it does not exist.

    Raises:
        OptionError: MLflow, or what the store needs, is not installed.
        FsfError: the store cannot be opened.
    """

    def __init__(self, uri: str | None, experiment: str) -> None:
        # MLflow reports its use to its makers unless it is told not to.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise OptionError(
                f"MLflow is not installed ({error}); install it with: {install_hint(_PACKAGES)}"
            ) from None
        # It tells how it makes the tables of a new store.
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        _check_file(uri or "")
        try:
            with _explained():
                self._client = MlflowClient(uri)
                found = self._client.get_experiment_by_name(experiment)
                self._experiment: str = (
                    found.experiment_id if found else self._client.create_experiment(experiment)
                )
        except ImportError as error:
            raise OptionError(
                f"{argument('uri', uri)}: a package that this store needs is not installed "
                f"({error}); install it with: {install_hint(_PACKAGES)}"
            ) from None

    def put(self, entry: Entry) -> State:
        """Write an entry; an earlier one of the same fingerprint is updated."""
        with _explained():
            query = f"tags.{_FINGERPRINT} = '{entry.fingerprint}'"
            earlier = list(self._client.search_runs([self._experiment], query))
            same = next((run for run in earlier if _is_whole(run, entry)), None)
            added = self._add_files(entry, same) if same else True
            kept = same.info.run_id if same else self._write(entry, earlier)
            for run in earlier:
                if run.info.run_id != kept:
                    self._client.delete_run(run.info.run_id)
        if not earlier:
            return "new"
        return "updated" if added or len(earlier) > 1 else "unchanged"

    def _add_files(self, entry: Entry, run: Run) -> bool:
        """Add the files that a run lacks; return whether there are any."""
        there = {file.path for file in self._client.list_artifacts(run.info.run_id)}
        lacking = [path for name, path in entry.files.items() if name not in there]
        for path in lacking:
            self._client.log_artifact(run.info.run_id, str(path))
        return bool(lacking)

    def _write(self, entry: Entry, earlier: list[Run]) -> str:
        """Write a run; its digest comes last, so that a killed export is not taken for whole."""
        from mlflow.entities import Param, RunTag

        start = int(entry.created.timestamp() * 1000)
        tags = {**entry.facts, _NOTES: "\n\n".join(entry.notes)}
        for run in earlier:
            own = {k: v for k, v in run.data.tags.items() if not k.startswith("mlflow.")}
            tags = {**own, **tags}
        tags.pop(_RECORD, None)
        made = self._client.create_run(
            self._experiment,
            start_time=start,
            run_name=entry.name,
            tags={_FINGERPRINT: entry.fingerprint},
        )
        run_id: str = made.info.run_id
        params = [Param(key, str(value)) for key, value in entry.options.items()]
        for part in _parts(_metrics(entry, start), _MOST_METRICS):
            self._client.log_batch(run_id, metrics=part)
        for part in _parts(params, _MOST_OTHERS):
            self._client.log_batch(run_id, params=part)
        for part in _parts([RunTag(key, value) for key, value in tags.items()], _MOST_OTHERS):
            self._client.log_batch(run_id, tags=part)
        for path in entry.files.values():
            self._client.log_artifact(run_id, str(path))
        self._client.set_terminated(run_id, end_time=start + int(entry.seconds * 1000))
        self._client.set_tag(run_id, _RECORD, entry.record)
        return run_id


def _check_file(uri: str) -> None:
    """Check an existing SQLite file, which MLflow would try to open for minutes.

    Raises:
        OptionError: it is not a database.
    """
    path = Path(uri.removeprefix(_FILE))
    if not uri.startswith(_FILE) or not path.exists():
        return
    try:
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        raise OptionError(f"{argument('uri', uri)}: {error}") from None


def _is_whole(run: Run, entry: Entry) -> bool:
    return bool(run.data.tags.get(_RECORD) == entry.record)


def _metrics(entry: Entry, start: int) -> list[Metric]:
    from mlflow.entities import Metric

    end = start + int(entry.seconds * 1000)
    found = [Metric(name, value, end, 0) for name, value in entry.estimates.items()]
    at = float(start)
    for step, point in enumerate(entry.curve, start=1):
        at += 1000 * point["seconds"]
        found += [Metric(name, value, int(at), step) for name, value in point.items()]
    return found


def _parts(values: list[Any], most: int) -> Iterator[list[Any]]:
    for first in range(0, len(values), most):
        yield values[first : first + most]


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what MLflow raises into one sentence."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        raise FsfError(f"MLflow: {' '.join(str(error).split())}") from error
