"""The arms of an experiment: ordered mappings from their names to task sets or outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsframework.errors import DataError, OptionError, argument, close_matches
from fsframework.values._arrays import ByName
from fsframework.values.outcomes import Outcomes
from fsframework.values.tasks import TaskSet

__all__ = ["ArmOutcomes", "Arms", "Contrast", "label_in_arms"]


def label_in_arms(
    statistic: str, arms: Sequence[str], symbols: Mapping[str, str], *, only: bool = False
) -> str:
    """Return the name of a measure in tables, such as ``wAcc-R``; that of a gap states its terms.

    Args:
        statistic: its name in tables.
        arms: none, one, or the two of a gap, the minuend first.
        symbols: what tables print for an arm; an arm without a symbol is printed by its name.
        only: whether there is no other arm, so that one without a symbol is not printed.

    >>> label_in_arms("wAcc", ["random", "biased"], {"random": "R", "biased": "A"})
    'wAcc gap = wAcc-R − wAcc-A'
    """
    if not arms or (only and not symbols.get(arms[0])):
        return statistic
    parts = [f"{statistic}-{symbols.get(arm) or arm}" for arm in arms]
    return parts[0] if len(parts) == 1 else f"{statistic} gap = {parts[0]} − {parts[1]}"


@dataclass(frozen=True)
class Contrast:
    """Two arms that are compared: the control and the arm under test.

    Args:
        control: name of the control arm.
        tested: name of the other arm; a gap is positive where it is worse than the control.
        paired: whether task ``t`` of one arm and task ``t`` of the other are a pair.
    """

    control: str
    tested: str
    paired: bool = False

    @property
    def arms(self) -> tuple[str, str]:
        """Both names, the control first."""
        return self.control, self.tested


class Arms(ByName[TaskSet]):
    """The tasks of each arm, the control first where there is one.

    Args:
        tasks: task sets by name of the arm.
        contrast: the two arms that are compared; ``None`` where there is no comparison.
        symbols: what tables print after a statistic's name for an arm, such as ``R`` in wAcc-R;
            an arm without a symbol is printed by its name, or not at all where it is the only one.

    Raises:
        DataError: the contrast names an arm that is missing.
    """

    noun = "arm"

    def __init__(
        self,
        tasks: Mapping[str, TaskSet],
        contrast: Contrast | None = None,
        symbols: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(tasks)
        missing = [name for name in (contrast.arms if contrast else ()) if name not in self]
        if missing:
            raise DataError(f"the contrast names the arm {missing[0]!r}, which has no tasks")
        self.contrast = contrast
        self.symbols = dict(symbols or {})

    @property
    def tested(self) -> TaskSet:
        """The tasks under test: those of the arm that is not the control."""
        return self[self.contrast.tested] if self.contrast else self[list(self)[-1]]

    def of(self, arm: str | None = None) -> TaskSet:
        """Return the tasks of a named arm, by default those under test.

        Raises:
            OptionError: no arm has this name.
        """
        if arm is None:
            return self.tested
        if arm not in self:
            raise OptionError(
                f"{argument('arm', arm)} must be one of {', '.join(self)}{close_matches(arm, self)}"
            )
        return self[arm]

    def __repr__(self) -> str:
        arms = ", ".join(f"{name}: {tasks!r}" for name, tasks in self.items())
        return f"Arms({arms})"

    def _repr_html_(self) -> str:
        from fsframework._tables import html_table

        rows = [
            (name, f"{len(t):,}", str(t.n_way), str(t.n_shot), str(t.n_query), f"{t.n_images:,}")
            for name, t in self.items()
        ]
        return html_table(("arm", "tasks", "way", "shot", "queries per class", "images"), rows)

    def save(self, folder: str | Path) -> None:
        """Write ``tasks-ARM.safetensors`` for each arm into a folder."""
        for name, tasks in self.items():
            tasks.save(Path(folder) / f"tasks-{name}.safetensors")


class ArmOutcomes(ByName[Outcomes]):
    """The outcomes of a method in each arm, with the tasks.

    Args:
        outcomes: outcomes by name of the arm.
        arms: the tasks, which include every arm of ``outcomes``.

    Raises:
        DataError: outcomes belong to other tasks, or to an arm without tasks.
    """

    noun = "arm"

    def __init__(self, outcomes: Mapping[str, Outcomes], arms: Arms) -> None:
        super().__init__(outcomes)
        for name, answered in self.items():
            if name not in arms:
                raise DataError(f"there are outcomes of the arm {name!r}, which has no tasks")
            if answered.task_digest != arms[name].digest:
                raise DataError(f"the outcomes of the arm {name!r} belong to other tasks")
        self.arms = arms

    def __repr__(self) -> str:
        arms = ", ".join(f"{name}: {outcomes!r}" for name, outcomes in self.items())
        return f"ArmOutcomes({arms})"
