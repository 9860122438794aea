"""The configuration file that makes a run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fsframework import Run, load_run
from fsframework.api.experiments import ARGUMENTS
from fsframework.errors import FsfError, RecordError
from fsframework.statistics.measures import DEFAULT_STATISTICS

__all__ = ["configuration_of"]

_BARE = re.compile(r"[\w-]+", re.ASCII)


def configuration_of(run: str | Path | Run, *, runs_dir: str | Path | None = None) -> str:
    """Return the TOML file that makes a run: the options that were given, and no default.

    With the same data and code, ``fsf run --config FILE`` finds the run as finished. Paths are as
    they were given: relative ones start from the folder that the command is called in.

    Args:
        run: a run, its folder, its name or the beginning of it, or a selector.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.

    Raises:
        RecordError: the run was imported.

    >>> import fsframework as fsf
    >>> run = fsf.run(
    ...     method="ncc", sampler="random", tasks=20, way=2, shot=1, queries=2, progress=False,
    ...     dataset={"name": "planted", "n_per_class": 8, "size": 16}, training={"epochs": 0},
    ... )
    >>> {'method = "ncc"', "tasks = 20"} <= {*configuration_of(run).splitlines()}
    True
    """
    opened = run if isinstance(run, Run) else load_run(run, runs_dir)
    try:
        given = opened.record.configuration
    except RecordError as error:
        raise RecordError(f"{opened.folder}: {error}") from None
    usual = {"level": ARGUMENTS["level"].default, "interval": ARGUMENTS["interval"].default}
    usual["statistics"] = [*DEFAULT_STATISTICS]
    short = {key: value for key, value in given.items() if value != usual.get(key, usual)}
    return "\n".join([*_comments(opened), *_lines(_typed(short, opened.options[0])), ""])


def _comments(run: Run) -> Iterator[str]:
    """Yield what to know besides the options."""
    record = run.record
    yield f"# fsf run --config FILE makes the run {_join_lines(run.name)},"
    yield f"# with fsframework {_join_lines(record.environment.fsframework)} and the same data."
    for name in sorted({name for plugin in record.plugins for name in plugin.files}):
        yield f"# Add --plugin FILE.py; the run has a copy of the file: code/{name}"


def _join_lines(text: str) -> str:
    """Return a text as a comment may have it: what follows a line end would be an option."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _typed(given: Any, resolved: Any, key: str = "") -> Any:
    """Return options that were given, texts of the command line as the values that they mean."""
    if isinstance(given, Mapping):
        inner = resolved if isinstance(resolved, Mapping) else {}
        if key == "training":  # the options of all stages
            inner = resolved[0] if isinstance(resolved, list) and resolved else {}
        return {name: _typed(value, inner.get(name), name) for name, value in given.items()}
    if given is None:
        return ARGUMENTS[key].word or "none" if key in ARGUMENTS else "none"
    meant = isinstance(given, str) and resolved is not None and not isinstance(resolved, Mapping)
    return resolved if meant else given


def _lines(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the lines of a table: its values, then the tables in it."""
    inner = {key: one for key, one in table.items() if _is_table(one)}
    for key, value in table.items():
        if key not in inner:
            yield f"{_key(key)} = {_value(value)}"
    for key, value in inner.items():
        name = ".".join(map(_key, (*path, key)))
        for one in value if isinstance(value, list) else [value]:
            yield ""
            yield f"[[{name}]]" if isinstance(value, list) else f"[{name}]"
            yield from _lines(one, (*path, key))


def _is_table(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(one, Mapping) for one in value)
    return isinstance(value, Mapping)


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _text(text)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    raise FsfError(f"{value!r} has no form in a configuration file")
