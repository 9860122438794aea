"""The fixtures of the repository's own tests: a call of fsf in a folder of its own."""

from tests.conftest import _cache_of_module, _own_folders, fsf, shared_cache  # noqa: F401
