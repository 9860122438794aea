"""What a benchmark adds to planned experiments: checked overrides, and results over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fsframework.api.overrides import Override
from fsframework.api.running import Runs, load_run
from fsframework.api.sweeps import Planned
from fsframework.errors import OptionError, close_matches
from fsframework.values import ExperimentDescription, ExperimentResult

__all__ = ["check_overrides", "joined"]


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
        for key, values in override.conditions.items():
            if key not in tags:
                raise OptionError(
                    f"overrides, number {number}: unknown key {key!r}{close_matches(key, tags)}; "
                    f"conditions are {', '.join(tags)}, and options belong below set"
                )
            unknown = [value for value in values if value.partition(":")[0] not in known]
            if key == "method" and unknown:
                raise OptionError(
                    f"overrides, number {number}: unknown method {unknown[0]!r}"
                    f"{close_matches(unknown[0], known)}"
                )


def joined(planned: Planned, results: Sequence[ExperimentResult]) -> ExperimentResult:
    """Return one result for an experiment that was run with several training seeds.

    Its estimates are over seeds and tasks, its folder is that of the first run. It has no answers
    to tasks, which are those of single models.

    Args:
        planned: the experiment.
        results: of each seed; if one failed, so has the whole.
    """
    if len(results) == 1:
        return replace(results[0], description=planned.experiment)
    for result in results:
        if result.reason:
            return replace(result, description=planned.experiment)
    first = results[0]
    [group] = Runs(load_run(one.folder) for one in results if one.folder is not None).over_seeds()
    told = (note for one in results for note in one.notes)
    return replace(
        first,
        description=planned.experiment,
        reused=all(one.reused for one in results),
        estimates=group.estimates,
        notes=tuple(dict.fromkeys((*told, *group.notes))),
        load_outcomes=None,
        other_seeds=tuple(one.folder for one in results[1:] if one.folder is not None),
    )
