"""Runs that are checked and collected in one folder."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import fsframework as fsf
from fsf_toolbox.publishing import copy_run, staging, without_place
from fsframework.api.imports import RunRecord
from fsframework.api.results import statistic_of_run
from fsframework.api.running import load_runs
from fsframework.api.session import Session, open_session
from fsframework.errors import DataError, FsfError
from fsframework.values import Estimate, atomic_write

__all__ = ["add_results", "check_result"]

_COPIED = ("tasks-*.safetensors", "outcomes-*.parquet", "images.parquet", "words.parquet", "code/*")
_SUBMIT = "SUBMIT.md"
_HOW = """In your copy of this folder, run your method on tasks that these results have:

{commands}

Add the run; what does not check is refused:

    fsf results add RUN --to .

Then propose the change: a folder per run, with its record, tasks and outcomes.
"""


def add_results(
    runs: Iterable[str | Path],
    folder: str | Path,
    *,
    runs_dir: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
) -> dict[str, str]:
    """Copy runs into a folder, each whole or not at all, if they check.

    Args:
        runs: folders, names or beginnings of names, selectors, or folders of runs.
        folder: of the results, which is begun if it does not exist. Its ``SUBMIT.md`` names the
            tasks of its runs, as long as nobody edits it.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.
        plugins: Python files whose plugin classes are loaded too.

    Returns:
        By name of a run why it was refused, empty if it was added or was there already.

    Raises:
        RecordError: a run does not exist.
    """
    session, folder = open_session(plugins=plugins, progress=False), Path(folder)
    submit, before = folder / _SUBMIT, _how_to_submit(folder)
    found: dict[str, str] = {}
    for run in _opened(runs, runs_dir):
        try:
            check_result(run, session)
            _add(run, folder)
        except FsfError as error:
            found[run.name] = str(error)
        else:
            found[run.name] = ""
    untouched = not submit.exists() or submit.read_text(encoding="utf-8") == before
    if untouched and not all(found.values()):
        atomic_write(submit, _how_to_submit(folder))
    return found


def _how_to_submit(folder: Path) -> str:
    """Return how to add a run to a folder of results, with a command for each set of its tasks."""
    commands: dict[tuple[str, ...], str] = {}
    for run in sorted(fsf.runs(folder), key=lambda run: run.name):
        record = run.record
        dataset, named = record.components["dataset"], _task_set_of(record)
        data = dataset.name if dataset.argument is None else f"{dataset.name}:PATH"
        given = (n for n, origin in dataset.origins.items() if n != "name" and origin != "default")
        for option in sorted(given):
            data += f" -o {shlex.quote(f'dataset.{option}={dataset.options[option]}')}"
        command = f"    fsf run --method NAME --dataset {data} --task-file {named or run.name}"
        tasks = tuple(arm.digest for arm in record.arms.values())
        commands[tasks] = command if named else commands.get(tasks, command)
    return _HOW.format(commands="\n".join(sorted(commands.values())))


def _opened(runs: Iterable[str | Path], runs_dir: str | Path | None) -> Iterator[fsf.Run]:
    for one in runs:
        path = Path(one)
        if path.is_dir() and not (path / "run.json").exists():
            yield from fsf.runs(path)
        else:
            yield from load_runs(one, runs_dir)


def _add(run: fsf.Run, folder: Path) -> None:
    earlier = {one.record.fingerprint: one for one in fsf.runs(folder)}
    if run.record.fingerprint in earlier:
        return
    target = folder / run.name
    if target.exists():
        raise DataError(f"{run.folder}: {folder} has another run of this name; give it a --name")
    with staging(target) as place:
        copy_run(run, place / "run", _COPIED, without_place(run.record))
        (place / "run").rename(target)


def check_result(run: fsf.Run, session: Session) -> None:
    """Check that everything of a run agrees: tasks, images, words, outcomes and estimates.

    Raises:
        FsfError: it does not; the message names the run or the file.
    """
    record, folder = run.record, run.folder
    if record.status == "unfinished":
        raise DataError(
            f"{folder}: is unfinished; run the command that made it again to finish it, or to see "
            "why it stops"
        )
    if record.status != "finished" or record.method is None:
        raise DataError(f"{folder}: is not a finished run of a method")
    outcomes, pool = run.outcomes, run.pool
    for arm, tasks in outcomes.arms.items():
        try:
            tasks.verify(pool)
        except DataError as error:
            raise DataError(f"{record.tasks_file(folder, arm)}: {error}") from None
    _check_named_tasks(run)
    for name in record.statistics:
        try:
            statistic = statistic_of_run(session.registry, name, record)
        except FsfError as error:
            raise DataError(f"{folder}: {error}") from None
        level, interval = record.settings["level"], record.settings["interval"]
        made = fsf.estimate(outcomes, statistic, level=level, interval=interval, pool=pool)
        told = {key: e for key, e in run.estimates.items() if e.statistic == name}
        for key, estimate in told.items():
            if key not in made or not _agree(made[key], estimate):
                raise DataError(
                    f"{folder}: its {key} is {estimate}, but its outcomes give {made.get(key)}"
                )


def _check_named_tasks(run: fsf.Run) -> None:
    """Check that the tasks are those of the task set that a run names."""
    if not (named := _task_set_of(run.record)):
        return
    published = fsf.load_run(named).tasks
    for arm, tasks in run.tasks.items():
        if arm not in published or published[arm].digest != tasks.digest:
            raise DataError(f"{run.folder}: its {arm} tasks are not those of {named}")


def _task_set_of(record: RunRecord) -> str:
    """Return the name of the task set that a run was given, empty without one."""
    given = Path(str(record.given.get("task_file", "")))
    return "" if len(given.parts) != 2 or given.suffix else str(given)


def _agree(one: Estimate, other: Estimate) -> bool:
    pairs = ((one.value, other.value), (one.low, other.low), (one.high, other.high))
    return all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(a) and math.isnan(b))
        for a, b in pairs
    )
