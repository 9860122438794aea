"""Labels of the data sets in a paper."""

from __future__ import annotations

from collections.abc import Sequence

from fsframework.errors import OptionError, argument
from fsframework.interfaces import Labelled, Selection

__all__ = ["check_distinct", "spelt_label"]


def spelt_label(asked: Labelled, known: Sequence[str]) -> str | None:
    """Return a label in the paper's spelling, ``None`` if the paper does not have it.

    >>> spelt_label(Labelled("folder:birds", "cub-200"), ("miniImageNet", "CUB-200"))
    'CUB-200'
    """
    return next((name for name in known if name.lower() == asked.label.lower()), None)


def check_distinct(selection: Selection) -> None:
    """Check that no data set is given twice.

    Raises:
        OptionError: one is given twice.
    """
    values = [asked.value for asked in selection.datasets]
    for value in values:
        if values.count(value) > 1:
            raise OptionError(f"{argument('dataset', value)} is given twice")
