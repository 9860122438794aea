"""What `fsf plugins new` writes works at once, whatever the kind."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flit_core import buildapi

from fsf_tools.new_plugin import new_plugin
from fsframework.api.components import Registry
from fsframework.errors import PluginError
from tests.conftest import Fsf

KINDS = sorted(Registry().kinds)
RUN = ("--tasks", "20", "-o", "dataset.n_per_class=40", "-o", "training.epochs=0")


def name_of(kind: str) -> str:
    """The longest name that is allowed, so that no line is too long with any other."""
    return f"{'a-' * 15}"[: 29 - len(kind)] + f"b{kind}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a new package of every kind, and one with short names."""
    folder = tmp_path_factory.mktemp("made")
    for kind in KINDS:
        new_plugin(kind, name_of(kind), folder / "long")
        new_plugin(kind, f"my-{kind}", folder / "short")
    return folder


@pytest.fixture(scope="module")
def built(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the packages with short names are installed, each from its wheel."""
    site = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        for package in sorted((made / "short").iterdir()):
            patch.chdir(package)
            wheel = buildapi.build_wheel(str(site))
            zipfile.ZipFile(site / wheel).extractall(site)
    return site


@pytest.fixture
def site(built: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(built)
    monkeypatch.setenv("PYTHONPATH", str(built))
    before = set(sys.modules)
    yield built
    for added in set(sys.modules) - before:
        if str(getattr(sys.modules[added], "__file__", "")).startswith(str(built)):
            del sys.modules[added]


def ran(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.slow
def test_every_package_can_be_loaded_once_it_is_installed(site: Path, fsf: Fsf) -> None:
    rows = json.loads(fsf("plugins", "list", "--load", "--json").stdout)
    ours = {
        row["distribution"]: row
        for row in rows
        if site.joinpath(row["name"].replace("-", "_")).exists()
    }
    assert sorted(ours) == [f"my-{kind}" for kind in KINDS]
    for kind in KINDS:
        assert ours[f"my-{kind}"]["kind"] == kind
        assert ours[f"my-{kind}"]["name"] == f"my-{kind}"
        assert (ours[f"my-{kind}"]["version"], ours[f"my-{kind}"]["status"]) == ("0.1.0", "ok")


def test_ruff_finds_nothing_in_any_package(made: Path) -> None:
    ran(made, Path(sys.executable).with_name("ruff"), "check", "--no-cache")
    ran(made, Path(sys.executable).with_name("ruff"), "format", "--check", "--no-cache")


@pytest.mark.parametrize(
    "kind",
    [k if k == "statistic" else pytest.param(k, marks=pytest.mark.slow) for k in KINDS],
)
def test_a_package_passes_its_checks_and_its_own_tests(
    kind: str, made: Path, site: Path, fsf: Fsf
) -> None:
    done = fsf("plugins", "check", "--distribution", f"my-{kind}", "--json")
    assert {row["outcome"] for row in json.loads(done.stdout)} <= {"passed", "skipped"}
    said = ran(made / "short" / f"my-{kind}", sys.executable, "-m", "pytest", "-q").stdout
    assert "passed" in said


@pytest.mark.usefixtures("site")
def test_a_command_is_in_help_and_runs(fsf: Fsf, tmp_path: Path) -> None:
    assert "Show how long each stage of a run took." in fsf("--help").stdout
    (tmp_path / "run.json").write_text('{"timings": {"training": 3.25}}')
    assert fsf("my-command", ".").stdout == "training         3.2 s\n"


@pytest.mark.slow
def test_mypy_strict_finds_nothing_in_any_package(made: Path) -> None:
    ran(made / "short", sys.executable, "-m", "mypy", "--strict", ".")


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"command"}))
def test_one_file_is_a_plugin(kind: str, fsf: Fsf, tmp_path: Path) -> None:
    done = fsf("plugins", "new", kind, "one-file", "--script", "--to", "mine")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["one_file.py"]
    told = fsf("plugins", "show", "one-file", "--plugin", "mine/one_file.py", "--json")
    assert json.loads(told.stdout)["kind"] == kind
    assert "mine/one_file.py" in done.stdout


@pytest.mark.slow
def test_what_it_says_to_do_next_works(fsf: Fsf, tmp_path: Path) -> None:
    """The first use of each kind, in the order in which a user has what it needs."""
    assert fsf("run", "--method", "ncc", *RUN).returncode == 0
    for kind in KINDS:
        if kind in ("command", "importer", "selector"):  # these need what is not here
            continue
        done = fsf("plugins", "new", kind, "tried", "--script", "--to", kind)
        use = shlex.split(done.stdout.splitlines()[-1])[1:]
        more = RUN if use[0] in ("run", "sweep") else ()
        tried = fsf(*use, *(RUN[2:] if use[0] == "benchmark" else more))
        assert tried.returncode == 0, (use, tried.stderr)


def test_a_package_brings_the_template_of_its_own_kind(
    distribution: Callable[..., None], tmp_path: Path
) -> None:
    distribution("my-sounds", {"fsframework.kinds": {"sound": "my_sounds.interfaces:Sound"}})
    templates = tmp_path / "site" / "my_sounds" / "testing" / "templates"
    templates.mkdir(parents=True)
    (tmp_path / "site" / "my_sounds" / "__init__.py").touch()
    with pytest.raises(PluginError, match=r"sound\.py"):
        new_plugin("sound", "birdsong", tmp_path)
    (templates / "sound.py").write_text(
        '"""A sound.\n\nTry it: fsf play my-sound\n"""\n\n'
        "from fsframework.interfaces import Configurable\n\n\n"
        "class MySound(Configurable): ...\n"
    )
    _, steps = new_plugin("sound", "birdsong", tmp_path)
    assert steps[-1] == "fsf play birdsong"
    project = tomllib.loads((tmp_path / "birdsong" / "pyproject.toml").read_text())["project"]
    assert project["entry-points"] == {"my_sounds.sounds": {"birdsong": "birdsong:Birdsong"}}
    assert [one.partition(">")[0] for one in project["dependencies"]] == ["fsframework"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("method", "protonet"), "'protonet'"),  # a plugin of this kind
        (("method", "json"), "json"),  # a module
        (("statistic", "statistic"), "Statistic"),  # what its code derives from
        (("method", "MyNet"), "'MyNet'"),
        (("method", "my_net"), "'my_net'"),
        (("method", "net-2"), "'net-2'"),
        (("method", "class"), "'class'"),
        (("method", "../net"), "'../net'"),
        (("method", "x" * 31), "30"),
        (("command", "my-command", "--script"), "--script"),
        (("methods", "my-net"), "'methods'"),
        (("method", "there"), "there"),
        (("method", "my-net", "--to", "file"), "file"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    words: tuple[str, ...], named: str, fsf: Fsf, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").touch()
    done = fsf("plugins", "new", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert {path.name for path in tmp_path.iterdir()} - {"cache"} == {"there", "file"}
    assert list((tmp_path / "there").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_sentence(fsf: Fsf) -> None:
    done = fsf("plugins", "new", "method", "my-net", "--to", "/proc/nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert "/proc/nowhere" in done.stderr
