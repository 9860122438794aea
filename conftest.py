"""What holds for every test of the repository."""

import gc
import itertools
import os
import tempfile

import pytest

# Tests run in as many processes as there are cores, so threads within one would only wait for
# those of another; this must be said before torch is imported, and reaches child processes.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A power cut is no part of a test, and killed processes lose nothing that they wrote.
os.fsync = lambda _: None

# What the user has added is no part of a test.
_no_data = tempfile.TemporaryDirectory(prefix="fsframework-tests-")
os.environ["FSF_DATA"] = _no_data.name


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked ``one_in(k)`` mark all cases but each k-th as slow."""
    usual = (item for item in items if not item.get_closest_marker("slow"))
    for _, cases in itertools.groupby(usual, lambda item: item.nodeid.partition("[")[0]):
        for number, case in enumerate(cases):
            mark = case.get_closest_marker("one_in")
            if mark and number % mark.args[0]:
                case.add_marker("slow")


def pytest_collection_finish() -> None:
    """Leave what imports and ten thousand tests consist of out of every garbage collection."""
    gc.collect()
    gc.freeze()
