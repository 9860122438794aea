"""Fixtures that several test files use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Fsf = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep runs and caches of tests apart from the user's and from each other."""
    monkeypatch.setenv("FSF_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("FSF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FSF_DATA", str(tmp_path / "added"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))


@pytest.fixture(scope="module")
def _cache_of_module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def shared_cache(_cache_of_module: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that the tests of a module share: what one has computed, no other computes."""
    monkeypatch.setenv("FSF_CACHE", str(_cache_of_module))
    return _cache_of_module


@pytest.fixture
def fsf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Fsf:
    """Run `fsf` in this process, in the test's folder: no second import of torch."""
    from fsframework.cli.main import main

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        argv = ["fsf", *map(str, arguments)]
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", argv)
            try:
                main()
                code: int | str | None = 0
            except SystemExit as done:
                code = done.code
        out, err = capfd.readouterr()
        assert isinstance(code, int)
        return subprocess.CompletedProcess(argv, code, out, err)

    return call


@pytest.fixture
def fsf_process(tmp_path: Path) -> Fsf:
    """Run `fsf` in a process of its own, in the test's folder."""

    def call(*arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fsframework", *map(str, arguments)],
            cwd=tmp_path,
            env=dict(os.environ),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return call


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install a made-up distribution: metadata, entry points and a module, on `sys.path`."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    before = set(sys.modules)

    def install(
        name: str,
        entry_points: dict[str, dict[str, str]],
        module: str | None = None,
        source: str = "",
        version: str = "1.0",
    ) -> None:
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        groups = [
            f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items())
            for group, entries in entry_points.items()
        ]
        (info / "entry_points.txt").write_text("\n".join(groups))
        if module is not None:
            (site / f"{module}.py").write_text(source)

    yield install
    for added in set(sys.modules) - before:
        if str(getattr(sys.modules[added], "__file__", "")).startswith(str(site)):
            del sys.modules[added]


@pytest.fixture
def failing() -> Callable[..., set[str]]:
    """A function that names the checks that a component fails."""
    from fsframework.testing import check_component

    def names(make: Any, kind: str) -> set[str]:
        return {result.name for result in check_component(make, kind) if not result.passed}

    return names
