import os
import subprocess
import sys
from pathlib import Path

import pytest


class Cluster:
    """A cluster in a process of its own."""

    def __init__(self, process):
        self.process = process
        self.address = process.stdout.readline().strip()

    def kill_node(self):
        self.process.stdin.write("kill\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "killed\n"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """Three nodes on this machine; importing Ray fails where it is not installed."""
    log = tmp_path_factory.mktemp("ray") / "cluster.txt"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("cluster.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        ) as process,
    ):
        started = Cluster(process)
        assert started.address, log.read_text()
        yield started
