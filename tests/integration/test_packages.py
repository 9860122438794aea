"""The files of a release: what their metadata say, and that they do their work outside this folder.

The core with the packages of the extra ``main``, and in the slow test all packages, are built,
installed into an environment of their own, and run there.
"""

from __future__ import annotations

import email
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "third_party_plugin"
QUICK = (
    "-o", "dataset.size=32", "-o", "dataset.n_per_class=30", "--tasks", "20", "--queries", "5",
    "-o", "training.epochs=1", "-o", "training.steps=2",
)  # fmt: skip


def release_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release: Any = release_script()
PACKAGES: list[Path] = release.packages()
EXTRAS: dict[str, list[str]] = release.project_of(ROOT)["optional-dependencies"]
OURS: set[str] = {str(release.project_of(folder)["name"]) for folder in PACKAGES}


class Environment:
    """A virtual environment with wheels, and the libraries that this process has, by links."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "venv", symlinks=True)
        libraries = folder / "libraries"
        libraries.mkdir()
        for place in (Path(path) for path in sys.path if path.endswith("-packages")):
            for entry in place.iterdir():
                link = libraries / entry.name
                if not entry.name.startswith(("fsf", "__")) and not link.is_symlink():
                    link.symlink_to(entry)
        [site] = (folder / "venv" / "lib").glob("python*/site-packages")
        (site / "libraries.pth").write_text(f"{libraries}\n")
        own = {"FSF_RUNS": "runs", "FSF_CACHE": "cache", "FSF_DATA": "data"}
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
        self.variables = {**kept, **{name: str(folder / place) for name, place in own.items()}}

    def install(self, wheels: Sequence[Path]) -> None:
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python")
        python = self.folder / "venv" / "bin" / "python"
        options = ("install", "-q", "--no-deps", "--no-index", "--no-compile")
        self._call(*pip, python, *options, *wheels)

    def fsf(self, *arguments: str, code: int = 0) -> str:
        """Give a command, and return what it prints: to standard error, if it shall fail."""
        done = self._call(self.folder / "venv" / "bin" / "fsf", *arguments, code=code)
        return done.stderr if code else done.stdout

    def _call(self, *command: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(part) for part in command], cwd=self.folder, env=self.variables,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done


def metadata_of(wheel: Path) -> tuple[email.message.Message, list[str]]:
    with zipfile.ZipFile(wheel) as file:
        [name] = (name for name in file.namelist() if name.endswith("/METADATA"))
        return email.message_from_bytes(file.read(name)), file.namelist()


def test_every_file_of_a_release_says_what_it_is(tmp_path: Path) -> None:
    wheels = release.build(tmp_path, "https://example.org/project")
    assert len(wheels) == len(PACKAGES) == len(list(tmp_path.glob("*.tar.gz")))
    versions = set()
    for wheel, folder in zip(wheels, PACKAGES, strict=True):
        found, files = metadata_of(wheel)
        versions.add(found["Version"])
        assert found["License-Expression"] == "MIT"
        assert any(file.endswith("/licenses/LICENSE") for file in files), wheel
        distribution = release.project_of(folder)["name"].replace("-", "_")
        source = next(tmp_path.glob(f"{distribution}-*.tar.gz"))
        with tarfile.open(source) as file:
            assert any(name.endswith("/LICENSE") for name in file.getnames())
        assert found.get_all("Project-URL") == ["Homepage, https://example.org/project"]
        assert found["Requires-Python"] == ">=3.11"
        assert "Programming Language :: Python :: 3.11" in found.get_all("Classifier", [])
        assert found["Summary"]
        # A link that a package index cannot follow: to a file of the repository, or a heading.
        text = found.get_payload()
        assert re.findall(r"\]\((?!https?://)[^)]*\)", text) == [], folder
        assert re.findall(r"<(?:img|a) ", text) == [], folder
    assert versions == {release.version_of(ROOT)}
    assert f"version: {versions.pop()}\n" in (ROOT / "CITATION.cff").read_text()


def test_no_address_is_invented(tmp_path: Path) -> None:
    [wheel] = release.build(tmp_path, folders=PACKAGES[:1])
    assert metadata_of(wheel)[0].get_all("Project-URL") is None


def test_extras_leave_no_gap_and_bounds_name_the_minor_version() -> None:
    named = {extra: {name.partition("[")[0] for name in EXTRAS[extra]} for extra in EXTRAS}
    members = {name for extra in named.values() for name in extra if name.startswith("fsf")}
    assert named["all"] == members == OURS - {"fsframework"}
    major, minor, _ = release.version_of(ROOT).split(".")
    bound = f">={major}.{minor},<{major}.{int(minor) + 1}"
    for folder in PACKAGES[1:]:
        project = release.project_of(folder)
        further = (
            one for extra in project.get("optional-dependencies", {}).values() for one in extra
        )
        needed = [*project["dependencies"], *further]
        ours = [one for one in needed if one.startswith("fsf") and "[" not in one]
        assert f"fsframework{bound}" in ours, folder
        assert {re.sub(r"^[a-z-]+", "", one) for one in ours} == {bound}, folder


def test_all_packages_get_a_version_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in PACKAGES:
        copy = tmp_path / folder.relative_to(ROOT)
        module = release.module_of(folder).name
        (copy / module).mkdir(parents=True)
        for name in ("pyproject.toml", f"{module}/__init__.py"):
            shutil.copyfile(folder / name, copy / name)
    for name in ("CHANGELOG.md", "CITATION.cff"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    release.raise_version("1.4.2")
    assert {release.version_of(folder) for folder in release.packages()} == {"1.4.2"}
    table = tomllib.loads((tmp_path / "plugins/fsf_optuna/pyproject.toml").read_text())
    assert {"fsframework>=1.4,<1.5", "fsf-toolbox>=1.4,<1.5"} <= set(
        table["project"]["dependencies"]
    )
    assert "\nversion: 1.4.2\n" in (tmp_path / "CITATION.cff").read_text()
    headings = re.findall(r"^## (.+)$", (tmp_path / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert [heading.split()[0] for heading in headings][:2] == ["1.4.2", release.version_of(ROOT)]


def main_job(environment: Environment) -> Any:
    arguments = ("run", "--method", "renet", "--sampler", "fewstab", *QUICK, "--json")
    told = json.loads(environment.fsf(*arguments))
    assert {"wacc-random", "wacc-biased", "wacc-gap"} <= set(told["estimates"])
    return told


@pytest.mark.slow
def test_the_extra_main_does_the_main_job(tmp_path: Path) -> None:
    chosen = [f for f in PACKAGES if release.project_of(f)["name"] in EXTRAS["main"]]
    core, *others = release.build(tmp_path / "wheels", folders=[ROOT, *chosen])
    environment = Environment(tmp_path)
    environment.install([core])
    refused = environment.fsf("run", "--method", "renet", "--sampler", "fewstab", code=2)
    assert "fsframework[main]" in refused, "the wheels came from a folder"
    assert "--find-links" in refused
    assert len(refused.splitlines()) == 1
    environment.install(others)
    main_job(environment)
    text = environment.fsf("--help")
    for name in ("run", "sweep", "plugins", "benchmark", "predict", "attributes", "tasks"):
        assert (f"\n  {name} " in text) is (name == "run"), name


@pytest.mark.slow
def test_all_packages_and_the_examples_work_without_the_repository(tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    environment.install(release.build(tmp_path / "wheels", folders=[*PACKAGES, EXAMPLE]))
    told = main_job(environment)
    environment.fsf("report", told["folder"], "--output", "report.html")
    assert (tmp_path / "report.html").stat().st_size > 100_000
    environment.fsf("plugins", "check", "--all")
    shutil.copyfile(ROOT / "examples" / "mine.py", tmp_path / "mine.py")
    for method in (("nearest-shot",), ("mine", "--plugin", "mine.py")):
        environment.fsf("run", "--method", *method, *QUICK)
    environment.fsf("tasks", "show", "cub/fewstab-5w1s-v1")
    published = ("runs", "publish", told["folder"], "toy/renet", "--licence", "MIT", "--to")
    environment.fsf(*published, "fsf-weights-toy")
    [wheel] = release.build(tmp_path / "weights", folders=[tmp_path / "fsf-weights-toy"])
    assert metadata_of(wheel)[0]["License-File"] == "LICENSE"
    environment.install([wheel])
    again = json.loads(
        environment.fsf("run", "--model", "toy/renet", "--sampler", "fewstab", *QUICK[:8], "--json")
    )
    assert again["estimates"] == told["estimates"]
