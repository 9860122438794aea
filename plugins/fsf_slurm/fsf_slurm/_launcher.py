"""The launcher."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fsf_slurm._queue import controller_answers, words_of
from fsf_slurm._time import minutes_of
from fsframework.errors import FsfError
from fsframework.interfaces import Launcher, OptionError, Work, Workers

__all__ = ["SlurmLauncher"]

_COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol")
_USUAL_WORKERS = 16
_OWN_OPTIONS = {
    "account": "account",
    "cpus-per-task": "cpus",
    "gpus-per-node": "gpus",
    "mem": "memory",
    "partition": "partition",
    "qos": "qos",
    "time": "time",
}
"""The options of sbatch that an option of the launcher sets."""

_KEPT = frozenset(
    {"array", "error", "job-name", "nodes", "ntasks", "open-mode", "output", "requeue", "signal"}
)
"""The options of sbatch that the launcher needs as it sets them."""


class SlurmLauncher(Launcher):
    """Runs workers as an array of jobs on a Slurm cluster.

    Each worker is a job of one process. It takes items until none is left. Shortly before its time
    limit, and when it is preempted, it stops and its job is requeued; it then goes on with what is
    left, a training from its last checkpoint. This needs a disk that all nodes see, with the folder
    of the runs, the cache and the Python environment under the same paths.

    Args:
        workers: number of jobs; by default one for each item, at most 16.
        partition: where they run; by default the partition that the cluster has for that.
        time: time limit of each: minutes, or a text such as ``1-12:00:00``.
        memory: of each, such as ``8G`` (``K``, ``M``, ``G`` or ``T``; without one megabytes); by
            default what the partition gives.
        gpus: number of GPUs of each.
        cpus: number of processors of each, and of its threads (``OMP_NUM_THREADS``).
        account: that pays for them.
        qos: quality of service.
        requeues: how often a worker that reaches its time limit is started again; a worker that is
            preempted always is.
        setup: lines of shell to run before each worker, such as ``module load cuda``.
        sbatch: further options of sbatch, such as ``constraint=a100`` or ``exclusive``.

    Submission and requeuing are those of submitit, https://github.com/facebookincubator/submitit.
    """

    def __init__(  # noqa: PLR0913
        self,
        *,
        workers: int | None = None,
        partition: str | None = None,
        time: int | str = 60,
        memory: str | None = None,
        gpus: int = 0,
        cpus: int = 1,
        account: str | None = None,
        qos: str | None = None,
        requeues: int = 20,
        setup: tuple[str, ...] = (),
        sbatch: tuple[str, ...] = (),
    ) -> None:
        at_least = {"workers": (workers, 1), "gpus": (gpus, 0), "cpus": (cpus, 1)}
        at_least["requeues"] = (requeues, 0)
        for option, (value, least) in at_least.items():
            if value is not None and value < least:
                raise OptionError(f"{option} must be at least {least}, not {value}")
        for option, text in {"partition": partition, "account": account, "qos": qos}.items():
            if text is not None and not re.fullmatch(r"\S+", text):
                raise OptionError(f"{option} must be a name without spaces, not {text!r}")
        if memory is not None and not re.fullmatch(r"[1-9][0-9]*[KMGT]?", memory):
            raise OptionError(f"memory must be a number with K, M, G or T, not {memory!r}")
        self.workers, self.partition, self.time, self.memory = workers, partition, time, memory
        self.gpus, self.cpus, self.account, self.qos = gpus, cpus, account, qos
        self.requeues, self.setup, self.sbatch = requeues, tuple(setup), tuple(sbatch)
        self._minutes = minutes_of(time)
        self._further = _further(self.sbatch)

    def start(self, work: Work) -> Workers:
        """Submit the array."""
        _demand_slurm()
        logs = work.logs.absolute()
        if "%" in str(logs):
            raise FsfError(f"{logs}: Slurm cannot write logs to a path that contains '%'")
        folder = Path(tempfile.mkdtemp(prefix="slurm-", dir=logs))
        try:
            return self._submit(work, logs, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _submit(self, work: Work, logs: Path, folder: Path) -> Workers:
        from submitit import SlurmExecutor
        from submitit.core.utils import FailedJobError

        from fsf_slurm._job import WorkerJob
        from fsf_slurm._workers import SlurmWorker, SlurmWorkers

        n_workers = min(work.n_items, self.workers or _USUAL_WORKERS)
        log = str(logs / f"slurm-{'%A_%a' if n_workers > 1 else '%j'}.%t.out")
        environment = {"OMP_NUM_THREADS": str(self.cpus), **work.environment}
        outcomes = [folder / f"outcome-{index}.json" for index in range(n_workers)]
        executor = SlurmExecutor(folder=folder, max_num_timeout=self.requeues)
        executor.update_parameters(**self._parameters(work.name, log))
        # submitit prints what sbatch says before it raises it.
        with _outside_of_jobs(), contextlib.redirect_stderr(io.StringIO()):
            try:
                jobs = executor.submit_array(
                    [
                        WorkerJob(
                            work.command,
                            environment,
                            outcome,
                            minutes=self._minutes,
                            requeues=self.requeues,
                        )
                        for outcome in outcomes
                    ]
                )
            except FailedJobError as error:
                raise _refusal(str(error)) from None
        array = jobs[0].job_id.split("_")[0]
        return SlurmWorkers(
            array,
            [
                SlurmWorker(job.job_id, logs / f"slurm-{job.job_id}.0.out", outcome)
                for job, outcome in zip(jobs, outcomes, strict=True)
            ],
            folder,
        )

    def _parameters(self, name: str, log: str) -> dict[str, Any]:
        """Return the parameters of submitit; one that is ``None`` is left to Slurm."""
        from fsf_slurm._job import warning_seconds

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
            "setup": list(self.setup),
            "signal_delay_s": warning_seconds(self._minutes),
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


def _further(entries: tuple[str, ...]) -> Mapping[str, str | bool]:
    """Return options of sbatch from ``NAME=VALUE`` or ``NAME``."""
    further: dict[str, str | bool] = {}
    for entry in entries:
        option, equals, value = entry.removeprefix("--").partition("=")
        if not re.fullmatch(r"[a-z][a-z0-9-]*", option) or "\n" in value:
            raise OptionError(f"sbatch must be NAME=VALUE or NAME, not {entry!r}")
        if option in _OWN_OPTIONS:
            raise OptionError(
                f"sbatch must not set {option}: that is the option {_OWN_OPTIONS[option]}"
            )
        if option in _KEPT:
            raise OptionError(f"sbatch must not set {option}: the workers need it as it is")
        further[option] = value if equals else True
    return further


def _demand_slurm() -> None:
    for command in _COMMANDS:
        if shutil.which(command) is None:
            raise FsfError(
                f"the command {command} of Slurm is not found on PATH; start the workers on a "
                "machine from which you submit jobs"
            )


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
