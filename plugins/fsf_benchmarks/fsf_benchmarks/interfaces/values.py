"""What publications print for which cell of their tables, and what experiments say together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from fsf_benchmarks.interfaces.experiments import ExperimentResult
from fsf_reports.values import Quantity

__all__ = ["Answer", "Cell", "PrintedValue"]


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


@dataclass(frozen=True)
class Answer:
    """What many experiments say together: some are compared in a table, the rest is told in words.

    Args:
        row_names: what the names of a row are, such as ``method`` and ``shot``.
        rows: names and results that are compared, in order; a run may appear again.
        statistic: whose values, and gap where there are two arms, are compared; empty for the last
            one of the runs.
        sentences: what was found besides.
    """

    row_names: tuple[str, ...] = ()
    rows: tuple[tuple[tuple[str, ...], ExperimentResult], ...] = ()
    statistic: str = ""
    sentences: tuple[str, ...] = ()

    @classmethod
    def comparing(
        cls,
        results: Iterable[ExperimentResult],
        names: Mapping[str, Callable[[ExperimentResult], Any]],
        statistic: str = "",
        sentences: Iterable[str] = (),
    ) -> Self:
        """Return an answer in which results are compared.

        Args:
            results: in the order of the rows.
            names: what each name of a row is, and how it is found. Those that are equal for all
                results are left out, but the first.
            statistic: as in ``Answer``; ``sentences`` likewise.

        >>> from fsf_benchmarks.interfaces import ExperimentDescription
        >>> runs = [ExperimentResult(description=ExperimentDescription(name, {})) for name in "ab"]
        >>> names = {"method": lambda run: run.description.name, "shot": lambda run: 1}
        >>> Answer.comparing(runs, names).row_names
        ('method',)
        """
        found = list(results)
        if not found:
            return cls(sentences=tuple(sentences))
        cells = {head: [str(name(one)) for one in found] for head, name in names.items()}
        heads = [head for i, head in enumerate(cells) if i == 0 or len(set(cells[head])) > 1]
        lines = zip(*(cells[head] for head in heads), strict=True)
        rows = tuple(zip(lines, found, strict=True))
        return cls(tuple(heads), rows, statistic, tuple(sentences))
