"""Options of some experiments of a benchmark: the list ``overrides`` of a configuration file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsframework.api.planned import plain_tree
from fsframework.errors import OptionError, close_matches
from fsframework.values import ExperimentDescription

__all__ = ["Override", "check_overrides", "read_overrides"]


@dataclass(frozen=True)
class Override:
    """Options of the experiments that have certain tags.

    Args:
        conditions: required value by name of a tag; all must hold.
        options: a tree of options.
    """

    conditions: Mapping[str, str]
    options: Mapping[str, Any]

    def holds_for(self, experiment: ExperimentDescription) -> bool:
        """Whether an experiment has the tags; a data set also matches by its label."""
        return all(value in _values(experiment, key) for key, value in self.conditions.items())


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
        conditions = {key: str(plain_tree(v)) for key, v in table.items() if key != "set"}
        found.append(Override(conditions, options))
    return tuple(found)


def check_overrides(
    overrides: Sequence[Override],
    experiments: Iterable[ExperimentDescription],
    methods: Sequence[str],
) -> None:
    """Check that conditions refer to existing tags and methods.

    Args:
        overrides: to check.
        experiments: of the benchmark.
        methods: names of installed methods.

    Raises:
        OptionError: a condition names an unknown tag or method.
    """
    experiments = tuple(experiments)
    tags = sorted({key for one in experiments for key in one.tags})
    known = {*methods, *(str(one.tags.get("method", "")) for one in experiments)} - {""}
    for number, override in enumerate(overrides, start=1):
        for key, value in override.conditions.items():
            if key not in tags:
                raise OptionError(
                    f"overrides, number {number}: unknown key {key!r}{close_matches(key, tags)}; "
                    f"conditions are {', '.join(tags)}, and options belong below set"
                )
            if key == "method" and value.partition(":")[0] not in known:
                raise OptionError(
                    f"overrides, number {number}: unknown method {value!r}"
                    f"{close_matches(value, known)}"
                )
