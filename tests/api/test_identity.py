"""A run is computed again where its code or an option has changed, and only there."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import fsframework as fsf
from fsframework.components.resolution import differing
from fsframework.engine.stages import Stage

PACKAGE = {
    "__init__.py": """
        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            from fsf_mine._lazy import power

        def __getattr__(name):
            from importlib import import_module
            return getattr(import_module("fsf_mine._lazy"), name)
    """,
    "_base.py": """
        from fsframework.interfaces import FewShotMethod

        class Base(FewShotMethod):
            learns_from = "nothing"
    """,
    "_helper.py": '''
        import torch
        from . import _numbers

        def distances(query, means):
            """Return distances."""
            return torch.cdist(query, means) * _numbers.FACTOR
    ''',
    "_numbers.py": "FACTOR = 1.0",
    "_lazy.py": "def power():\n    return 2.0",
    "_typed.py": "Number = float",
    "_unrelated.py": "VALUE = 1",
    "mine.py": """
        from typing import TYPE_CHECKING
        from fsf_mine._base import Base
        from fsf_mine import _helper

        if TYPE_CHECKING:
            from fsf_mine._typed import Number

        class Mine(Base):
            def scores(self, support, query):
                from fsf_mine import power
                return -_helper.distances(query, support.mean(dim=2)) ** power()
    """,
}
SMALL: dict[str, Any] = {
    "dataset": {"name": "planted", "size": 32, "n_per_class": 20}, "split": "all", "shot": 1,
    "queries": 2, "tasks": 3, "sampler": "random", "progress": False,
}  # fmt: skip


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "fsf_mine"
    folder.mkdir()
    for name, text in PACKAGE.items():
        (folder / name).write_text(textwrap.dedent(text))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return folder


def run() -> fsf.Run:
    for name in [name for name in sys.modules if name.partition(".")[0] == "fsf_mine"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    return fsf.run(method=importlib.import_module("fsf_mine.mine").Mine, **SMALL)


CHANGES = [
    ("mine.py", "dim=2", "dim=(2,)", False),
    ("_base.py", 'learns_from = "nothing"', 'learns_from = "nothing"\n    other = 1', False),
    ("_helper.py", "FACTOR", "FACTOR * 2", False),
    ("_numbers.py", "1.0", "2.0", False),
    ("_lazy.py", "2.0", "1.0", False),
    ("_helper.py", "Return distances.", "Return Euclidean distances.", True),
    ("_numbers.py", "FACTOR", "# a comment\nFACTOR", True),
    ("_typed.py", "float", "int", True),
    ("_unrelated.py", "1", "2", True),
]


def test_a_run_is_reused_unless_code_that_it_imports_has_changed(package: Path) -> None:
    assert not run().reused
    for name, old, new, reused in CHANGES:
        text = (package / name).read_text()
        assert old in text
        (package / name).write_text(text.replace(old, new))
        assert run().reused is reused, (name, new)
        (package / name).write_text(text)
        assert run().reused, "the code is what it was"


def test_modules_imported_by_computed_names_count_with_the_whole_package(package: Path) -> None:
    helper = package / "_helper.py"
    dynamic = 'from importlib import import_module\nimport_module("fsf_mine._unrelated")\n'
    helper.write_text(dynamic + helper.read_text())
    assert not run().reused
    (package / "_unrelated.py").write_text("VALUE = 2")
    assert not run().reused


def test_a_new_option_with_its_default_changes_no_identity() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Newer(Stage):
        warmup_epochs: int = 0

    old = differing(Stage, vars(Stage(epochs=3)))
    assert old == {"epochs": 3}
    assert differing(Newer, vars(Newer(epochs=3))) == old
    assert differing(Newer, vars(Newer(epochs=3, warmup_epochs=2))) != old
