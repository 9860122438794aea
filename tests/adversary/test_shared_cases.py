"""Small inputs of public bug reports beside the checkout; each says itself what is right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize("case", sorted(path.parent.name for path in CASES.glob("*/run.sh")))
def test_the_behaviour_is_right(case: str, tmp_path: Path) -> None:
    python = Path(sys.executable)
    env = {**os.environ, "PY": str(python), "FSF": str(python.with_name("fsf"))}
    done = subprocess.run(
        ["bash", CASES / case / "run.sh"],
        env={**env, "SCRATCH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
