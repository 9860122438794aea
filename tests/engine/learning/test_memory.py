"""A process with a model takes freed memory again, and does not ask the system for new."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import numpy as np
import fsframework as fsf
if "model" in sys.argv:
    fsf.model("ncc", backbone="conv64f", image_size=16)
np.ones(10_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    np.ones(10_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*arguments: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone can be told")
def test_pages_are_used_again() -> None:
    plain = faults()
    assert faults("model") < max(plain / 10, 100)
