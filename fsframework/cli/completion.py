"""Completion of names of plugins, runs and data sets in the shell."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from fsframework.components.registry import Registry
from fsframework.errors import FsfError

__all__ = ["added_names", "plugin_names", "run_names"]

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
"""A function for click's ``shell_complete``; none of those below imports a plugin."""


def _completing(names: Callable[[click.Context], Iterable[str]]) -> Complete:
    """Return a function that completes names, which may depend on what was given before."""

    def complete(
        context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        del parameter
        found = sorted(name for name in set(names(context)) if name.startswith(incomplete))
        return [CompletionItem(name) for name in found]

    return complete


def plugin_names(kind: str | None = None) -> Complete:
    """Return a function that completes the name of a plugin, or of an added data set.

    Args:
        kind: of the plugins; by default that given with ``--kind``, or any.
    """

    def names(context: click.Context) -> Iterable[str]:
        added = _added(context) if kind == "dataset" else ()
        return [*Registry().names(kind or context.params.get("kind")), *added]

    return _completing(names)


def _added(context: click.Context) -> set[str]:
    from fsframework.components.catalogue import read_added

    try:
        return set(read_added(context.params.get("data_dir")))
    except FsfError:
        return set()  # the commands that read a damaged list report it


added_names = _completing(_added)
"""Completes the name of a data set that was added with ``fsf data add``."""


def run_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a run in the folder of runs, or the path of a file or folder."""
    del parameter
    folder = context.params.get("runs_dir") or Path(os.environ.get("FSF_RUNS") or "runs")
    names = {record.parent.name for record in folder.glob("*/run.json")}
    found = [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]
