"""What several commands on data sets print."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from fsframework.api.components import Registry
from fsframework.api.session import open_session
from fsframework.interfaces import About

__all__ = ["class_counts", "print_problems", "run_command", "words_of_pixels"]

_MOST_PROBLEMS = 20
_OFFLINE_DETECTOR = "appearance"
"""A detector that needs only the images, suggested where it is installed."""


def class_counts(classes: int, images: int) -> str:
    """Return the counts as text; 0 images means that their number is not published.

    >>> class_counts(1, 20), class_counts(64, 0)
    ('1 class, 20 images', '64 classes')
    """
    text = f"{classes:,} {'class' if classes == 1 else 'classes'}"
    return f"{text}, {images:,} {'image' if images == 1 else 'images'}" if images else text


def print_problems(problems: Sequence[str], about: About | None, published: str | None) -> None:
    """Print what is wrong with data that can be used, or that nothing is wrong.

    Args:
        about: what is published about the data, if anything.
        published: message if the counts are those published; ``None`` if none are published.
    """
    for problem in problems[:_MOST_PROBLEMS]:
        print(f"problem: {problem}")
    if len(problems) > _MOST_PROBLEMS:
        print(f"and {len(problems) - _MOST_PROBLEMS} more problems (fsf data check lists all)")
    if problems:
        note = "" if about is None else "; every run on it notes this"
        print(f"it can be used as it is{note}")
    elif about is not None and published is None:
        print("no published counts to compare with")
    elif about is not None:
        print(f"{published}: its counts are those published")


def run_command(dataset: str, *, words: bool, plugins: Sequence[Path] = ()) -> str:
    """Return an ``fsf run`` command for a data set that needs no download.

    Args:
        words: whether its images have words; otherwise they are detected.
    """
    found = f"fsf run --dataset {shlex.quote(dataset)}"
    if words:
        return found
    detected = words_of_pixels(open_session(plugins=plugins, progress=False).registry)
    return found + (f" --detector {detected['detector']}" if detected else " --sampler random")


def words_of_pixels(registry: Registry) -> dict[str, str]:
    """Return the arguments of a detector that needs only the images; empty if none is installed."""
    known = _OFFLINE_DETECTOR in registry.names("detector")
    return {"detector": _OFFLINE_DETECTOR} if known else {}
