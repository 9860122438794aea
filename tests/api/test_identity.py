"""A run is computed again where its code or an option has changed, and only there."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
import subprocess
import sys
import textwrap
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import fsframework as fsf
from fsframework.components.resolution import differing
from fsframework.engine.stages import Stage
from fsframework.errors import PluginError
from fsframework.interfaces import AttributeDetector, FewShotMethod
from fsframework.values import ImageRecord

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
    "dataset": {"name": "planted", "size": 16, "n_per_class": 4}, "split": "all", "shot": 1,
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


NEAREST = """
import torch
from fsframework.errors import PluginError
from fsframework.interfaces import FewShotMethod

class {name}(FewShotMethod):
    learns_from = "nothing"
    def __init__(self, *, scale: float = 1.0):
        super().__init__()
        self.scale = scale
        self.register_buffer("weight", torch.ones(1))
    def scores(self, support, query):
        apart = torch.cdist(query.flatten(2), support.mean(dim=2).flatten(2))
        return -{sign} * self.scale * self.weight * apart
"""


def nearest(sign: str, name: str = "Nearest", **names: Any) -> type[Any]:
    """A method as a notebook or a script defines one: no module has it."""
    held = {"__name__": "__main__", **names}
    exec(NEAREST.format(name=name, sign=sign), held)
    return held[name]


def of_global(sign: float) -> Any:
    return nearest("SIGN", SIGN=sign)


def of_table(sign: float) -> Any:
    return nearest("TABLE['sign'][0]()", TABLE={"sign": [functools.partial(float, sign)]})


def of_factory(sign: float) -> Any:
    class Made(nearest("1.0")):  # type: ignore[misc]
        def scores(self, support: Any, query: Any) -> Any:
            return sign * super().scores(support, query)

    return Made


def patched(sign: float) -> Any:
    cls = nearest("1.0")
    if sign != 1:
        usual = cls.scores
        cls.scores = lambda self, support, query: sign * usual(self, support, query)
    return cls


def decorated(sign: float) -> Any:
    cls = nearest("1.0")
    usual = cls.scores

    @torch.no_grad()
    @functools.lru_cache(maxsize=1)
    def scores(self: Any, support: Any, query: Any) -> Any:
        return sign * usual(self, support, query)

    cls.scores = scores
    return cls


def weighted(sign: float) -> Any:
    method = nearest("1.0")()
    method.weight.fill_(sign)
    return method


def with_attribute(sign: float) -> Any:
    method = nearest("getattr(self, 'sign', 1.0)")()
    method.sign = sign
    return method


def nested(sign: float) -> Any:
    class Wrapper(FewShotMethod):
        learns_from = "nothing"

        def __init__(self, *, base: FewShotMethod) -> None:
            super().__init__()
            self.base = base

        def scores(self, support: Any, query: Any) -> Any:
            return self.base.scores(support, query)

    return Wrapper(base=weighted(sign))


def of_module(sign: float) -> Any:
    helper = types.ModuleType("helper_of_a_notebook")
    helper.sign = lambda: sign  # type: ignore[attr-defined]
    return nearest("helper.sign()", helper=helper)


WAYS = (
    *(of_global, of_table, of_factory, of_module, patched, decorated),
    *(weighted, with_attribute, nested),
)


@pytest.mark.one_in(9)
@pytest.mark.parametrize("made", WAYS)
def test_what_a_class_in_memory_computes_decides(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    right, wrong, again = (fsf.run(method=made(sign), **SMALL) for sign in (1.0, -1.0, 1.0))
    assert not wrong.reused
    assert again.reused
    assert (right.outcomes["random"].predictions != wrong.outcomes["random"].predictions).any()


OTHER = [  # what a script says before the class, what the class uses, and two values
    ("", "@", "1.0", "-1.0"),
    ("SIGN = @", 'globals()["SIGN"]', "1.0", "-1.0"),
    ("F = {1: lambda: 1.0, -1: lambda: -1.0}[@]", "F()", "1", "-1"),
    ("class T(dict):\n    def __missing__(self, key): return @", "T()[0]", "1.0", "-1.0"),
    ("class F(float):\n    def __mul__(self, other): return @", "F(3)", "1.0", "-1.0"),
    ("class P(property):\n    def __get__(*_): return @\nclass C: p = P()", "C().p", "1.0", "-1.0"),
    ("class M(type):\n    p = @\nclass C(metaclass=M): pass", "C.p", "1.0", "-1.0"),
    ("import dataclasses\nclass C:\n    def f(self): return @\nC = dataclasses.dataclass(C)",
     "C().f()", "1.0", "-1.0"),
    ("import types\nC = types.new_class('C', (), {}, lambda n: n.update(p=@))",
     "C.p", "1.0", "-1.0"),
    ("class C:\n    def __reduce__(self): return 'c'\nc = C(); c.p = @", "c.p", "1.0", "-1.0"),
    ("import random\nR = random.Random(@)", "R.random()", "1", "2"),
    ("held = torch.eye(2).mul(@).to_sparse()", "held.to_dense()[0, 0]", "1.0", "-1.0"),
    ("torch.Tensor.sign_of_a_test = lambda self: @",
     "torch.ones(1).sign_of_a_test()", "1.0", "-1.0"),
]  # fmt: skip
SAME = [
    ("# @", "1.0", "one", "two"),
    ("def plot():\n    return @", "1.0", "1", "2"),
    ("scale = @", "1.0", "1", "2"),  # also the name of an attribute
    ("def f():\n    '''@'''\n    return 1.0", "f()", "one", "two"),
    ("D = set(@)", "len(D)", "['a', 'b']", "['b', 'a']"),
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("before", "used", "one", "two", "reused"),
    [*((*case, False) for case in OTHER), *((*case, True) for case in SAME)],
)
def test_a_script_that_was_edited_computes_again(
    before: str,
    used: str,
    one: str,
    two: str,
    reused: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setenv("FSF_T", "")
    monkeypatch.setattr(torch.Tensor, "sign_of_a_test", None, raising=False)
    found = []
    for value in (one, two, one):
        # As Python does for "python script.py", whose functions have its absolute path.
        path, main = tmp_path / "script.py", types.ModuleType("__main__")
        text = f"import torch\n{before}\n{NEAREST.format(name='Nearest', sign=used)}"
        path.write_text(text.replace("@", value))
        main.__file__ = str(path)
        monkeypatch.setitem(sys.modules, "__main__", main)
        exec(compile(path.read_bytes(), str(path), "exec"), vars(main))
        found.append(fsf.run(method=main.Nearest, **SMALL).reused)
    assert found == [False, reused, True]


def test_a_constant_set_from_outside_counts_where_its_module_is_imported_late(
    package: Path,
) -> None:
    mine = package / "mine.py"
    late = "        from fsf_mine import _numbers as n\n        query = query * n.FACTOR\n"
    mine.write_text(mine.read_text().replace("        return -", f"{late}        return -"))
    assert not run().reused
    sys.modules["fsf_mine._numbers"].FACTOR = 3.0  # type: ignore[attr-defined]
    assert not fsf.run(method=sys.modules["fsf_mine.mine"].Mine, **SMALL).reused


def test_the_state_of_an_instance_is_used_and_the_users_stays_as_it_was() -> None:
    method = weighted(-1.0)
    model = fsf.model(method, image_size=32, device="cpu").network.method
    assert model is not method
    assert model.weight.item() == -1.0


def test_a_data_set_of_which_a_pool_was_made_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = fsf.dataset(SMALL["dataset"])
    fsf.pool(data, split="all", progress=False)
    given = {**SMALL, "backbone": "conv32f", "training": {"epochs": 0}}
    first, second = fsf.run(**given), fsf.run(**{**given, "dataset": data})
    assert second.record.fingerprint == first.record.fingerprint


def test_what_cannot_be_digested_is_never_reused_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cls = nearest("(HELD and 1.0)", HELD=(number for number in range(3)))
    first, second = (fsf.run(method=cls, **SMALL) for _ in range(2))
    assert not second.reused
    assert any("generator" in note for note in first.record.notes)


def test_a_reloaded_module_is_used_and_one_edited_after_its_import_is_refused(
    package: Path,
) -> None:
    assert not run().reused
    (package / "_numbers.py").write_text("FACTOR = 2.0")
    with pytest.raises(PluginError, match=r"_numbers\.py"):
        fsf.run(method=sys.modules["fsf_mine.mine"].Mine, **SMALL)
    importlib.reload(sys.modules["fsf_mine._numbers"])
    assert not fsf.run(method=sys.modules["fsf_mine.mine"].Mine, **SMALL).reused


def test_plugin_files_of_one_name_are_two_and_keep_their_helpers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, name, sign in (("a", "One", "1.0"), ("b", "Two", "-1.0")):
        (tmp_path / folder).mkdir()
        text = f"{NEAREST.format(name=name, sign='SIGN')}\nSIGN = {sign}\n"
        (tmp_path / folder / "plugin.py").write_text(text)
    files = [f"{folder}/plugin.py" for folder in "ab"]
    one, two = (fsf.run(method=name, plugins=files, **SMALL) for name in ("one", "two"))
    assert (one.outcomes["random"].predictions != two.outcomes["random"].predictions).any()
    text = (tmp_path / files[0]).read_text()
    (tmp_path / files[0]).write_text(text.replace("SIGN = 1.0", "SIGN = 3.0"))
    assert not fsf.run(method="one", plugins=files, **SMALL).reused
    assert fsf.run(method="two", plugins=files, **SMALL).reused
    (tmp_path / "moved").mkdir()
    (tmp_path / files[1]).rename(tmp_path / "moved" / "other.py")
    moved = fsf.run(method="two", plugins=["moved/other.py"], **SMALL)
    assert moved.reused, "its place is no code"
    [method] = [plugin for plugin in one.record.plugins if plugin.kind == "method"]
    [kept] = (one.folder / "code").iterdir()
    assert kept.read_text() == text
    assert list(method.files) == [kept.name]


SCRIPT = """
import sys
from helper import SIGN
{method}
import fsframework as fsf
run = fsf.run(method=Nearest, **{small!r})
print(run.reused, run.estimates["acc-random"].value)
"""


@pytest.mark.slow
def test_a_script_with_outdated_bytecode_gives_no_earlier_number(tmp_path: Path) -> None:
    text = SCRIPT.format(method=NEAREST.format(name="Nearest", sign="SIGN"), small=SMALL)
    (tmp_path / "script.py").write_text(text)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    printed = []
    for sign in ("1.0", "2.0"):
        helper = tmp_path / "helper.py"
        helper.write_text(f"SIGN = {sign}\n")
        os.utime(helper, (1_700_000_000, 1_700_000_000))
        printed.append(
            subprocess.run(
                [sys.executable, "script.py"],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
        )
    assert printed[0].stdout.startswith("False"), printed[0].stderr
    assert printed[1].returncode
    assert "helper.py" in printed[1].stderr
    assert ".pyc" in printed[1].stderr


def test_modules_imported_by_computed_names_count_with_the_whole_package(package: Path) -> None:
    helper = package / "_helper.py"
    dynamic = 'from importlib import import_module\nimport_module("fsf_mine._unrelated")\n'
    helper.write_text(dynamic + helper.read_text())
    assert not run().reused
    (package / "_unrelated.py").write_text("VALUE = 2")
    assert not run().reused


class Plain(AttributeDetector):
    """Words of the data set's own."""

    consumes = "records"

    def __init__(self, more: str = "") -> None:
        self.more = more

    def detect(self, images: Sequence[ImageRecord]) -> list[frozenset[str]]:
        more = {self.more} - {""}
        return [frozenset(one.metadata["words"].split(";")) | more for one in images]


class Other(Plain):
    """The same words by another name."""


@pytest.mark.slow
def test_runs_of_equal_tasks_name_the_detector_and_the_words_that_they_were_given() -> None:
    common: dict[str, Any] = {
        "dataset": {"name": "planted", "n_per_class": 10, "size": 16},
        "sampler": "fewstab", "way": 3, "shot": 1, "queries": 2, "tasks": 4, "progress": False,
        "method": "ncc", "training": {"epochs": 0},
    }  # fmt: skip
    made = {}
    for detector in (Plain(), Other(), Plain("everywhere"), Plain()):
        run = fsf.run(detector=detector, **common)
        made[run.name] = run
        component = run.record.components["detector"]
        assert component.name == ("other" if type(detector) is Other else "plain")
        assert component.options["more"] == detector.more
    assert len({run.tasks["biased"].digest for run in made.values()}) == 1
    assert (len(made), run.reused) == (3, True)


def test_a_new_option_with_its_default_changes_no_identity() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Newer(Stage):
        warmup_epochs: int = 0

    old = differing(Stage, vars(Stage(epochs=3)))
    assert old == {"epochs": 3}
    assert differing(Newer, vars(Newer(epochs=3))) == old
    assert differing(Newer, vars(Newer(epochs=3, warmup_epochs=2))) != old
