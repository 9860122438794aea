"""Labels of the data sets in a paper."""

from __future__ import annotations

from collections.abc import Sequence

from fsf_benchmarks.interfaces import Labelled, Selection
from fsframework.errors import OptionError, argument

__all__ = ["check_distinct", "recipe_for", "spelt_label"]


def spelt_label(asked: Labelled, known: Sequence[str]) -> str | None:
    """Return a label in the paper's spelling, ``None`` if the paper does not have it.

    >>> spelt_label(Labelled("folder:birds", "cub-200"), ("miniImageNet", "CUB-200"))
    'CUB-200'
    """
    return next((name for name in known if name.lower() == asked.label.lower()), None)


def recipe_for(selection: Selection, paper_name: str) -> dict[str, str]:
    """Return the argument that chooses the recipe for a data set by its name in the paper.

    The data set may have another name here, such as a folder. Empty if no recipe was asked for, or
    one for a named data set.

    >>> recipe_for(Selection(options={"recipe": "fewstab"}), "CUB-200")
    {'recipe': 'fewstab:CUB-200'}
    """
    recipe = selection.options.get("recipe")
    if recipe is None or str(recipe) == "none" or ":" in str(recipe):
        return {}
    return {"recipe": f"{recipe}:{paper_name}"}


def check_distinct(selection: Selection) -> None:
    """Check that no data set is given twice.

    Raises:
        OptionError: one is given twice.
    """
    values = [asked.value for asked in selection.datasets]
    for value in values:
        if values.count(value) > 1:
            raise OptionError(f"{argument('dataset', value)} is given twice")
