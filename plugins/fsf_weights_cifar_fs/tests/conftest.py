"""The fixtures of the repository's own tests: a call of fsf in a folder of its own."""

from tests.conftest import _own_folders, fsf  # noqa: F401
