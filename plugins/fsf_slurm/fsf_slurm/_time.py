"""Time limits as Slurm writes them."""

from __future__ import annotations

import math
import re

from fsframework.interfaces import OptionError

__all__ = ["minutes_of"]

_FORMS = (
    r"(?P<m>\d+)",
    r"(?P<m>\d+):(?P<s>\d+)",
    r"(?P<h>\d+):(?P<m>\d+):(?P<s>\d+)",
    r"(?P<d>\d+)-(?P<h>\d+)(:(?P<m>\d+)(:(?P<s>\d+))?)?",
)
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def minutes_of(time: int | str) -> int:
    """Return a time limit in minutes, rounded up.

    Args:
        time: minutes, or a text in one of Slurm's forms: ``MM``, ``MM:SS``, ``HH:MM:SS``, ``D-HH``,
            ``D-HH:MM`` or ``D-HH:MM:SS``.

    Raises:
        OptionError: it is none of these, or no time.

    >>> minutes_of(240), minutes_of("1-12:00:00"), minutes_of("2:30")
    (240, 2160, 3)
    """
    for form in _FORMS:
        if found := re.fullmatch(form, str(time).strip(), re.ASCII):
            parts = found.groupdict(default="0")
            minutes = math.ceil(sum(_SECONDS[unit] * int(n) for unit, n in parts.items()) / 60)
            if minutes > 0:
                return minutes
    raise OptionError(
        f"time must be at least 1 minute: a number of minutes, HH:MM:SS or D-HH:MM:SS, not {time!r}"
    )
