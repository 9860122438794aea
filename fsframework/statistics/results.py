"""Results of methods on their tasks, from runs or elsewhere, ready to be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fsframework.records import RunRecord
from fsframework.values import Arms, Contrast, Outcomes

__all__ = ["MethodResult"]


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
