"""A section of the configuration in which every key must be known."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fsframework.interfaces import DataError

__all__ = ["REQUIRED", "Section"]

REQUIRED: Any = object()
"""Instead of a default: the key is required."""


class Section:
    """The values of one mapping in a configuration.

    Args:
        values: the mapping; ``None`` if empty.
        where: path of the file and keys down to the mapping, for messages.
        known: every allowed key.

    Raises:
        DataError: the value is not a mapping, or a key is unknown.
    """

    def __init__(self, values: object, where: str, known: Collection[str]) -> None:
        if values is None:
            values = {}
        if not isinstance(values, Mapping):
            raise DataError(f"{where} must have keys, but is {values!r}")
        for key in values:
            if key not in known:
                allowed = ", ".join(sorted(known)) or "none"
                raise DataError(f"{where}.{key}: unknown key; known: {allowed}")
        self._values = values
        self._where = where

    def has(self, key: str) -> bool:
        """Return whether a value is given."""
        return self._values.get(key) is not None

    def number(self, key: str, default: float = REQUIRED) -> float:
        """Return a number."""
        value = self._get(key, default)
        try:
            # YAML reads 1e-3, without a point, as a string.
            return float(value if not isinstance(value, bool) else "no number")
        except (TypeError, ValueError):
            raise self._wrong(key, "a number", value) from None

    def whole(self, key: str, default: int = REQUIRED, least: int = 0) -> int:
        """Return a whole number, at least ``least``."""
        value = self.number(key, default)
        if not value.is_integer() or value < least:
            raise self._wrong(key, f"a whole number of at least {least}", self._values.get(key))
        return int(value)

    def flag(self, key: str, default: bool = REQUIRED) -> bool:
        """Return true or false."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def choice(self, key: str, allowed: Collection[str], default: str = REQUIRED) -> str:
        """Return one of some names."""
        value = self._get(key, default)
        if value not in allowed:
            raise self._wrong(key, "one of " + ", ".join(allowed), value)
        return str(value)

    def text(self, key: str, default: str = REQUIRED) -> str:
        """Return a string."""
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a text", value)
        return value

    def wholes(self, key: str, default: tuple[int, ...], least: int = 1) -> tuple[int, ...]:
        """Return as many whole numbers as the default has, each at least ``least``."""
        value = self._get(key, default)
        right = isinstance(value, (list, tuple)) and all(type(v) is int for v in value)
        if not right or len(value) != len(default) or min(value) < least:
            raise self._wrong(key, f"{len(default)} whole numbers of at least {least}", value)
        return tuple(value)

    def section(self, key: str, known: Collection[str]) -> Section:
        """Return a mapping within this one."""
        return Section(self._get(key, REQUIRED), f"{self._where}.{key}", known)

    def _get(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        if value is None:
            if default is REQUIRED:
                raise DataError(f"{self._where}.{key}: is missing")
            return default
        return value

    def _wrong(self, key: str, must: str, value: object) -> DataError:
        return DataError(f"{self._where}.{key} must be {must}, not {value!r}")
