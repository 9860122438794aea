"""Everything that a release needs: one version for all packages, their files, and the checklist.

    python .ci/release.py version 0.2.0
    python .ci/release.py build OUT [--url ADDRESS]
    python .ci/release.py lowest > lowest.txt
    python .ci/release.py check OUT [--url ADDRESS]

``version`` writes it into every package, the bounds between them and CITATION.cff, and begins a
section of the changelog. ``build`` writes a wheel and a source distribution of every package.
``lowest`` prints constraints for pip: of every dependency the lowest version that is allowed.
``check`` is what must pass before the files in OUT are uploaded.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flit_core.sdist import SdistBuilder
from flit_core.wheel import make_wheel_in

ROOT = Path(__file__).parents[1]


def packages() -> list[Path]:
    """Return the folders of all first-party packages, the core first."""
    return [ROOT, *sorted(file.parent for file in ROOT.glob("plugins/*/pyproject.toml"))]


def project_of(folder: Path) -> dict[str, Any]:
    """Return the table ``project`` of a package's metadata."""
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def module_of(folder: Path) -> Path:
    """Return the folder of a package's module."""
    told = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    return folder / str(told["tool"]["flit"]["module"]["name"])


def version_of(folder: Path) -> str:
    """Return the version that a package's module has."""
    text = (module_of(folder) / "__init__.py").read_text("utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    assert found, f"{folder}: no __version__"
    return found[1]


def raise_version(version: str) -> None:
    """Write a version, ``MAJOR.MINOR.PATCH``, wherever a first-party package states it."""
    major, minor, _ = (int(part) for part in version.split("."))
    bound = rf'"\1>={major}.{minor},<{major}.{minor + 1}"'
    for folder in packages():
        _replace(folder / "pyproject.toml", r'"(fsf[a-z-]+)>=\d+\.\d+,<\d+\.\d+"', bound)
        own = f'__version__ = "{version}"'
        _replace(module_of(folder) / "__init__.py", r'^__version__ = ".+"$', own)
    _replace(ROOT / "CITATION.cff", r"^version: .+$", f"version: {version}")
    changes = ROOT / "CHANGELOG.md"
    if f"\n## {version} " not in changes.read_text("utf-8"):
        _replace(
            changes,
            r"\A(.+?\n)(?=## )",
            rf"\1## {version} — unreleased\n\n### What broke\n\n",
            re.DOTALL,
        )


def _replace(file: Path, pattern: str, text: str, flags: int = re.MULTILINE) -> None:
    old = file.read_text("utf-8")
    new = re.sub(pattern, text, old, flags=flags)
    if new != old:
        file.write_text(new, "utf-8")


def lowest() -> list[str]:
    """Return the lower bound of every dependency as a constraint for pip."""
    found: set[str] = set()
    for folder in packages():
        project = project_of(folder)
        for needed in (project["dependencies"], *project.get("optional-dependencies", {}).values()):
            found.update(one for one in needed if not one.startswith("fsf"))
    return sorted(one.replace(">=", "==") for one in found)


def build(out: Path, url: str | None = None, folders: Sequence[Path] = ()) -> list[Path]:
    """Build packages, and return the wheels.

    Args:
        out: where the files go.
        url: address of the project, for the metadata; by default these have none.
        folders: of the packages; by default all first-party packages.
    """
    out.mkdir(parents=True, exist_ok=True)
    wheels = []
    for folder in folders or packages():
        with TemporaryDirectory() as place:
            copy = Path(place)
            module = module_of(folder)
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(module, copy / module.name, ignore=ignored)
            for name in ("pyproject.toml", "LICENSE", project_of(folder)["readme"]):
                shutil.copyfile(folder / name, copy / name)
            description = copy / "pyproject.toml"
            if url:
                with description.open("a", encoding="utf-8") as file:
                    file.write(f'\n[project.urls]\nHomepage = "{url}"\n')
            wheels.append(out / make_wheel_in(description, out).file.name)
            SdistBuilder.from_ini_path(description).build(out)
    return wheels


def check(out: Path, url: str | None) -> list[str]:
    """Do the checklist, and return what is wrong."""
    version, wrong = version_of(ROOT), []
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    if changed.stdout:
        wrong.append(f"changes are not committed:\n{changed.stdout}")
    if f"\n## {version} — 2" not in (ROOT / "CHANGELOG.md").read_text("utf-8"):
        wrong.append(f"CHANGELOG.md: the section {version} has no date (## {version} — YYYY-MM-DD)")
    if out.exists() and any(out.iterdir()):
        wrong.append(f"{out}: is not empty")
    if wrong:
        return wrong
    steps = (
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
        ["lint-imports"],
        # With the slow ones: wheels in a fresh environment, versions, descriptions.
        ["pytest", "-n", "2", "-m", "slow or not slow"],
    )
    for step in steps:
        print("+", *step, flush=True)
        if subprocess.run(step, cwd=ROOT, check=False).returncode:
            return [f"{' '.join(step)} fails"]
    for wheel in build(out, url):
        print(wheel.stat().st_size, wheel)
    return []


def main() -> int:
    """Read the command line and do what it asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("version", help="raise it everywhere").add_argument("version")
    for name, does in (("build", "wheels and sources"), ("check", "the checklist, and build")):
        command = commands.add_parser(name, help=does)
        command.add_argument("out", type=Path)
        command.add_argument("--url", help="address of the project, for the metadata")
    commands.add_parser("lowest", help="the lower bounds as constraints for pip")
    told = parser.parse_args()
    if told.command == "version":
        if not re.fullmatch(r"\d+\.\d+\.\d+", told.version):
            parser.error(f"version must be MAJOR.MINOR.PATCH, got {told.version!r}")
        raise_version(told.version)
    elif told.command == "lowest":
        print(*lowest(), sep="\n")
    elif told.command == "build":
        for wheel in build(told.out, told.url):
            print(wheel.stat().st_size, wheel)
    else:
        wrong = check(told.out, told.url)
        print(*wrong, sep="\n", file=sys.stderr)
        return bool(wrong)
    return 0


if __name__ == "__main__":
    sys.exit(main())
