"""The registry: listing imports nothing, and each thing that can be wrong has its sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fsframework.interfaces as interfaces
from fsframework.components.kinds import KINDS
from tests.conftest import Fsf

Install = Callable[..., None]
Show = Callable[..., str]

STATISTIC = """
from fsframework.interfaces import Statistic
class Good(Statistic):
    "A statistic."
    def per_task(self, outcomes):
        return outcomes.class_accuracy.mean(axis=1)
"""
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


@pytest.fixture
def statistic(distribution: Install) -> Install:
    """Install a distribution with statistics, all of one module."""

    def install(name: str, *plugins: str, source: str = STATISTIC, target: str = "Good") -> None:
        module = f"{name.replace('-', '_')}_mod"
        targets = dict.fromkeys(plugins or ["good"], f"{module}:{target}")
        distribution(name, {"fsframework.statistics": targets}, module, source)

    return install


@pytest.fixture
def refused(fsf: Fsf) -> Show:
    """Show a statistic that cannot be loaded, and return the one line that says so."""

    def show(name: str, *more: str) -> str:
        done = fsf("plugins", "show", name, "--kind", "statistic", *more)
        assert (done.returncode, done.stdout) == (2, "")
        [line] = done.stderr.splitlines()
        return line

    return show


def rows(fsf: Fsf, *more: str) -> dict[tuple[str, str], dict[str, str]]:
    """Return the listed statistics by name and distribution."""
    done = fsf("plugins", "list", "--kind", "statistic", "--json", *more)
    assert done.returncode == 0, done.stderr
    return {(row["name"], row["distribution"]): row for row in json.loads(done.stdout)}


def test_every_kind_has_its_group_and_interface() -> None:
    for name, kind in KINDS.items():
        assert kind.group == f"fsframework.{name}s"
        assert name == "command" or kind.load().__name__ in interfaces.__all__


def test_a_package_declares_kinds_of_its_own(
    distribution: Install, tmp_path: Path, fsf: Fsf, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its --kind takes the kinds that were installed when it was imported.
    monkeypatch.delitem(sys.modules, "fsf_tools.plugins", raising=False)
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
    listed = json.loads(fsf("plugins", "list", "--kind", "sound", "--json").stdout)
    assert [row["name"] for row in listed] == ["bell", "silence", "stray"]
    assert "toy_sounds" not in sys.modules
    stray = fsf("plugins", "show", "stray").stderr
    assert "not a subclass of Sound" in stray
    assert "toy_sounds.interfaces.Sound" in stray
    checked = fsf("plugins", "check", "silence", "--json")
    failed = [r["name"] for r in json.loads(checked.stdout) if r["outcome"] == "failed"]
    assert failed == ["check_heard"]
    assert fsf("plugins", "check", "bell", "--kind", "sound").returncode == 0
    assert json.loads(fsf("plugins", "show", "bell", "--json").stdout)["facts"] == {"volume": 1}


def test_listing_imports_nothing_and_loading_one_plugin_no_other(
    statistic: Install, fsf: Fsf
) -> None:
    statistic("fsf-good")
    statistic("fsf-bomb", "bomb", source="raise RuntimeError('imported')")
    good = rows(fsf)["good", "fsf-good"]
    assert (good["version"], good["target"], good["status"]) == ("1.0", "fsf_good_mod:Good", "ok")
    assert "fsf_good_mod" not in sys.modules
    assert "from fsf-good 1.0" in fsf("plugins", "show", "good").stdout
    assert "fsf_good_mod" in sys.modules
    assert "fsf_bomb_mod" not in sys.modules


def test_a_clash_of_names_names_both_distributions(
    statistic: Install, fsf: Fsf, refused: Show
) -> None:
    statistic("fsf-one", "same")
    statistic("fsf-two", "between", "same")
    found = rows(fsf)
    assert "fsf-two" in found["same", "fsf-one"]["status"]
    assert "fsf-one" in found["same", "fsf-two"]["status"]
    line = refused("same")
    assert "'same' is claimed by" in line
    assert "fsf-one 1.0 (fsf_one_mod:Good) and fsf-two 1.0 (fsf_two_mod:Good)" in line
    assert fsf("plugins", "show", "between").returncode == 0


def test_the_same_target_twice_is_one_plugin(distribution: Install, fsf: Fsf) -> None:
    entries = {"fsframework.statistics": {"good": "good_mod:Good"}}
    distribution("fsf-good", entries, "good_mod", STATISTIC)
    distribution("fsf-good", entries, version="1.0.dev1")
    assert fsf("plugins", "show", "good").returncode == 0


def test_a_class_whose_instances_are_falsy_is_a_plugin(statistic: Install, fsf: Fsf) -> None:
    statistic("fsf-good", source=f"{STATISTIC}\n    def __len__(self):\n        return 0\n")
    assert fsf("plugins", "check", "good").returncode == 0


def test_a_plugin_installed_while_the_process_runs_is_found(statistic: Install, fsf: Fsf) -> None:
    for name in ("one", "two"):
        statistic(f"fsf-{name}", name)
        assert f"from fsf-{name} 1.0" in fsf("plugins", "show", name).stdout


def test_what_is_installed_is_read_anew_when_it_has_changed(
    statistic: Install, fsf: Fsf, tmp_path: Path
) -> None:
    statistic("fsf-good")
    site = tmp_path / "site"
    [entry_points] = site.rglob("entry_points.txt")
    for path in (site, *site.rglob("*")):
        os.utime(path, (1e9, 1e9))  # long enough ago for what was read to be kept
    listed = ("plugins", "list", "--kind", "statistic")
    assert "fsf-good" in fsf(*listed).stdout
    [kept] = (tmp_path / "cache" / "plugins").iterdir()
    before = kept.stat().st_mtime_ns
    assert "fsf-good" in fsf(*listed).stdout
    assert kept.stat().st_mtime_ns == before
    entry_points.write_text(entry_points.read_text().replace("good =", "better ="))
    assert "better" in fsf(*listed).stdout
    kept.write_text(kept.read_text().replace("statistic", "static"))
    assert "wacc" in fsf(*listed).stdout, "a damaged file is not used"


def test_an_unknown_name_gets_near_ones_and_the_list(statistic: Install, refused: Show) -> None:
    statistic("fsf-good")
    assert "unknown statistic 'goood' (did you mean 'good'?); known: acc, good" in refused("goood")


@pytest.mark.parametrize(
    ("source", "target", "cause", "hint"),
    [
        ("X = 3", "X", "is a int, not a subclass of Statistic", "interfaces.statistic.Statistic"),
        ("class X: pass", "X", "is class X, not a subclass of Statistic", "derive it"),
        ("from fsframework.interfaces import Statistic as X", "X", "it lacks per_task", ""),
        ("", "Missing", "cannot be imported: AttributeError", "reinstall"),
        ("import not_there_at_all", "X", "ModuleNotFoundError", "(hint: reinstall"),
        ("raise SystemExit", "X", "cannot be imported: SystemExit", "reinstall"),
        ("assert False, 'no\\nluck'", "X", "AssertionError: no luck", "reinstall"),
    ],
)
def test_what_is_no_plugin_is_refused_with_cause_and_hint(
    statistic: Install, fsf: Fsf, refused: Show, source: str, target: str, cause: str, hint: str
) -> None:
    statistic("fsf-bad", "bad", source=source, target=target)
    line = refused("bad")
    for part in (f"statistic 'bad' (fsf_bad_mod:{target}, from fsf-bad 1.0)", cause, hint):
        assert part in line
    assert "cannot be" in cause or "broken" in rows(fsf, "--load")["bad", "fsf-bad"]["status"]


@pytest.mark.parametrize(
    ("name", "target", "defect"),
    [
        ("Bad", "json:dumps", "not lower-case kebab"),
        ("bad", "json", "'json' is not module:attribute"),
        ("bad", "no_such_module:X", "no module named 'no_such_module'"),
    ],
)
def test_defects_seen_without_importing_are_rows(
    distribution: Install, fsf: Fsf, refused: Show, name: str, target: str, defect: str
) -> None:
    distribution("fsf-bad", {"fsframework.statistics": {name: target}})
    assert defect in rows(fsf)[name, "fsf-bad"]["status"]
    assert defect in refused(name)


@pytest.mark.parametrize("content", [None, "", "garbage", "Name: fsf-bad\n"])
def test_a_distribution_without_sound_metadata_is_a_row_and_hides_no_other(
    statistic: Install, fsf: Fsf, refused: Show, tmp_path: Path, content: str | None
) -> None:
    statistic("fsf-good")
    statistic("fsf-bad", "bad")
    metadata = tmp_path / "site" / "fsf_bad-1.0.dist-info" / "METADATA"
    metadata.unlink()
    if content is not None:
        metadata.write_text(content)
    [(name, status)] = [
        (row["distribution"], row["status"]) for (of, _), row in rows(fsf).items() if of == "bad"
    ]
    assert name.replace("_", "-") == "fsf-bad"
    assert "METADATA" in status
    assert "METADATA" in refused("bad")
    assert fsf("plugins", "show", "good").returncode == 0


def test_what_a_plugin_prints_at_import_is_not_in_the_output(statistic: Install, fsf: Fsf) -> None:
    statistic("fsf-loud", "loud", source=f"print('hello')\n{STATISTIC}")
    done = fsf("plugins", "show", "loud", "--json")
    assert json.loads(done.stdout)["name"] == "loud"
    assert done.stderr == "hello\n"


def test_a_class_in_a_file_is_a_plugin(
    statistic: Install, fsf: Fsf, refused: Show, tmp_path: Path
) -> None:
    path = tmp_path / "mine.py"
    names = {"MyOwn": "my-own", "MAML": "maml", "Conv64F": "conv64-f", "Mine2": "mine2"}
    path.write_text("".join(STATISTIC.replace("Good", name) for name in names))
    for name in names.values():
        shown = fsf("plugins", "show", name, "--kind", "statistic", "--plugin", path)
        assert f"statistic '{name}' ({path})" in shown.stdout
    statistic("fsf-other", "my-own")
    told = refused("my-own", "--plugin", str(path))
    assert "claimed by" in told
    assert f"rename the class in {path} or uninstall fsf-other" in told


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        (None, "no such file"),
        ("import this_is_missing", "cannot be imported: ModuleNotFoundError"),
        ("raise SystemExit", "cannot be imported: SystemExit"),
        ("x = 1", "fsframework.interfaces, such as FewShotMethod"),
        ("from torch import nn\nclass Net(nn.Module): ...", "fsf.run(backbone=Net())"),
        (
            "from fsframework.interfaces import Statistic\nclass Half(Statistic): ...",
            "Half is abstract: it lacks per_task",
        ),
    ],
)
def test_a_file_that_is_no_plugin_is_refused(
    refused: Show, tmp_path: Path, source: str | None, cause: str
) -> None:
    path = tmp_path / "mine.py"
    if source is not None:
        path.write_text(source)
    line = refused("acc", "--plugin", str(path))
    assert f"plugin file {path}" in line
    assert cause in line


def test_listing_plugins_imports_neither_torch_nor_a_plugin() -> None:
    code = (
        "import sys; sys.argv = ['fsf', 'plugins', 'list']\n"
        "from fsframework.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "heavy = [m for m in sys.modules if m.partition('.')[0] in ('torch', 'numpy')"
        " or m.startswith('fsf_') and m.partition('.')[0] != 'fsf_tools']\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_plugins_list_json_is_a_list_of_objects(fsf: Fsf) -> None:
    done = fsf("plugins", "list", "--json")
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    fields = {"kind", "name", "target", "distribution", "version", "status"}
    assert all(set(row) == fields for row in listed)
    assert {"protonet", "renet", "fewstab", "planted"} <= {row["name"] for row in listed}
    assert all(row["status"] == "ok" for row in listed)
