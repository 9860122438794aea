"""What holds for every test of the repository."""

import gc
import os
import tempfile

# Tests run in as many processes as there are cores, so threads within one would only wait for
# those of another; this must be said before torch is imported, and reaches child processes.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What the user has added is no part of a test.
_no_data = tempfile.TemporaryDirectory(prefix="fsframework-tests-")
os.environ["FSF_DATA"] = _no_data.name


def pytest_collection_finish() -> None:
    """Leave what imports and ten thousand tests consist of out of every garbage collection."""
    gc.collect()
    gc.freeze()
