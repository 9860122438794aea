"""The number of a contract: an older one works for one minor version, a newer one is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import fsframework as api
from fsframework.errors import PluginError
from fsframework.interfaces import Statistic
from tests.components.test_registry import STATISTIC, Install
from tests.conftest import Fsf

KIND = """
from abc import ABC, abstractmethod
from fsframework.interfaces import Configurable
class Sound(Configurable, ABC, kind="sound", changes={"0.2": "make takes how often it sounds"}):
    "Something that makes a sound."
    def heard(self, times):
        return self.make(times) if self.contract > 1 else self.make() * times
    @abstractmethod
    def make(self, *times): ...
"""
CHECKS = """
from fsframework.testing import Suite, require
from toy_sounds.interfaces import Sound
suite = Suite(Sound)
@suite.check()
def check_heard(make):
    "It is heard as often as one wants."
    require(len(make().heard(3)) == 12, "it is not heard three times")
"""
PLUGINS = """
from toy_sounds.interfaces import Sound
class Bell(Sound):
    "Rings, as contract 1 had it."
    def make(self):
        return "ding"
class Drum(Sound):
    "Is beaten."
    contract = 2
    def make(self, times):
        return "boom" * times
class Synthesiser(Drum):
    "Is not invented yet."
    contract = 3
"""


@pytest.fixture
def _sounds(distribution: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a kind in its version 0.2, which has just got contract 2, and plugins of it."""
    # Its --kind takes the kinds that were installed when it was imported.
    monkeypatch.delitem(sys.modules, "fsf_tools.plugins", raising=False)
    package = tmp_path / "site" / "toy_sounds"
    (package / "testing").mkdir(parents=True)
    for name, source in {"interfaces": KIND, "testing/sound": CHECKS}.items():
        (package / f"{name}.py").write_text(source)
    (package / "__init__.py").write_text('__version__ = "0.2.0"\n')
    distribution("toy-sounds", {"fsframework.kinds": {"sound": "toy_sounds.interfaces:Sound"}})
    names = {name.lower(): f"others:{name}" for name in ("Bell", "Drum", "Synthesiser")}
    distribution("others", {"toy_sounds.sounds": names}, "others", PLUGINS)


@pytest.mark.usefixtures("_sounds")
def test_an_interface_serves_both_contracts_for_one_minor_version(
    fsf: Fsf, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = fsf("plugins", "check", "bell")
    assert done.returncode == 0, done.stdout
    [note] = done.stderr.splitlines()
    for part in ("'bell'", "others 1.0", "contract 1", "0.2", "make takes how often it sounds"):
        assert part in note
    done = fsf("plugins", "check", "drum")
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.setattr(sys.modules["toy_sounds"], "__version__", "0.3.0")
    assert fsf("plugins", "check", "drum").returncode == 0
    done = fsf("plugins", "check", "bell")
    [line] = done.stderr.splitlines()
    assert done.returncode == 2
    assert "make takes how often it sounds" in line


@pytest.mark.usefixtures("_sounds")
def test_a_newer_contract_asks_for_an_upgrade_of_whose_kind_it_is(fsf: Fsf) -> None:
    done = fsf("plugins", "check", "synthesiser")
    assert done.returncode == 2
    assert "contract 3" in done.stderr
    assert "upgrade toy_sounds" in done.stderr
    assert "contract 3" in fsf("plugins", "list", "--load", "--kind", "sound", "--json").stdout


@pytest.mark.parametrize("number", [2, 0, "one"])
def test_every_way_to_a_plugin_checks_its_number(
    number: object, distribution: Install, fsf: Fsf, tmp_path: Path
) -> None:
    source = f"{STATISTIC}    contract = {number!r}\n"
    distribution("other", {"fsframework.statistics": {"good": "other:Good"}}, "other", source)
    (tmp_path / "mine.py").write_text(source)
    installed = fsf("plugins", "show", "good", "--kind", "statistic")
    in_a_file = fsf("plugins", "show", "acc", "--plugin", "mine.py")
    for done in (installed, in_a_file):
        [line] = done.stderr.splitlines()
        assert done.returncode == 2
        assert "'good' (" in line
        assert f"contract {number!r}" in line
    assert ("upgrade fsframework" in installed.stderr) == (number == 2)

    class Mine(Statistic):
        contract = number

        def per_task(self, outcomes):
            return outcomes.task_accuracy

    for given in (Mine, Mine()):
        with pytest.raises(PluginError, match=f"contract {number!r}"):
            api.run(statistics=[given])


def test_a_command_has_the_number_in_its_description(
    distribution: Install, fsf: Fsf, tmp_path: Path
) -> None:
    package = tmp_path / "site" / "other"
    package.mkdir()
    (package / "__init__.py").write_text("import click\n@click.command()\ndef hum():\n    ...\n")
    table = package / "commands.toml"
    distribution("other", {"fsframework.commands": {"hum": "other:hum"}})
    for number, code in {"1": 0, "2": 2, '"1"': 2}.items():
        table.write_text(f'[hum]\nsummary = "Hums."\ngroup = "Results"\ncontract = {number}\n')
        done = fsf("hum")
        assert done.returncode == code, done.stderr
        assert ("contract" in done.stderr) == (code == 2)
