"""Checks of searchers; nothing is trained, the scores are made up."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsf_tools.searcher import Range, Search, Searcher, Space
from fsframework.testing import Make, Suite, require

suite = Suite(Searcher)

_SPACE: Space = {
    "even": Range(0.25, 0.75),
    "log": Range(1e-6, 10.0, log=True),
    "steps": Range(2, 11, step=3, whole=True),
    "whole": Range(1, 1000, log=True, whole=True),
    "word": ("one", "two, too", "3"),
}


@contextmanager
def _file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "study.jsonl"


def _score(values: Mapping[str, Any]) -> float:
    return float(values["even"] + (values["word"] == "one"))


def _tried(search: Search, first: int, last: int) -> list[dict[str, Any]]:
    """Run trials, and return their values."""
    found = []
    for number in range(first, last):
        trial = search.begin(number)
        found.append(dict(trial.values))
        search.goes_on(number, 1, 0.5)
        search.end(number, "finished", score=_score(trial.values))
    return found


@suite.check()
def check_values(make: Make) -> None:
    """A trial has a value for every option of the space, within its range or among its names."""
    with _file() as file:
        for values in _tried(make().open(file, _SPACE), 0, 8):
            require(values.keys() == _SPACE.keys(), f"it must be {[*_SPACE]}, not {[*values]}")
            for name, allowed in _SPACE.items():
                require(
                    _allows(allowed, values[name]),
                    f"{name} must be one of {allowed}, not {values[name]!r}",
                )


def _allows(allowed: Range | tuple[str, ...], value: Any) -> bool:
    if not isinstance(allowed, Range):
        return value in allowed
    if isinstance(value, bool) or not isinstance(value, int if allowed.whole else float):
        return False
    whole = allowed.step is None or (value - allowed.low) % allowed.step == 0
    return allowed.low <= value <= allowed.high and whole


@suite.check(after=[check_values])
def check_begun_again(make: Make) -> None:
    """A trial that is begun again has the values it had, after an interruption too."""
    with _file() as file:
        search = make().open(file, _SPACE)
        first = search.begin(0)
        for one in (search, make().open(file, _SPACE)):
            again = one.begin(0)
            require(again.values == first.values, "trial 0 has other values when it is begun again")
            require(again.state == "running", f"trial 0 must be running, not {again.state}")
            one.goes_on(0, 1, 0.25)
        require(len(search.trials()) == 1, "beginning trial 0 again must not make another trial")


@suite.check(after=[check_values])
def check_trials(make: Make) -> None:
    """``trials`` returns what came of each, by number, to all processes that have the file open."""
    with _file() as file:
        search, other = make().open(file, _SPACE), make().open(file, _SPACE)
        for number in (3, 0, 1):
            search.begin(number)
        search.end(3, "finished", score=-0.5)
        search.goes_on(0, 1, 0.1)
        search.end(0, "stopped")
        search.end(1, "failed", reason="the loss became nan")
        other.begin(2)
        expected = [
            (0, "stopped", None, ""),
            (1, "failed", None, "the loss became nan"),
            (2, "running", None, ""),
            (3, "finished", -0.5, ""),
        ]
        for one in (search, other, make().open(file, _SPACE)):
            told = [(t.number, t.state, t.score, t.reason) for t in one.trials()]
            require(told == expected, f"it must tell {expected}, not {told}")


@suite.check(after=[check_begun_again])
def check_interruptions(make: Make) -> None:
    """Trials are the same whether or not the search was opened anew in between."""
    with _file() as file:
        whole = _tried(make().open(file, _SPACE), 0, 14)
    with _file() as file:
        parts = [
            one for n in range(0, 14, 2) for one in _tried(make().open(file, _SPACE), n, n + 2)
        ]
    require(whole == parts, "trials differ when the search is opened anew after every second one")


@suite.answers(after=[check_interruptions])
def _answers(make: Make) -> dict[str, Any]:
    with _file() as file:
        tried = _tried(make().open(file, _SPACE), 0, 14)
    return {f"trial {number}": values for number, values in enumerate(tried)}
