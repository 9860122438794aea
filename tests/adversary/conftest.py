"""The world that attacks share; each damages a copy of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adversary.world import World, build


@pytest.fixture(scope="session")
def intact(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world that no attack may change."""
    return build(tmp_path_factory.mktemp("intact"))


@pytest.fixture
def world(intact: World, tmp_path: Path) -> World:
    """A world of the test's own."""
    return intact.copied(tmp_path / "world")
