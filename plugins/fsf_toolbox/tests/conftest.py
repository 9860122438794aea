"""The fixtures of the repository's own tests: a call of fsf in a folder of its own."""

from tests.conftest import (  # noqa: F401
    _cache_of_module,
    _own_folders,
    distribution,
    fsf,
    shared_cache,
)
