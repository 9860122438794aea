"""The checks of launchers, on a real cluster of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsf_slurm import SlurmLauncher
from fsframework.testing import parametrize_with_checks

pytestmark = [pytest.mark.cluster, pytest.mark.slow]  # half a minute; test_cluster.py has the rest


@pytest.fixture(autouse=True)
def _here(slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fsf_slurm._jobs._PAUSE", 0.1)


@parametrize_with_checks([SlurmLauncher])
def test_conforms(check, make) -> None:
    check(make)
