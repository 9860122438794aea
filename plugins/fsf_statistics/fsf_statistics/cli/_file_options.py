"""Options for files of accuracies, which contain no tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["file_options"]

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--layout",
        metavar="PARTS",
        help="What each part of a path below a folder means: tasks, method or -, joined by /.  "
        "[default: tasks/method/method/tasks]",
    ),
    click.option(
        "--scope",
        type=click.Choice(["open", "closed"]),
        metavar="open|closed",
        default="closed",
        show_default=True,
        help="Scope of the tasks in files of accuracies. open: no image appears in two tasks, and "
        "intervals are about the data's distribution; closed: images recur, or you do not know.",
    ),
    click.option(
        "--images",
        type=click.IntRange(min=1),
        metavar="N",
        help="Number of distinct images in all tasks of a file, shown with intervals.  "
        "[default: unknown]",
    ),
    click.option(
        "--unit",
        type=click.Choice(["auto", "percent", "share"]),
        metavar="auto|percent|share",
        default="auto",
        show_default=True,
        help="Unit of the accuracies in files. auto: percent if values are above 1; what may be a "
        "mixture is refused.",
    ),
)


def file_options(function: F) -> F:
    """Add ``--layout``, ``--scope``, ``--images`` and ``--unit``."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
