"""How a reader is judged: it ends in time, needs bounded memory and raises only sentences."""

from __future__ import annotations

import contextlib
import faulthandler
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from types import FrameType

from fsframework.errors import FsfError

__all__ = ["TooLong", "fault_of", "within"]

_MOST_KIB = 1 << 20
"""Growth of the process's memory during one reading: 1 GiB."""


class TooLong(BaseException):
    """A reading did not end in time."""


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise ``TooLong`` if the block takes longer; end the process if no Python code notices."""

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise TooLong(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    faulthandler.dump_traceback_later(4 * seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


def fault_of(read: Callable[[], object], seconds: int = 20) -> tuple[str, str]:
    """Read; return the fault, empty if there is none, and the sentence, empty on success.

    A fault is an exception that is not of ``fsframework.errors``, a sentence of several lines or of
    more than 10,000 characters, a hang, or a growth of memory by more than 1 GiB.
    """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sentence = fault = ""
    try:
        with within(seconds), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read()
    except FsfError as error:
        sentence = str(error)
        if not sentence or len(sentence) > 10_000 or "unexpected " in sentence:
            fault = f"no sentence: {sentence[:100]!r}"
    except (Exception, TooLong) as error:
        fault = f"{type(error).__name__}: {str(error)[:200]}"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if grown > _MOST_KIB:
        fault = f"{fault}; memory grew by {grown >> 10:,} MiB"
    return fault, sentence
