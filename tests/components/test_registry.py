"""The registry: listing imports nothing, and each thing that can be wrong has its sentence."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fsframework.components.kinds import KINDS
from fsframework.components.registry import Registry, kebab
from fsframework.errors import PluginError
from tests.conftest import Fsf

Install = Callable[..., None]

STATISTIC = """
from fsframework.interfaces import Statistic
class Good(Statistic):
    "A statistic."
    def per_task(self, outcomes):
        return outcomes.class_accuracy.mean(axis=1)
"""


def test_every_kind_has_its_group_and_interface() -> None:
    import fsframework.interfaces as interfaces

    for name, kind in KINDS.items():
        assert kind.group == f"fsframework.{name}s"
        assert kind.load().__name__ == kind.interface
        assert name == "command" or kind.interface in interfaces.__all__


KIND = """
from abc import ABC, abstractmethod
from fsframework.interfaces import Configurable
class Sound(Configurable, ABC, kind="sound"):
    "Something that makes a sound."
    volume: int = 1
    @abstractmethod
    def make(self):
        "Return the sound."
"""
PLUGINS = """
from toy_sounds.interfaces import Sound
class Bell(Sound):
    "Rings."
    def make(self):
        return "ding"
class Silence(Sound):
    "Is not a sound."
    def make(self):
        return ""
"""
CHECKS = """
from fsframework.testing import Suite, require
from toy_sounds.interfaces import Sound
suite = Suite(Sound)
@suite.check()
def check_heard(make):
    "It can be heard."
    require(make().make(), "nothing is heard")
"""


def test_a_package_declares_kinds_of_its_own(
    distribution: Install, tmp_path: Path, fsf: Fsf, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its --kind takes the kinds that were installed when it was imported.
    monkeypatch.delitem(sys.modules, "fsframework.cli.plugins", raising=False)
    bells = "toy_sounds.bells"
    sounds = {"bell": f"{bells}:Bell", "silence": f"{bells}:Silence", "stray": "good_mod:Good"}
    declared = {"sound": "toy_sounds.interfaces:Sound"}
    distribution("toy-sounds", {"fsframework.kinds": declared, "toy_sounds.sounds": sounds})
    distribution("fsf-good", {}, "good_mod", STATISTIC)
    package = tmp_path / "site" / "toy_sounds"
    (package / "testing").mkdir(parents=True)
    for name, source in {"interfaces": KIND, "bells": PLUGINS, "testing/sound": CHECKS}.items():
        (package / f"{name}.py").write_text(source)
    (package / "__init__.py").touch()
    registry = Registry()
    assert registry.names("sound") == ["bell", "silence", "stray"]
    assert "toy_sounds" not in sys.modules
    assert registry.load("sound", "bell").cls().make() == "ding"
    with pytest.raises(PluginError, match=r"not a subclass of Sound .*toy_sounds\.interfaces"):
        registry.load("sound", "stray")
    checked = fsf("plugins", "check", "silence", "--json")
    failed = [r["name"] for r in json.loads(checked.stdout) if r["outcome"] == "failed"]
    assert failed == ["check_heard"]
    assert fsf("plugins", "check", "bell", "--kind", "sound").returncode == 0
    assert json.loads(fsf("plugins", "show", "bell", "--json").stdout)["facts"] == {"volume": 1}


def test_a_plugin_is_listed_with_distribution_and_version_and_loaded(distribution: Install) -> None:
    distribution(
        "fsf-good", {"fsframework.statistics": {"good": "good_mod:Good"}}, "good_mod", STATISTIC
    )
    registry = Registry()
    plugin = registry.find("statistic", "good")
    assert (plugin.distribution, plugin.version, plugin.target) == (
        "fsf-good",
        "1.0",
        "good_mod:Good",
    )
    assert "good_mod" not in sys.modules, "trap 1: listing must import no plugin"
    assert registry.load("statistic", "good").cls.__name__ == "Good"


def test_trap_1_loading_one_plugin_imports_no_other(distribution: Install) -> None:
    bomb = "raise RuntimeError('imported')"
    distribution(
        "fsf-good", {"fsframework.statistics": {"good": "good_mod:Good"}}, "good_mod", STATISTIC
    )
    distribution("fsf-bomb", {"fsframework.statistics": {"bomb": "bomb_mod:X"}}, "bomb_mod", bomb)
    Registry().load("statistic", "good")
    assert "bomb_mod" not in sys.modules


def test_trap_2_the_disk_cache_does_not_cost_distribution_and_version(
    distribution: Install,
) -> None:
    distribution(
        "fsf-good", {"fsframework.statistics": {"good": "good_mod:Good"}}, "good_mod", STATISTIC
    )
    for _ in range(2):  # the second time stevedore reads from its disk cache
        loaded = Registry().load("statistic", "good")
        assert (loaded.plugin.distribution, loaded.plugin.version) == ("fsf-good", "1.0")


def test_trap_3_a_clash_of_names_that_are_not_adjacent_names_both(distribution: Install) -> None:
    distribution(
        "fsf-one", {"fsframework.statistics": {"same": "good_mod:Good"}}, "good_mod", STATISTIC
    )
    distribution(
        "fsf-two",
        {"fsframework.statistics": {"between": "two_mod:Good", "same": "two_mod:Good"}},
        "two_mod",
        STATISTIC,
    )
    registry = Registry()
    clashing = [p for p in registry.plugins("statistic") if p.name == "same"]
    assert [p.status for p in clashing] == [
        "clash: also from fsf-two (same)",
        "clash: also from fsf-one (same)",
    ]
    with pytest.raises(PluginError, match=r"claimed by fsf-one 1\.0 .* and fsf-two 1\.0"):
        registry.load("statistic", "same")
    assert registry.load("statistic", "between").cls.__name__ == "Good"


def test_the_same_name_and_target_twice_is_one_plugin(distribution: Install) -> None:
    entries = {"fsframework.statistics": {"good": "good_mod:Good"}}
    distribution("fsf-good", entries, "good_mod", STATISTIC)
    distribution("fsf-good", entries, version="1.1")
    assert [p.name for p in Registry().plugins("statistic")].count("good") == 1
    assert Registry().load("statistic", "good").cls.__name__ == "Good"


@pytest.mark.parametrize(
    "source",
    ["assert False, 'no luck'", "raise SystemExit('no luck')", "raise ValueError('no luck')"],
)
def test_trap_4_whatever_an_import_raises_is_contained(distribution: Install, source: str) -> None:
    distribution("fsf-bad", {"fsframework.statistics": {"bad": "bad_mod:X"}}, "bad_mod", source)
    with pytest.raises(PluginError) as caught:
        Registry().load("statistic", "bad")
    message = str(caught.value)
    for part in ("statistic 'bad'", "bad_mod:X", "fsf-bad 1.0", "no luck", "hint: "):
        assert part in message


def test_trap_5_a_component_that_is_falsy_is_still_an_instance(distribution: Install) -> None:
    from fsframework.components.resolution import resolve_component

    source = STATISTIC + "    def __len__(self):\n        return 0\n"
    distribution(
        "fsf-good", {"fsframework.statistics": {"good": "good_mod:Good"}}, "good_mod", source
    )
    instance = resolve_component(Registry(), "statistic", "good").create()
    assert not instance
    assert type(instance).__name__ == "Good"


def test_a_plugin_installed_while_the_process_runs_is_found(distribution: Install) -> None:
    distribution(
        "fsf-one", {"fsframework.statistics": {"one": "one_mod:Good"}}, "one_mod", STATISTIC
    )
    Registry().load("statistic", "one")
    distribution(
        "fsf-two", {"fsframework.statistics": {"two": "two_mod:Good"}}, "two_mod", STATISTIC
    )
    importlib.invalidate_caches()
    assert Registry().load("statistic", "two").plugin.distribution == "fsf-two"


def test_an_unknown_name_gets_near_ones_and_the_list(distribution: Install) -> None:
    distribution(
        "fsf-good", {"fsframework.statistics": {"good": "good_mod:Good"}}, "good_mod", STATISTIC
    )
    with pytest.raises(PluginError, match=r"unknown statistic 'goood' \(did you mean 'good'\?\)"):
        Registry().load("statistic", "goood")
    with pytest.raises(PluginError, match="known: .*good"):
        Registry().load("statistic", "zzz")


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("X = 3", "bad_mod:X", "is a int, not a subclass of Statistic"),
        ("class X: pass", "bad_mod:X", "is class X, not a subclass of Statistic"),
        (
            "from fsframework.interfaces import Statistic\nclass X(Statistic): pass",
            "bad_mod:X",
            "is abstract: it lacks per_task",
        ),
        ("", "bad_mod:Missing", "cannot be imported: AttributeError"),
        ("import not_there_at_all", "bad_mod:X", "pip install not_there_at_all"),
    ],
)
def test_what_is_no_plugin_is_refused_with_cause_and_hint(
    distribution: Install, source: str, target: str, expected: str
) -> None:
    distribution("fsf-bad", {"fsframework.statistics": {"bad": target}}, "bad_mod", source)
    with pytest.raises(PluginError, match=re.escape(expected)):
        Registry().load("statistic", "bad")


@pytest.mark.parametrize(
    ("name", "target", "status"),
    [
        ("Bad", "json:dumps", "broken: the name is not lower-case kebab"),
        ("bad", "json", "broken: the target 'json' is not module:attribute"),
        ("bad", "no_such_module:X", "broken: no module named 'no_such_module'"),
    ],
)
def test_defects_seen_without_importing_are_rows(
    distribution: Install, name: str, target: str, status: str
) -> None:
    distribution("fsf-bad", {"fsframework.statistics": {name: target}})
    row = next(p for p in Registry().plugins("statistic") if p.distribution == "fsf-bad")
    assert row.status == status
    with pytest.raises(PluginError, match=re.escape(status)):
        Registry().load("statistic", name)


@pytest.mark.parametrize("content", [None, "", "garbage", "Name: fsf-bad\n"])
def test_a_distribution_without_sound_metadata_is_a_row_and_hides_no_other(
    distribution: Install, tmp_path: Path, content: str | None
) -> None:
    group = "fsframework.statistics"
    distribution("fsf-good", {group: {"good": "good_mod:Good"}}, "good_mod", STATISTIC)
    distribution("fsf-bad", {group: {"bad": "good_mod:Good"}})
    metadata = tmp_path / "site" / "fsf_bad-1.0.dist-info" / "METADATA"
    metadata.unlink()
    if content is not None:
        metadata.write_text(content)
    registry = Registry()
    rows = {p.name: p for p in registry.plugins("statistic")}
    assert rows["bad"].status == "broken: its METADATA has no name and version"
    assert rows["bad"].distribution.replace("_", "-") == "fsf-bad"
    assert registry.load("statistic", "good").cls.__name__ == "Good"
    with pytest.raises(PluginError, match="METADATA has no name and version"):
        registry.load("statistic", "bad")


def test_what_a_plugin_prints_at_import_is_not_in_the_output(
    distribution: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    source = f"print('hello')\n{STATISTIC}"
    distribution("fsf-loud", {"fsframework.statistics": {"loud": "loud:Good"}}, "loud", source)
    Registry().load("statistic", "loud")
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "hello\n")


def test_a_class_in_a_file_is_a_plugin(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(STATISTIC.replace("Good", "MyOwn"))
    registry = Registry()
    registry.load_file(path)
    loaded = registry.load("statistic", "my-own")
    assert loaded.plugin.target == str(path)
    assert loaded.cls.__name__ == "MyOwn"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (None, "no such file"),
        ("import this_is_missing", "cannot be imported: ModuleNotFoundError"),
        ("raise SystemExit", "cannot be imported: SystemExit"),
        ("x = 1", "defines no concrete subclass of AttributeDetector, Backbone"),
    ],
)
def test_a_file_that_is_no_plugin_is_refused(
    tmp_path: Path, source: str | None, expected: str
) -> None:
    path = tmp_path / "mine.py"
    if source is not None:
        path.write_text(source)
    with pytest.raises(PluginError, match=expected):
        Registry().load_file(path)


def test_a_file_and_a_distribution_of_one_name_clash(distribution: Install, tmp_path: Path) -> None:
    distribution(
        "fsf-good", {"fsframework.statistics": {"good": "good_mod:Good"}}, "good_mod", STATISTIC
    )
    path = tmp_path / "mine.py"
    path.write_text(STATISTIC)
    registry = Registry()
    registry.load_file(path)
    with pytest.raises(PluginError, match="claimed by"):
        registry.load("statistic", "good")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("ProtoNet", "proto-net"), ("MAML", "maml"), ("Conv64F", "conv64-f"), ("Mine2", "mine2")],
)
def test_kebab(name: str, expected: str) -> None:
    assert kebab(name) == expected


def test_list_and_help_import_neither_torch_nor_a_plugin() -> None:
    code = (
        "import sys; sys.argv = ['fsf', {!r}]\n"
        "from fsframework.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "heavy = [m for m in sys.modules if m.partition('.')[0] in ('torch', 'numpy', 'stevedore')"
        " or m.startswith('fsf_')]\n"
        "assert not heavy, heavy\n"
    )
    import subprocess

    for arguments in ("--help", "plugins', 'list"):
        script = code.replace("{!r}", f"'{arguments}'")
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_plugins_list_json_is_a_list_of_objects(fsf: Fsf) -> None:
    done = fsf("plugins", "list", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    fields = {"kind", "name", "target", "distribution", "version", "status"}
    assert all(set(row) == fields for row in rows)
    assert {"protonet", "renet", "fewstab", "planted"} <= {row["name"] for row in rows}
    assert all(row["status"] == "ok" for row in rows)
