"""Options of some experiments, and experiments left out: lists of a configuration file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsframework.api.grids import shown
from fsframework.components.options import plain_tree
from fsframework.errors import OptionError, close_matches
from fsframework.pipeline.experiment.options import given_tree
from fsframework.values import ExperimentDescription

__all__ = ["Override", "check_conditions", "read_excluded", "read_overrides"]


@dataclass(frozen=True)
class Override:
    """Options of the experiments that have certain tags.

    Args:
        conditions: values by name of a tag; one of each must hold.
        options: a tree of options.
    """

    conditions: Mapping[str, tuple[str, ...]]
    options: Mapping[str, Any]

    def holds_for(self, experiment: ExperimentDescription) -> bool:
        """Whether an experiment has the tags; a data set also matches by its label."""
        return all(
            _values(experiment, key).intersection(values) for key, values in self.conditions.items()
        )


def _values(experiment: ExperimentDescription, key: str) -> set[str]:
    tags = experiment.tags
    values = {str(tags[key])} if key in tags else set()
    return values | ({str(tags["label"])} if key == "dataset" and "label" in tags else set())


def read_overrides(raw: Any) -> tuple[Override, ...]:
    """Read the list.

    Raises:
        OptionError: it is not a list of overrides; the message gives the override's number.
    """
    if not isinstance(raw, list):
        raise OptionError("overrides must be a list of tables: [[overrides]]")
    found = []
    for number, table in enumerate(raw, start=1):
        options = table.get("set")
        if not isinstance(options, Mapping):
            raise OptionError(
                f"overrides, number {number}: sets no option; put options below set, as in "
                "[overrides.set.training]"
            )
        found.append(Override(_conditions(table), given_tree(options, "overrides")))
    return tuple(found)


def read_excluded(raw: Any) -> tuple[Override, ...]:
    """Read the list of conditions of experiments that are left out.

    Raises:
        OptionError: it is not a list of tables with conditions.
    """
    if not isinstance(raw, list):
        raise OptionError("exclude must be a list of tables: [[exclude]]")
    found = []
    for number, table in enumerate(raw, start=1):
        if not table or "set" in table:
            raise OptionError(
                f"exclude, number {number}: must have conditions only, such as method = 'maml'"
            )
        found.append(Override(_conditions(table), {}))
    return tuple(found)


def _conditions(table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the values of each condition, which may be a list."""
    found = {}
    for key, node in table.items():
        if key != "set":
            value = plain_tree(node)
            several = value if isinstance(value, (list, tuple)) else [value]
            found[key] = tuple(map(shown, several))
    return found


def check_conditions(
    overrides: Sequence[Override],
    excluded: Sequence[Override],
    axes: Mapping[str, Sequence[str]],
) -> None:
    """Check that conditions refer to axes of a grid and to values of theirs.

    Args:
        overrides: options of some experiments.
        excluded: experiments left out.
        axes: values of each axis, as texts.

    Raises:
        OptionError: a condition names another axis or value.
    """
    for what, listed in (("overrides", overrides), ("exclude", excluded)):
        for number, one in enumerate(listed, start=1):
            for key, values in one.conditions.items():
                if key not in axes:
                    raise OptionError(
                        f"{what}, number {number}: {key!r} is not an axis of the grid"
                        f"{close_matches(key, axes)}; its axes are {', '.join(axes)}"
                    )
                for value in values:
                    if value not in axes[key]:
                        raise OptionError(
                            f"{what}, number {number}: {value!r} is not a value of {key} in the "
                            f"grid{close_matches(value, axes[key])}; its values are "
                            f"{', '.join(axes[key])}"
                        )
