"""A bug in a plugin is told with the plugin, its method and its file."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import Fsf

BROKEN = '''
from fsframework.interfaces import FewShotMethod


class Mine(FewShotMethod):
    """Divides by nothing."""

    def scores(self, support, query):
        return self.helper(support)

    def helper(self, support):
        return support / (1 // 0)
'''


def test_a_bug_in_a_method_of_a_file_is_named(fsf: Fsf, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    done = fsf(
        "run", "--plugin", "mine.py", "--method", "mine", "--tasks", "5", "--shot", "1",
        "-o", "training.epochs=0", "-o", "dataset.size=32", "-o", "dataset.n_per_class=30",
        "--queries", "5",
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "fsf: a bug in the method 'mine', in its helper (mine.py, line 12): ZeroDivisionError: "
        "integer division or modulo by zero; check it with fsf plugins check mine "
        "(--verbose shows where)"
    )
    assert "Traceback" not in done.stderr
