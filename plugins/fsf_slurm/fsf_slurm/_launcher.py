"""The launcher."""

from __future__ import annotations

import contextlib
import io
import math
import operator
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from submitit import SlurmExecutor
from submitit.core.utils import FailedJobError

from fsf_slurm._jobs import STOPPED, Call, JobArray, controller_answers, words_of
from fsframework.errors import FsfError
from fsframework.interfaces import Launcher, OptionError, check_at_least

__all__ = ["SlurmLauncher"]

_USUAL_WORKERS = 16
_MOST_JOBS = 1000
"""Jobs of an array; Slurm usually refuses more."""
_OWN = (
    *("account", "array", "cpus-per-task", "error", "gpus-per-node", "job-name", "mem", "nodes"),
    *("ntasks", "open-mode", "output", "partition", "qos", "requeue", "signal", "time"),
)
"""The options of sbatch that the launcher sets."""


@dataclass(kw_only=True, eq=False)
class SlurmLauncher(Launcher):
    """Runs each item as a job of an array on a Slurm cluster.

    Each job is one process. Shortly before its time limit, and when it is preempted, it stops and
    is requeued; it then goes on with its item, a training from its last checkpoint. This needs a
    disk that all nodes see, with the folder of the runs, the cache and the Python environment under
    the same paths.

    Args:
        workers: jobs that run at the same time; by default at most 16.
        partition: where they run; by default the partition that the cluster has for that.
        time: time limit of each: minutes, or a text such as ``1-12:00:00``.
        memory: of each, such as ``8G`` (``K``, ``M``, ``G`` or ``T``; without one megabytes); by
            default what the partition gives.
        gpus: number of GPUs of each.
        cpus: number of processors of each, and of its threads (``OMP_NUM_THREADS``).
        account: that pays for them.
        qos: quality of service.
        requeues: how often a job that reaches its time limit is started again; one that is
            preempted always is.
        setup: lines of shell to run before each job, such as ``module load cuda``.
        sbatch: further options of sbatch, such as ``constraint=a100`` or ``exclusive``.

    Submission and requeuing are those of submitit, https://github.com/facebookincubator/submitit.
    """

    external: ClassVar[Mapping[str, str]] = {
        "setup": "its lines are run by a shell",
        "sbatch": "sbatch can write files and run commands",
    }

    workers: int | None = None
    partition: str | None = None
    time: int | str = 60
    memory: str | None = None
    gpus: int = 0
    cpus: int = 1
    account: str | None = None
    qos: str | None = None
    requeues: int = 20
    setup: tuple[str, ...] = ()
    sbatch: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        workers = _USUAL_WORKERS if self.workers is None else self.workers
        check_at_least(1, workers=workers, cpus=self.cpus)
        check_at_least(0, gpus=self.gpus, requeues=self.requeues)
        for option in ("partition", "memory", "account", "qos"):
            text = getattr(self, option)
            if text is not None and not re.fullmatch(r"\S+", text):
                raise OptionError(f"{option} must be a text without spaces, not {text!r}")
        self._minutes = minutes_of(self.time)
        self._further = _further(self.sbatch)

    def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], *, name: str, logs: Path
    ) -> Iterator[tuple[int, Any]]:
        """Submit arrays of jobs, one job for each item."""
        if shutil.which("sbatch") is None:
            raise FsfError(
                "the command sbatch of Slurm is not found on PATH; start the workers on a machine "
                "from which you submit jobs"
            )
        if "%" in str(logs.absolute()):
            raise FsfError(f"{logs}: Slurm cannot write logs to a path that contains '%'")
        for first in range(0, len(items), _MOST_JOBS):
            part = items[first : first + _MOST_JOBS]
            folder = Path(tempfile.mkdtemp(prefix="slurm-", dir=logs.absolute()))
            try:
                jobs = self._submit(function, part, name, folder)
                for place, result in JobArray(jobs, folder).results():
                    yield first + place, result
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def _submit(
        self, function: Callable[[Any], Any], items: Sequence[Any], name: str, folder: Path
    ) -> list[Any]:
        """Submit an array; the file ``stopped`` of its folder will tell jobs not to go on."""
        log = str(folder.parent / f"slurm-{'%A_%a' if len(items) > 1 else '%j'}.%t.out")
        executor = SlurmExecutor(folder=folder, max_num_timeout=self.requeues)
        executor.update_parameters(**self._parameters(name, log))
        calls = [Call(function, item, folder / STOPPED) for item in items]
        # submitit prints what sbatch says before it raises it.
        with _outside_of_jobs(), contextlib.redirect_stderr(io.StringIO()):
            try:
                return list(executor.submit_array(calls))
            except FailedJobError as error:
                raise _refusal(str(error)) from None

    def _parameters(self, name: str, log: str) -> dict[str, Any]:
        """Return the parameters of submitit; one that is ``None`` is left to Slurm."""
        return {
            "job_name": name,
            "partition": self.partition,
            "time": self._minutes,
            "mem": self.memory,
            "gpus_per_node": self.gpus or None,
            "cpus_per_task": self.cpus,
            "account": self.account,
            "qos": self.qos,
            "wckey": None,
            "array_parallelism": self.workers or _USUAL_WORKERS,
            # In safe-path mode no file of the current folder takes the place of a library.
            "setup": [f"export OMP_NUM_THREADS={self.cpus} PYTHONSAFEPATH=1", *self.setup],
            # Before a time limit: a fifth of it, at most a minute.
            "signal_delay_s": min(60, 12 * self._minutes),
            "stderr_to_stdout": True,
            # srun does not inherit cpus-per-task from sbatch. For a file per task (%t) it leaves
            # writing to the node, and loses no output when the job is terminated.
            "srun_args": [f"--cpus-per-task={self.cpus}", f"--output={log}", "--open-mode=append"],
            "additional_parameters": {
                "output": log.replace("%t", "0"),
                "requeue": True,
                **self._further,
            },
        }


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
    found = re.fullmatch(r"(?:(\d+)-)?(\d+(?::\d+){0,2})", str(time).strip(), re.ASCII)
    minutes = 0
    if found:
        numbers = [int(number) for number in found[2].split(":")]
        units = (3600, 60, 1) if found[1] or len(numbers) == 3 else (60, 1)
        seconds = 86400 * int(found[1] or 0) + sum(map(operator.mul, units, numbers))
        minutes = math.ceil(seconds / 60)
    if not minutes:
        raise OptionError(
            "time must be at least 1 minute: a number of minutes, HH:MM:SS or D-HH:MM:SS, not "
            f"{time!r}"
        )
    return minutes


def _further(entries: tuple[str, ...]) -> Mapping[str, str | bool]:
    """Return options of sbatch from ``NAME=VALUE`` or ``NAME``."""
    further: dict[str, str | bool] = {}
    for entry in entries:
        option, equals, value = entry.removeprefix("--").partition("=")
        if not re.fullmatch(r"[a-z][a-z0-9-]*", option) or "\n" in value:
            raise OptionError(f"sbatch must be NAME=VALUE or NAME, not {entry!r}")
        if option in _OWN:
            raise OptionError(f"sbatch must not set {option}: the launcher sets it")
        further[option] = value if equals else True
    return further


def _refusal(text: str) -> FsfError:
    """Return the error for what sbatch wrote: an option does not fit, or nobody answers."""
    if controller_answers():
        return OptionError(f"Slurm refuses the workers: {words_of(text)}")
    return FsfError(f"Slurm cannot be reached: {words_of(text)}")


@contextlib.contextmanager
def _outside_of_jobs() -> Iterator[None]:
    """Hide the job around this process, if any: its jobs would inherit its memory and processors.

    What a user has set for sbatch (``SBATCH_...``) and the place of the configuration stay.
    """
    around = ("SLURM_", "SLURMD_", "SRUN_", "SUBMITIT_") if "SLURM_JOB_ID" in os.environ else ()
    hidden = {
        name: os.environ.pop(name)
        for name in list(os.environ)
        if name != "SLURM_CONF" and name.startswith(around)
    }
    try:
        yield
    finally:
        os.environ.update(hidden)
