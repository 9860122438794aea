"""What a benchmark adds to planned experiments: checked overrides, and results over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fsf_benchmarks.interfaces import ExperimentDescription, ExperimentResult
from fsf_tools.grids import Override
from fsf_tools.sweeps import Planned, Result
from fsframework.api.running import Run, Runs
from fsframework.errors import OptionError, close_matches

__all__ = ["check_overrides", "joined", "result_of"]


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


def result_of(planned: Planned, result: Result) -> ExperimentResult:
    """Return what came of a planned experiment, which is about an ``ExperimentDescription``."""
    assert planned.resolved is not None, "experiments of benchmarks are resolved"
    options, run = planned.resolved.options, result.run
    if run is None:
        return ExperimentResult(description=planned.about, options=options, reason=result.reason)
    record = run.record
    return ExperimentResult(
        description=planned.about,
        # Options such as statistics are those asked for now, not those of the stored run.
        options={**options, **run.options[0], "level": options["level"]},
        folder=run.folder,
        fingerprint=record.fingerprint,
        data_fingerprint=record.digests.get("data", ""),
        reused=run.reused,
        trained=bool(record.training.history),
        n_tasks={arm: one.n_tasks for arm, one in record.arms.items()},
        estimates=run.estimates,
        notes=record.notes,
        cautions=record.cautions,
        load_outcomes=lambda: run.outcomes,
    )


def joined(planned: Planned, results: Sequence[Result]) -> ExperimentResult:
    """Return one result for an experiment that was run with several training seeds.

    Its estimates are over seeds and tasks, its folder is that of the first run. It has no answers
    to tasks, which are those of single models.

    Args:
        planned: the experiment.
        results: of each seed; if one failed, so has the whole.
    """
    runs: list[Run] = []
    for result in results:
        if result.run is None:
            return result_of(planned, result)
        runs.append(result.run)
    first = result_of(planned, results[0])
    if len(runs) == 1:
        return first
    [group] = Runs(runs).over_seeds()
    told = (note for run in runs for note in run.record.notes)
    return replace(
        first,
        reused=all(run.reused for run in runs),
        estimates=group.estimates,
        notes=tuple(dict.fromkeys((*told, *group.seed_notes))),
        load_outcomes=None,
        other_seeds=tuple(run.folder for run in runs[1:]),
    )
