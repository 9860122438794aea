"""Whatever a plugin raises or returns becomes one sentence that names it; exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Fsf

SMALL = (
    "--tasks", "5", "--shot", "1", "--queries", "5",
    "-o", "dataset.size=32", "-o", "dataset.n_per_class=30",
)  # fmt: skip
RUN = ("run", "--method", "ncc", "--sampler", "random", *SMALL)

FAULTS = {
    "raise SystemExit(0)": "raised SystemExit: 0",
    "raise KeyboardInterrupt": "raised KeyboardInterrupt",
    "raise EOFError": "raised EOFError",
    "raise StopIteration": "raised StopIteration",
    "raise BrokenPipeError('pipe')": "raised BrokenPipeError: pipe",
    "raise Mute": "raised Mute (its message cannot be shown)",
    "return deep(0)": "raised RecursionError: maximum recursion depth exceeded",
    "return {}[1]": "raised KeyError: 1",
}

MINE = """
from fsframework.interfaces import *


class Mute(Exception):
    def __str__(self):
        raise RuntimeError


def deep(n):
    return deep(n + 1) + 1


"""


def method(scores: str, extra: str = "") -> str:
    return (
        f"{MINE}\nimport torch\n\n\nclass Mine(FewShotMethod):\n"
        f"    '''Broken.'''\n{extra}\n"
        f"    def scores(self, support, query):\n        {scores}\n"
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_method_is_one_sentence(fsf: Fsf, tmp_path: Path, fault: str) -> None:
    (tmp_path / "mine.py").write_text(method(fault))
    done = fsf("run", "--plugin", "mine.py", "--method", "mine", "-o", "training.epochs=0", *SMALL)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2, done.stderr
    assert last.startswith(f"fsf: method 'mine': scores of tasks 0 to 4 {FAULTS[fault]}"), last
    assert last.endswith("; check it with fsf plugins check mine --plugin mine.py")
    assert "(mine.py, line " in last
    assert "Traceback" not in done.stderr


def test_verbose_shows_where(fsf: Fsf, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(method("raise SystemExit(0)"))
    command = ("run", "--plugin", "mine.py", "--method", "mine", "-o", "training.epochs=0", *SMALL)
    done = fsf(*command, "--verbose")
    assert done.returncode == 2
    assert 'mine.py", line ' in done.stderr
    assert done.stderr.splitlines()[-1].startswith("fsf: method 'mine': scores of tasks 0 to 4")
