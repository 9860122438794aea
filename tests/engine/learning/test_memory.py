"""Memory that is freed is taken again, not asked of the system anew."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import numpy as np
from fsframework.engine.learning.memory import keep_freed_memory
if "keep" in sys.argv:
    assert keep_freed_memory()
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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone can be told")
def test_pages_are_used_again() -> None:
    plain = faults()
    assert faults("keep") < max(plain / 10, 100)
