"""The configuration of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fsf_importing.weights import one_line
from fsframework.interfaces import DataError
from fsframework.values import read_file

__all__ = ["read_config"]

_MOST_BYTES = 1 << 20
"""Size of a configuration."""


def read_config(path: Path) -> Mapping[str, Any]:
    """Read LibFewShot's configuration.

    Raises:
        DataError: the file is missing, or is not YAML with keys.
    """
    try:
        read = yaml.safe_load(read_file(path, _MOST_BYTES).decode("utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"{path}: no such file; LibFewShot writes it to its results folder"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: cannot be read as YAML (it is not UTF-8 text)") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read as YAML ({one_line(str(error))})") from None
    if not isinstance(read, Mapping):
        raise DataError(f"{path}: is not a configuration of LibFewShot, since it has no keys")
    return read
