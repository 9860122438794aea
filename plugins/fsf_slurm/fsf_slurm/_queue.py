"""What Slurm says of an array of jobs."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import IO

from fsframework.errors import FsfError

__all__ = ["Asked", "Queue", "Row", "controller_answers", "words_of"]

_PAUSE = 3.0
"""Seconds between two questions to the controller: one question is for the whole array."""

PATIENCE = 600.0
"""Seconds that the controller may be away, as when it is restarted."""


@dataclass(frozen=True)
class Row:
    """One job of the array.

    Args:
        state: as Slurm names it, such as ``PENDING``.
        nodes: where it runs, or ran.
        reason: of its state, as Slurm names it; empty for none.
    """

    state: str
    nodes: str
    reason: str


class Asked:
    """A command of Slurm that runs while the caller does other things.

    It has a session of its own, so that Ctrl-C does not reach it.
    """

    def __init__(self, *command: str) -> None:
        # Files, since a pipe that nobody reads would stop a command with many rows.
        self._out, self._err = _file(), _file()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            start_new_session=True,
        )

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def answer(self) -> tuple[bool, str, str]:
        """Wait for the end; return whether it succeeded, and its two outputs. Called once."""
        code = self._process.wait()
        with self._out as out, self._err as err:
            out.seek(0)
            err.seek(0)
            return code == 0, out.read(), err.read()


class Queue:
    """The jobs of an array, without ever waiting for the controller unless asked to.

    Args:
        array: id of the array.
    """

    def __init__(self, array: str) -> None:
        rows = ("--noheader", "--array", "--states=all", "--format", "%i|%T|%N|%r")
        self._command: tuple[str, ...] = ("squeue", *rows, "--jobs", array)
        self._asked: Asked | None = None
        self._next = 0.0
        self._away_since: float | None = None
        self.known = False
        self.rows: Mapping[str, Row] = MappingProxyType({})

    def look(self, *, wait: bool = False) -> None:
        """Update ``rows``, by id of the job, and ``known``: whether Slurm has answered yet.

        Slurm forgets a job some minutes after its end; it is then missing from ``rows``.

        Args:
            wait: for the answer; otherwise a later call takes it.

        Raises:
            FsfError: the controller has not answered for ``PATIENCE`` seconds.
        """
        if self._asked is None and (wait or time.monotonic() >= self._next):
            self._asked = Asked(*self._command)
        if self._asked is not None and (wait or self._asked.done):
            fine, rows, words = self._asked.answer()
            self._asked, self._next = None, time.monotonic() + _PAUSE
            self._take(fine, rows, words)

    def _take(self, fine: bool, rows: str, words: str) -> None:
        # squeue fails too if it knows none of the jobs any more.
        if fine or controller_answers():
            self._away_since, self.known = None, True
            self.rows = _rows(rows) if fine else {}
            return
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
        if now - self._away_since >= PATIENCE:
            raise FsfError(
                f"Slurm has not answered for {PATIENCE / 60:.0f} minutes: {words_of(words)}"
            )


def _file() -> IO[str]:
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")


def _rows(text: str) -> dict[str, Row]:
    rows = {}
    for line in text.splitlines():
        job, state, nodes, reason = line.split("|", 3)
        rows[job] = Row(state, nodes, "" if reason == "None" else reason)
    return rows


def controller_answers() -> bool:
    """Return whether the controller of the cluster can be reached."""
    return Asked("scontrol", "ping").answer()[0]


def words_of(text: str) -> str:
    r"""Return what a command of Slurm wrote as one line.

    >>> words_of("sbatch: error: invalid partition\nsbatch: error: Batch job failed\n")
    'invalid partition; Batch job failed'
    """
    lines = [re.sub(r"^(\w+: )?(error: )?", "", line) for line in text.splitlines()]
    return "; ".join(line.strip() for line in lines if line.strip()) or "no reason given"
