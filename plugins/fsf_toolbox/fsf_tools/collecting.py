"""Runs that are checked and collected in one folder."""

from __future__ import annotations

import itertools
import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import fsframework as fsf
from fsf_statistics import statistic_of_run
from fsf_tools.publishing import (
    check_no_links,
    copy_files,
    is_version,
    list_code_files,
    staging,
    without_place,
)
from fsframework.api.imports import RunRecord
from fsframework.api.running import load_runs, packaged_runs
from fsframework.api.session import Session, open_session
from fsframework.errors import DataError, FsfError
from fsframework.values import Estimate, atomic_write, read_file

__all__ = ["add_results", "check_result"]

_SUBMIT = "SUBMIT.md"
_MOST_ADVICE = 1 << 20
_SHAPE = ("n_way", "n_shot", "n_query", "sampler", "seed")
_ROUNDED = ("guessing", "seed_deviation")
"""Parts of an estimate that are computed, and so may differ in the last digit."""
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
        By name of a run, or by its folder where another of the name was given too, why it was
        refused, empty if it was added or was there already.

    Raises:
        DataError: the folder cannot be one, or cannot be written.
    """
    session, folder = open_session(plugins=plugins, progress=False), Path(folder)
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file; give a folder, or one that is to be made")
    submit, before = folder / _SUBMIT, _how_to_submit(folder)
    written = _read_submit(submit)
    found: dict[str, str] = {}
    for run in _opened(runs, runs_dir):
        if isinstance(run, _Unread):
            found[str(run.given)] = run.reason
            continue
        name, why = str(run.folder) if run.name in found else run.name, ""
        try:
            check_result(run, session)
            _add(run, folder)
        except FsfError as error:
            why = str(error) if str(run.folder) in str(error) else f"{run.folder}: {error}"
        found[name] = why
    if written in (None, before.encode()) and not all(found.values()):
        atomic_write(submit, _how_to_submit(folder))
    return found


def _read_submit(file: Path) -> bytes | None:
    """Return what the file of advice holds, ``None`` if there is none.

    Raises:
        DataError: it is a link, no regular file, or larger than any advice.
    """
    check_no_links(file)
    try:
        return read_file(file, _MOST_ADVICE) if os.path.lexists(file) else None
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}") from None


class _Unread(NamedTuple):
    """What was given for a run and is none, with the reason."""

    given: str | Path
    reason: str


def _how_to_submit(folder: Path) -> str:
    """Return how to add a run to a folder of results, with a command for each set of its tasks."""
    commands: dict[tuple[str, ...], str] = {}
    for run in sorted(fsf.runs(folder), key=lambda run: run.name):
        record = run.record
        dataset, named = record.components["dataset"], _task_set_of(record)
        data = dataset.name if dataset.argument is None else f"{dataset.name}:PATH"
        words = ["fsf", "run", "--method", "NAME", "--dataset", data]
        for option, value in sorted(dataset.options.items()):
            if dataset.origins.get(option, "default") != "default":
                words += ["-o", f"dataset.{option}={value}"]
        command = shlex.join([*words, "--task-file", named or run.name])
        tasks = tuple(arm.digest for arm in record.arms.values())
        if command.isprintable():  # a line end would end the lines of code
            commands[tasks] = command if named else commands.get(tasks, command)
    lines = [f"    {command}" for command in sorted(commands.values())]
    return _HOW.format(commands="\n".join(lines))


def _opened(runs: Iterable[str | Path], runs_dir: str | Path | None) -> Iterator[fsf.Run | _Unread]:
    for one in runs:
        path = Path(one)
        try:
            a_folder = path.is_dir() and not (path / "run.json").exists()
            opened = fsf.runs(path) if a_folder else load_runs(one, runs_dir)
        except FsfError as error:
            yield _Unread(one, str(error))
            continue
        yield from opened
        yield from itertools.starmap(_Unread, opened.broken.items())
        if not (opened or opened.broken):
            yield _Unread(one, f"{one}: holds no run")


def _add(run: fsf.Run, folder: Path) -> None:
    earlier = {one.record.fingerprint: one for one in fsf.runs(folder)}
    if (there := earlier.get(run.record.fingerprint)) is not None:
        if there.name != run.name or there.estimates != run.estimates:
            how = "" if there.estimates == run.estimates else ", with other estimates"
            raise DataError(f"{run.folder}: is in {folder} already, as {there.name}{how}")
        return
    target = folder / run.name
    if target.exists():
        raise DataError(f"{run.folder}: {folder} has another run of this name; give it a --name")
    with staging(target) as place:
        _write(run, place / "run")
        (place / "run").rename(target)


def _write(run: fsf.Run, folder: Path) -> None:
    """Write the checked values of a run, and copies of its plugin files, into a folder."""
    record, pool = run.record, run.pool
    copy_files(run, folder, list_code_files(record))
    run.tasks.save(folder)
    pool.save(record.images_file(folder))
    if pool.attributes is not None:
        pool.attributes.save(record.words_file(folder))
    for arm, outcomes in run.outcomes.items():
        outcomes.save(record.outcomes_file(folder, arm))
    without_place(record).save(folder)


def check_result(run: fsf.Run, session: Session) -> None:
    """Check that everything of a run agrees: tasks, images, words, outcomes and estimates.

    Raises:
        FsfError: it does not; the message names the run or the file.
    """
    record, folder = run.record, run.folder
    if not re.fullmatch(r"\w[\w.-]*", run.name):
        raise DataError(
            f"{folder}: rename the folder; the name of a run has letters, digits, '-', '_' and '.'"
        )
    if record.status == "unfinished":
        raise DataError(
            f"{folder}: is unfinished; run the command that made it again to finish it, or to see "
            "why it stops"
        )
    if record.status != "finished" or record.method is None:
        raise DataError(f"{folder}: is not a finished run of a method")
    own = [
        place(folder, arm)
        for arm in record.arms
        for place in (record.tasks_file, record.outcomes_file)
    ]
    others = (record.images_file(folder), record.words_file(folder), folder / "run.json")
    check_no_links(folder, *own, *others)
    _check_tasks(run)
    _check_named_tasks(run)
    _check_estimates(run, session)


def _check_tasks(run: fsf.Run) -> None:
    """Check that tasks and images are those that the record describes."""
    record, pool = run.record, run.pool
    if record.digests.get("pool") != pool.fingerprint:
        raise DataError(f"{record.images_file(run.folder)}: its images are not those of the record")
    words = None if pool.attributes is None else pool.attributes.fingerprint
    if record.digests.get("attributes") != words:
        raise DataError(f"{record.words_file(run.folder)}: its words are not those of the record")
    for arm, tasks in run.outcomes.arms.items():
        try:
            tasks.verify(pool)
        except DataError as error:
            raise DataError(f"{record.tasks_file(run.folder, arm)}: {error}") from None
        told = record.arms[arm]
        same = all(getattr(told, name) == getattr(tasks, name) for name in _SHAPE)
        if not same or told.n_tasks != len(tasks):
            raise DataError(f"{run.folder}: its {arm} tasks are not as its record describes them")


def _check_estimates(run: fsf.Run, session: Session) -> None:
    """Check that the estimates are all those, and only those, that the outcomes give."""
    record, outcomes, pool = run.record, run.outcomes, run.pool
    level, interval = record.settings["level"], record.settings["interval"]
    made: dict[str, Estimate] = {}
    for name in record.statistics:
        try:
            statistic = statistic_of_run(session.registry, name, record)
        except FsfError as error:
            raise DataError(f"{run.folder}: {error}") from None
        made |= fsf.estimate(outcomes, statistic, level=level, interval=interval, pool=pool)
    for key in sorted(made.keys() | run.estimates.keys()):
        mine, told = made.get(key), run.estimates.get(key)
        if mine is None or told is None or not _agree(mine, told):
            raise DataError(f"{run.folder}: its {key} is {told}, but its outcomes give {mine}")


def _check_named_tasks(run: fsf.Run) -> None:
    """Check that the tasks are those of the task set that a run names."""
    if not (named := _task_set_of(run.record)):
        return
    try:
        [place] = packaged_runs(named)
        published = fsf.load_run(place).tasks
    except ValueError:
        raise DataError(
            f"{run.folder}: its tasks are those of {named}, which no package has"
        ) from None
    except FsfError as error:
        raise DataError(f"{run.folder}: its tasks are to be those of {named}: {error}") from None
    for arm, tasks in run.tasks.items():
        if arm not in published or published[arm].digest != tasks.digest:
            raise DataError(f"{run.folder}: its {arm} tasks are not those of {named}")


def _task_set_of(record: RunRecord) -> str:
    """Return the name of the task set that a run was given, empty without one."""
    given = str(record.given.get("task_file", ""))
    return given if is_version(given) else ""


def _agree(one: Estimate, other: Estimate) -> bool:
    pairs = ((one.value, other.value), (one.low, other.low), (one.high, other.high))
    others = {field.name for field in fields(Estimate)} - {"value", "low", "high", *_ROUNDED}
    return all(getattr(one, name) == getattr(other, name) for name in others) and all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(a) and math.isnan(b))
        for a, b in pairs
    )
