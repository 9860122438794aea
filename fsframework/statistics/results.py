"""Results of methods on their tasks, from runs or elsewhere, ready to be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsframework.records import RunRecord
from fsframework.values import Arms, Contrast, Outcomes

__all__ = [
    "MethodResult",
    "cautions_of",
]


@dataclass(frozen=True, eq=False)
class MethodResult:
    """A method with its answers on its tasks.

    Args:
        label: its name in tables; unique among those compared.
        outcomes: by name of the arm.
        arms: the tasks; ``None`` if only accuracies of whole tasks are known.
        task_set: name of tasks that are known only by a name.
        class_sizes: images of each class of the data, for intervals over images or classes.
        source: run folder or file.
        records: of its runs, one per training seed; empty if it is from no run.
        other_seeds: outcomes of models that were trained with other seeds, by name of the arm, on
            the same tasks.
    """

    label: str
    outcomes: Mapping[str, Outcomes]
    arms: Arms | None = None
    task_set: str = ""
    class_sizes: tuple[int, ...] = ()
    source: Path | None = None
    records: tuple[RunRecord, ...] = ()
    other_seeds: tuple[Mapping[str, Outcomes], ...] = ()

    @property
    def models(self) -> tuple[Mapping[str, Outcomes], ...]:
        """Outcomes of each of its models by name of the arm."""
        return (self.outcomes, *self.other_seeds)

    @property
    def contrast(self) -> Contrast | None:
        """The two arms that are compared, if both have outcomes."""
        found = None if self.arms is None else self.arms.contrast
        return found if found and all(arm in self.outcomes for arm in found.arms) else None

    def tasks_called(self, arms: Iterable[str]) -> str:
        """Return the name of its tasks of these arms."""
        return " and ".join(self._called(arm) for arm in arms)

    def _called(self, arm: str) -> str:
        digest = self.outcomes[arm].task_digest[:8]
        if self.arms is None:
            return self.task_set or digest
        tasks = self.arms[arm]
        return f"{tasks.sampler} {tasks.n_way}-way {tasks.n_shot}-shot {digest}"


def cautions_of(records: Mapping[str, Sequence[RunRecord]]) -> dict[str, tuple[str, ...]]:
    """Return by label what to print under a table of runs.

    That is their own cautions; that nothing was trained, where others are of trained weights; and
    where they were computed with different numbers of PyTorch threads and anything was trained,
    these numbers: sums of floating-point numbers depend on how they are split among threads, and a
    training amplifies the difference.

    Args:
        records: of the runs of each label.
    """
    every = [record for own in records.values() for record in own]
    threads = {record.environment.threads for record in every} - {0}
    differ = len(threads) > 1 and any(record.training.history for record in every)
    trained = any(record.data.seen for record in every)
    found = {}
    for label, own in records.items():
        said = [caution for record in own for caution in record.cautions]
        if trained and any(record.method and not record.data.seen for record in own):
            said.append("nothing was trained or loaded; other methods here have trained weights")
        said += [
            f"computed with {n} PyTorch thread{'s' if n > 1 else ''}; other numbers of threads "
            "train slightly different weights"
            for n in (record.environment.threads for record in own)
            if n and differ
        ]
        found[label] = tuple(dict.fromkeys(said))
    return found
