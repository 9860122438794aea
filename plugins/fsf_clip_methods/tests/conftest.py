"""The fixtures of the repository's tests."""

from tests.conftest import _cache_of_module, _own_folders, shared_cache

__all__ = ["_cache_of_module", "_own_folders", "shared_cache"]
