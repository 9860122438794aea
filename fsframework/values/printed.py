"""What publications print, and for which cell of their tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fsframework.values.quantities import Quantity

__all__ = ["Cell", "PrintedValue"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What a run measures, as far as tables of publications say it.

    Args:
        method: as users name it, such as ``protonet`` or ``ifsl:maml``.
        backbone: likewise.
        dataset: name of the data set without its options, such as ``cub`` or ``folder``.
        sampler: its name and every option, in the shape of a configuration file.
        detector: of the words, as users name it; empty where none was used.
        recipe: that was asked for, such as ``fewstab:CUB-200``, which names the data set of the
            publication; empty for none.
    """

    method: str
    backbone: str
    dataset: str
    sampler: Mapping[str, Any] = field(default_factory=dict)
    detector: str = ""
    recipe: str = ""

    def is_of(self, names: Mapping[str, str]) -> str:
        """Return how a publication spells the data set; empty if it does not have it.

        Args:
            names: of its data sets: the spelling by name of the data set here.

        >>> named = {"method": "ncc", "backbone": "conv64f", "dataset": "folder"}
        >>> cell = Cell(**named, recipe="fewstab:CUB-200")
        >>> cell.is_of({"cub": "CUB-200"})
        'CUB-200'
        """
        said = self.recipe.partition(":")[2].lower()
        asked = (spelt for spelt in names.values() if spelt.lower() == said)
        return names.get(self.dataset) or next(asked, "")


@dataclass(frozen=True)
class PrintedValue:
    """A value that a publication prints for the cell of a run.

    Args:
        measure: name of the estimate that it belongs to, such as ``wacc-biased`` or ``wacc-gap``.
        value: as printed; shares in percent.
        source: the publication, as it is called in a sentence; ``table`` its table.
        apart: what its cell has that the run has not, in a few words, such as ``words by
            ViT-GPT2``; empty where nothing is known to differ.
    """

    measure: str
    value: Quantity
    source: str
    table: str
    apart: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        known = self.value.has_interval
        return {
            "measure": self.measure,
            "value": self.value.value,
            "half_width": self.value.half_width if known else None,
            "source": self.source,
            "table": self.table,
            "apart": self.apart,
        }
