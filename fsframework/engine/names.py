"""The names of classes that methods are told: the classes' own, or others as a control."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fsframework.engine.options import Settings
from fsframework.errors import DataError, OptionError, argument, close_matches
from fsframework.values import ImagePool, Texts, read_csv

if TYPE_CHECKING:
    from fsframework.interfaces.backbone import Backbone
    from fsframework.interfaces.method import FewShotMethod

__all__ = ["check_choice", "demand_text", "names_note", "told_names"]

_CHOICES = ("own", "shuffled", "random")
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
_LENGTH = 4


def demand_text(
    method: FewShotMethod, backbone: Backbone, called: tuple[str, str], choice: str = "own"
) -> None:
    """Check that a backbone reads text where a method needs that.

    Args:
        called: how messages name the two.
        choice: of the names of classes.

    Raises:
        OptionError: it reads none; or names are chosen, but the method sees none.
    """
    if not method.needs_class_names and choice != "own":
        raise OptionError(
            f"{argument('class_names', choice)} does nothing: {called[0]} never sees a class name"
        )
    if method.needs_text and not backbone.reads_text:
        raise OptionError(
            f"{called[0]} needs a backbone that reads text, and {called[1]} reads none; use one "
            f"that does, such as {argument('backbone', 'clip:MODEL')}"
        )


def check_choice(choice: str) -> None:
    """Check the choice of class names before any data are opened.

    Raises:
        OptionError: it is none of those known.
        DataError: it is a file that cannot be read, or a row of it is wrong whatever the data.
    """
    if choice.endswith(".csv"):
        _read(Path(choice), None)
    elif choice not in _CHOICES:
        raise OptionError(
            f"{argument('class_names', choice)}{close_matches(choice, _CHOICES)}: must be "
            f"{', '.join(_CHOICES)} or a CSV file with the columns class and name"
        )


def told_names(
    pool: ImagePool, settings: Settings, known: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return the name that stands for each class of a pool.

    Shuffled names move along one random cycle through all classes, so that no class keeps its own.
    Random names are four syllables of a consonant and a vowel.

    Args:
        settings: the choice, and the seed of the tasks, which also shuffles and draws names.
        known: classes that a file may name, every one of the pool's exactly once; by default a
            class that the file does not name keeps its own name.

    Raises:
        DataError: the file cannot be read, or a row or a class is wrong or missing.

    >>> pool = ImagePool(("a", "b", "c"), np.arange(3), ("cat", "dog", "owl"))
    >>> told_names(pool, Settings(class_names="shuffled"))
    ('owl', 'cat', 'dog')
    """
    own, rng = pool.class_names, np.random.default_rng(settings.task_seed)
    if settings.class_names == "own":
        return own
    if settings.class_names == "shuffled":
        cycle = rng.permutation(len(own))
        given = dict(zip(cycle.tolist(), np.roll(cycle, 1).tolist(), strict=True))
        return tuple(own[given[i]] for i in range(len(own)))
    if settings.class_names == "random":
        words = own if pool.attributes is None else (*own, *pool.attributes.words)
        taken = {token for word in words for token in re.findall(r"[^\W\d_]+", word.lower())}
        number = len(own) + len(taken)
        codes = rng.choice(len(_SYLLABLES) ** _LENGTH, number, replace=False)[:, None]
        digits = codes // len(_SYLLABLES) ** np.arange(_LENGTH) % len(_SYLLABLES)
        made = ("".join(row) for row in np.array(_SYLLABLES)[digits].tolist())
        return tuple([name for name in made if name not in taken][: len(own)])
    found = _read(Path(settings.class_names), known)
    missing = [name for name in own if name not in found]
    if missing and known is not None:
        raise DataError(
            f"{settings.class_names}: no row has the class {missing[0]!r}; each of the {len(own)} "
            f"classes must have one, and {len(missing)} have none"
        )
    return tuple(found.get(name, name) for name in own)


def names_note(choice: str) -> tuple[str, ...]:
    """Return what a reader of the numbers must know about the names, if they are not the own."""
    what = {"shuffled": "the name of another class", "random": "random syllables"}
    told = f"the method was told {what.get(choice, 'the name in a file')} for each class"
    return () if choice == "own" else (f"{told} ({argument('class_names', choice)})",)


def _read(path: Path, known: Sequence[str] | None) -> dict[str, str]:
    """Read the name of each class from the columns ``class`` and ``name`` of a CSV file."""

    def demand_header(names: list[str]) -> None:
        if sorted(names) != ["class", "name"]:
            raise DataError(
                f"{path}: row 1 must name the columns class and name, not "
                f"{', '.join(names)[:200] or 'none'}"
            )

    columns, rows, wrong = read_csv(path, demand_header)
    found: dict[str, str] = {}
    cells = (Texts([columns[name]]) for name in ("class", "name"))
    known = None if known is None else Texts.of(known)
    for row, of, name in zip(rows.tolist(), *cells, strict=True):
        if of in found:
            wrong[row] = f"repeats the class {of!r}"
        elif known is not None and of not in known:
            wrong[row] = f"names the class {of!r}, which the data lack{close_matches(of, known)}"
        elif not name:
            wrong[row] = f"has an empty column name for the class {of!r}"
        found[of] = name
    if wrong:
        raise DataError(f"{path}: row {min(wrong)} {wrong[min(wrong)]}")
    return found
