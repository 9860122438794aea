"""Checks of sections of a report."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

from fsf_reports.interfaces import ReportedRuns, Section
from fsf_reports.testing.toys import toy_runs
from fsf_reports.values import (
    Block,
    FigureDeclaration,
    Gallery,
    TableDeclaration,
    TaskBrowser,
    Text,
)
from fsframework.errors import FsfError
from fsframework.testing import Make, NotApplicable, Suite, require

suite = Suite(Section)

_KINDS = get_args(Block)
_NAMES = ("<script>alert(1)</script>", '"quoted" & $x_1$ {a} #', "שלום 🐕", "long " * 60)


def _blocks(make: Make, runs: ReportedRuns) -> list[Any]:
    """Return what a fresh section shows; a section may need folders of runs that toys lack."""
    try:
        return list(make().blocks(runs))
    except FsfError as error:
        raise NotApplicable(f"it needs what toys lack: {error}") from None


@suite.check()
def check_title(make: Make) -> None:
    """``title`` is a heading in one line."""
    title = make().title
    require(isinstance(title, str) and title.strip(), f"title must be a text, not {title!r}")
    require("\n" not in title, "title must be one line")


@suite.check()
def check_place(make: Make) -> None:
    """``place`` is a whole number."""
    place = make().place
    require(
        isinstance(place, int) and not isinstance(place, bool),
        f"place must be a whole number, not {place!r}",
    )


@suite.check()
def check_blocks(make: Make) -> None:
    """``blocks`` gives blocks, whatever the runs: one, several, without words, unfinished."""
    for runs in _cases():
        for block in _blocks(make, runs):
            names = ", ".join(kind.__name__ for kind in _KINDS)
            require(
                isinstance(block, _KINDS),
                f"a block must be one of {names}, not {type(block).__name__}",
            )


def _cases() -> Iterator[ReportedRuns]:
    finished = toy_runs(2)
    yield finished
    yield finished[:1]
    yield toy_runs(1, words=False)
    yield toy_runs(1, finished=False)
    yield ReportedRuns([*finished, *toy_runs(1, names=("third",), finished=False)])


@suite.check(after=[check_blocks])
def check_references(make: Make) -> None:
    """Blocks refer to runs of the report and to images of their data."""
    runs = ReportedRuns([*toy_runs(1, names=("third",), finished=False), *toy_runs(2)])
    for block in _blocks(make, runs):
        if isinstance(block, TaskBrowser):
            for number in block.runs:
                _check_run(runs, number)
        if isinstance(block, Gallery):
            _check_run(runs, block.run)
            pool = runs[block.run].data.pool  # type: ignore[union-attr]
            for group in block.groups:
                wrong = [i for i in group.images if not 0 <= i < len(pool)]  # type: ignore[arg-type]
                require(not wrong, f"the gallery {block.title!r} has the image {wrong[:1]}")


def _check_run(runs: ReportedRuns, number: int) -> None:
    require(0 <= number < len(runs), f"there is no run {number} in a report of {len(runs)}")
    require(runs[number].outcomes is not None, f"the run {number} has no outcomes to show")


@suite.check(after=[check_blocks])
def check_any_names(make: Make) -> None:
    """Names with any characters, of any length, do not matter."""
    _blocks(make, toy_runs(len(_NAMES), names=_NAMES))


@suite.check(after=[check_blocks])
def check_repeatable(make: Make) -> None:
    """The same runs give the same blocks, whatever was asked before."""
    runs = toy_runs(2)
    used = make()
    first = _blocks(lambda: used, runs)
    _blocks(lambda: used, toy_runs(1, names=("other",)))
    require(first == _blocks(lambda: used, runs), "a second call gives other blocks")
    require(first == _blocks(make, runs), "another instance gives other blocks")


@suite.check(after=[check_blocks, check_repeatable])
def check_tasks_apart(make: Make) -> None:
    """No number is made of runs on different tasks, whose difficulty differs."""

    def of(first: int, second: int) -> dict[tuple[str, ...], str]:
        runs = (
            toy_runs(1, names=("first",), seed=first),
            toy_runs(1, names=("second",), seed=second, task_seed=7),
        )
        return dict(_numbers(_blocks(make, ReportedRuns(run for part in runs for run in part))))

    for seed in (0, 4):  # two runs may happen to be equal
        usual, one, other = of(seed, seed + 1), of(seed + 2, seed + 1), of(seed, seed + 3)
        for where in usual.keys() & one.keys() & other.keys():
            require(
                usual[where] in (one[where], other[where]),
                f"{' '.join(where)} is made of two runs that have different tasks",
            )


def _numbers(blocks: list[Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the numbers of blocks, by what is said about each."""
    for block in blocks:
        if isinstance(block, TableDeclaration):
            for entry in block.entries:
                yield (block.name, *entry.row, entry.column), str(entry.measured)
        elif isinstance(block, FigureDeclaration):
            for panel in block.panels:
                for series in panel.series:
                    for point in series.points:
                        where = (block.name, panel.title, series.name, str(point.label or point.x))
                        yield where, f"{point.x} {point.y}"
        elif isinstance(block, Text):
            for text in block.paragraphs:
                yield (re.sub(r"\d+(\.\d+)?", "N", text),), text


@suite.check(after=[check_blocks])
def check_runs_unchanged(make: Make) -> None:
    """The runs are not changed."""
    runs = toy_runs(2)
    before = [_facts(runs, number) for number in range(len(runs))]
    _blocks(make, runs)
    after = [_facts(runs, number) for number in range(len(runs))]
    require(before == after, "blocks changes the runs")


def _facts(runs: ReportedRuns, number: int) -> Any:
    run = runs[number]
    assert run.outcomes is not None
    digests = {arm: outcomes.digest for arm, outcomes in run.outcomes.items()}
    return run.label, repr(run.record), dict(run.estimates), dict(run.measures), digests


@suite.answers(after=[check_repeatable])
def _answers(make: Make) -> dict[str, str]:
    return {"the blocks": repr(_blocks(make, toy_runs(2)))}
