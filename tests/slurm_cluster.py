"""A Slurm cluster of one machine, for tests: Debian's packages slurm-wlm and munge, as root."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

__all__ = ["SlurmCluster", "slurm"]

_DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch")
_CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=1
OverTimeLimit=0
MinJobAge=300
ReturnToService=2
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=4000
PartitionName=low Nodes={host} Default=YES PriorityTier=1 DefMemPerCPU=100
PartitionName=patient Nodes={host} PriorityTier=1 DefMemPerCPU=100 GraceTime=60
PartitionName=high Nodes={host} PriorityTier=10 DefMemPerCPU=100
"""
"""``patient`` gives its jobs a minute before it preempts them, ``low`` none. Slurm looks at time
limits every 30 seconds; it schedules every second."""


class SlurmCluster:
    """The commands of Slurm that tests need.

    Args:
        folder: of its configuration, logs and state.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, *arguments: str) -> str:
        """Run a command of Slurm; return its output."""
        return subprocess.run(
            arguments, check=True, capture_output=True, text=True, timeout=60
        ).stdout

    def job_states(self) -> dict[str, str]:
        """Return the state of each job of the cluster, by id."""
        rows = self.command("squeue", "-h", "--array", "--states=all", "-o", "%i %T").splitlines()
        return dict(row.split() for row in rows)

    def start_soon(self, job: str) -> None:
        """Have a requeued job start again; Slurm lets it wait for two minutes.

        The node refuses a job that starts in the second in which it was killed.
        """
        self.command("scontrol", "update", f"JobId={job}", "StartTime=now+2")

    def clear(self) -> None:
        """Cancel every job, and wait until none is left."""
        self.command("scancel", "--quiet", "--user=root")
        _wait_until(lambda: not self.command("squeue", "-h").strip(), "jobs do not end")


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """Return a running cluster, to which ``SLURM_CONF`` points."""
    missing = [daemon for daemon in _DAEMONS if _found(daemon) is None]
    if missing:
        pytest.skip(f"Slurm is not installed: {', '.join(missing)} missing")
    if os.geteuid() != 0:
        pytest.skip("the daemons of Slurm must run as root")
    with _cluster() as cluster:
        yield cluster


@contextmanager
def _cluster() -> Iterator[SlurmCluster]:
    with ExitStack() as stack:
        # munge demands that everyone can reach its socket, whose path must be short.
        folder = Path(tempfile.mkdtemp(prefix="fsf-slurm-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(64))
        key.chmod(0o400)
        host = socket.gethostname().split(".")[0]
        configuration = folder / "slurm.conf"
        configuration.write_text(
            _CONFIGURATION.format(host=host, ports=_free_ports(2), folder=folder)
        )
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        environment.setenv("SLURM_CONF", str(configuration))

        munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        munge += [f"--socket={folder}/munge.socket", "--num-threads=2"]
        _daemon(stack, folder, "munged", "--foreground", "--force", *munge)
        _wait_until((folder / "munge.socket").exists, "munged does not start")
        _daemon(stack, folder, "slurmctld", "-D", "-c")
        _daemon(stack, folder, "slurmd", "-D", "-c")
        cluster = SlurmCluster(folder)
        _wait_until(_idle, "the node does not become idle")
        stack.callback(cluster.clear)
        yield cluster


def _found(daemon: str) -> str | None:
    return shutil.which(daemon) or shutil.which(daemon, path="/usr/sbin:/usr/local/sbin")


def _daemon(stack: ExitStack, folder: Path, name: str, *arguments: str) -> None:
    """Run a daemon until the stack unwinds, or until this process dies in any way."""
    output = stack.enter_context((folder / f"{name}.out").open("w"))
    program = _found(name)
    assert program is not None
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", program, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    stack.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_ports(n: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(closing(socket.socket())) for _ in range(n)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _idle() -> bool:
    asked = subprocess.run(
        ["sinfo", "-h", "-o", "%T"], capture_output=True, text=True, check=False, timeout=60
    )
    return set(asked.stdout.split()) == {"idle"}


def _wait_until(holds: Callable[[], bool], failure: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, failure
        time.sleep(0.1)
