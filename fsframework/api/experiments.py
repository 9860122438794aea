"""Experiments that are described and checked before they run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from fsframework.api.session import Session, open_session
from fsframework.components.options import Given
from fsframework.engine.configuration import Experiment, resolve_experiment
from fsframework.engine.options import (
    ALLOWANCES,
    ARGUMENTS,
    LISTS,
    OF_RUN,
    SEEDS,
    check_keys,
    given_tree,
    merged,
    read_config,
)
from fsframework.engine.progress import Reporter
from fsframework.engine.stages import stage_digests
from fsframework.errors import OptionError, argument

if TYPE_CHECKING:
    from fsframework.api.arguments import Arguments

__all__ = [
    "ALLOWANCES",
    "ARGUMENTS",
    "LISTS",
    "OF_RUN",
    "SEEDS",
    "Description",
    "Experiment",
    "check_keys",
    "check_words_source",
    "describe",
    "given_tree",
    "merged",
    "read_seeds",
    "resolved",
    "stage_digests",
    "tree_of_call",
]

_MOST_SEEDS = 100_000

_ORIGIN = "call"
"""Origin of values given to a call of the API."""


@dataclass(frozen=True)
class Description:
    """What a run would do: every option with its value and its origin.

    Args:
        experiment: resolved.
        session: its plugins, folders and progress reporter.
    """

    experiment: Experiment
    session: Session

    @property
    def options(self) -> Mapping[str, Any]:
        """Resolved values, as in a configuration file."""
        return self.experiment.options

    @property
    def origins(self) -> Mapping[str, Any]:
        """The origin of each value, in the same shape."""
        return self.experiment.origins

    def tasks(self) -> tuple[str, tuple[str, ...]]:
        """Open the data and draw the tasks, as a run does first; train and evaluate nothing.

        Returns:
            Split, classes, ways, shots and queries of the tasks, as a run prints them, and notes:
            what the data decide where the arguments leave it open, and what a reader of the
            numbers must know.

        Raises:
            FsfError: the run would stop with this message.
        """
        from fsframework.engine.preparation import prepare, told_tasks

        found = prepare(self.experiment, replace(self.session, reporter=Reporter()))
        return told_tasks(found), found.notes

    def __repr__(self) -> str:
        parts = (f"{role} {c.called}" for role, c in self.experiment.roles.items())
        return f"<Description: {', '.join(parts)}>"


def tree_of_call(
    arguments: Mapping[str, Any], config: str | Path | Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the arguments of a call as a tree of ``Given``, over those of a configuration.

    Args:
        arguments: by name; see ``fsframework.run``.
        config: a TOML file, or a tree of the same shape; the arguments take precedence over it.
    """
    check_words_source(arguments.get("attributes"))
    allowed = {name: arguments.get(name) for name in ALLOWANCES}
    if isinstance(config, Mapping):
        below = given_tree(config, _ORIGIN)
    else:
        below = {} if config is None else read_config(Path(config), **allowed)
    given = {name: value for name, value in arguments.items() if name != "allow_code"}
    return merged(given_tree(given, _ORIGIN), below)


def check_words_source(source: Any) -> None:
    """Check that words are given by a file or a column.

    Raises:
        OptionError: they are not; the message says how words in memory become a file.
    """
    if not isinstance(source, str | Path | Given | None):
        raise OptionError(
            f"attributes must be a .csv or .parquet file or column:NAME, not a value of the type "
            f"{type(source).__name__}; of words in memory, AttributeTable.from_words(keys, "
            'words).save("words.parquet") makes a file'
        )


def describe(
    *,
    config: str | Path | Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
    runs_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    progress: bool = True,
    **arguments: Unpack[Arguments],
) -> Description:
    """Describe what ``fsframework.run`` would do with the same arguments; run nothing.

    Raises:
        OptionError: an argument is unknown, of the wrong type or out of range.
        PluginError: a plugin cannot be loaded.

    >>> import fsframework as fsf
    >>> fsf.describe(method="renet", shot=1).options["sampler"]["n_shot"]
    1
    """
    session = open_session(
        runs_dir=runs_dir, cache_dir=cache_dir, plugins=plugins, progress=progress
    )
    return Description(resolved(tree_of_call(arguments, config), session), session)


def resolved(tree: Mapping[str, Any], session: Session, **arguments: Any) -> Experiment:
    """Return the experiment of a tree of ``Given``; arguments take precedence over the tree.

    Raises:
        OptionError: an option is unknown, of the wrong type or out of range.
        PluginError: a plugin cannot be loaded.
    """
    return resolve_experiment(session.registry, merged(given_tree(arguments, _ORIGIN), tree))


def read_seeds(given: Any) -> tuple[int, ...]:
    """Return a list of seeds, each once.

    Args:
        given: numbers, and texts with numbers and ranges; one or several.

    Raises:
        OptionError: one is not a number, a range is empty, or a seed appears twice.

    >>> read_seeds("0-2,7"), read_seeds(range(3))
    ((0, 1, 2, 7), (0, 1, 2))
    """
    several = [given] if isinstance(given, (int, str)) else list(given)
    called, found = argument("seeds", given), list[int]()
    for part in ",".join(map(str, several)).split(",") if several else ():
        if (match := re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", part.strip())) is None:
            raise OptionError(
                f"{called}: {part!r} is neither a whole number from 0 nor a range such as 0-9"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if not 0 <= last - first < _MOST_SEEDS:
            raise OptionError(f"{called}: the range {part} must have 1 to {_MOST_SEEDS:,} seeds")
        found += range(first, last + 1)
    for seed, times in Counter(found).items():
        if times > 1:
            raise OptionError(f"{called}: {seed} appears {times} times")
    return tuple(found)
