"""Regular expressions of users, with limits on their length and on the time that they take."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fsframework.interfaces import OptionError

__all__ = ["compiled", "search_names"]

_MOST_CHARACTERS = 1000
_SECONDS = 10.0
_SECONDS_PER_NAME = 1e-4


def compiled(pattern: str) -> re.Pattern[str]:
    """Return a compiled pattern.

    Raises:
        ValueError: it is too long or not a regular expression.
    """
    if len(pattern) > _MOST_CHARACTERS:
        raise ValueError(f"it has {len(pattern):,} characters; at most {_MOST_CHARACTERS:,}")
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None


def search_names(expression: re.Pattern[str], names: Sequence[str]) -> list[dict[str, str] | None]:
    """Search each name for a pattern; return the text of each named group, if it matches.

    A group that does not take part in the match gives the empty string.

    A regular expression can take exponential time, and Python cannot interrupt one, so another
    process searches and is ended if it takes too long.

    Raises:
        OptionError: the search took more than 10 s and 0.1 ms per name.
    """
    limit = _SECONDS + _SECONDS_PER_NAME * len(names)
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("_search.py"))]
    request = json.dumps([expression.pattern, list(names)])
    try:
        done = subprocess.run(
            command, input=request, capture_output=True, text=True, timeout=limit, check=True
        )
    except subprocess.TimeoutExpired:
        raise OptionError(
            f"the pattern {expression.pattern!r} takes more than {limit:.0f} s for {len(names):,} "
            "file names; leave out repetitions within repetitions, such as (a+)+"
        ) from None
    found: list[dict[str, str] | None] = json.loads(done.stdout)
    return found
