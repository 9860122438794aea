"""Labels of data sets that a paper has."""

from __future__ import annotations

from collections.abc import Sequence

from fsframework.errors import OptionError, argument
from fsframework.interfaces import Labelled, Selection

__all__ = ["check_distinct", "spelt_label"]


def spelt_label(asked: Labelled, known: Sequence[str]) -> str | None:
    """Return a label in the paper's spelling, ``None`` where the paper does not have it.

    >>> spelt_label(Labelled("folder:birds", "cub-200"), ("miniImageNet", "CUB-200"))
    'CUB-200'
    """
    return next((name for name in known if name.lower() == asked.label.lower()), None)


def check_distinct(selection: Selection) -> None:
    """See to it that no data set is asked for twice.

    Raises:
        OptionError: one is.
    """
    values = [asked.value for asked in selection.datasets]
    for value in values:
        if values.count(value) > 1:
            raise OptionError(f"{argument('dataset', value)} is given twice")
