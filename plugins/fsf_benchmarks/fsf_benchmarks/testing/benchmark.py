"""What every benchmark must keep; nothing is run, the results are made up."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from fsf_benchmarks.interfaces import (
    AXES,
    Answer,
    Benchmark,
    BenchmarkResults,
    Cell,
    ExperimentDescription,
    Labelled,
    PrintedValue,
    Selection,
)
from fsf_benchmarks.testing.toys import toy_benchmark_results, toy_selection
from fsf_reports.values import FigureDeclaration, Quantity, TableDeclaration
from fsframework.errors import FsfError, OptionError
from fsframework.testing import Make, NotApplicable, Suite, require

suite = Suite(Benchmark)

_NOBODY = Cell(
    method="toy-method-of-the-checks",
    backbone="toy-backbone-of-the-checks",
    dataset="toy-data-of-the-checks",
    sampler={"name": "toy-sampler-of-the-checks", "n_way": 5, "n_shot": 1, "n_query": 15},
)
"""A cell that no publication has."""


def _described(make: Make, selection: Selection) -> list[ExperimentDescription]:
    """Return the descriptions; a benchmark may need data or runs that are not here."""
    try:
        return list(make().experiments(selection))
    except FsfError as error:
        raise NotApplicable(f"it needs what is not there: {error}") from None


def _results(
    make: Make, selection: Selection | None = None, *, failed: bool = False
) -> BenchmarkResults:
    """Return made-up results of all experiments, the further ones last."""
    selection = selection or toy_selection()
    described = _described(make, selection)
    arms = make().arms
    first = toy_benchmark_results(selection, described, arms=arms, failed=failed)
    try:
        further = list(make().further_experiments(first))
    except FsfError as error:
        if failed:
            raise NotApplicable(f"nothing goes on after a failure: {error}") from None
        raise
    return toy_benchmark_results(selection, [*described, *further], arms=arms, failed=failed)


@suite.check()
def check_axes(make: Make) -> None:
    """``axes`` is a tuple of names of what a user may choose."""
    axes = make().axes
    require(isinstance(axes, tuple), f"axes must be a tuple, not {axes!r}")
    for axis in axes:
        require(axis in AXES, f"axes must be among {', '.join(AXES)}, not {axis!r}")


@suite.check()
def check_reserved(make: Make) -> None:
    """``reserved`` and ``arms`` are tuples of texts."""
    benchmark = make()
    for name, found in (("reserved", benchmark.reserved), ("arms", benchmark.arms)):
        require(isinstance(found, tuple), f"{name} must be a tuple, not {found!r}")
        for text in found:
            require(isinstance(text, str) and text, f"{name} must hold texts, not {text!r}")


@suite.check()
def check_experiments(make: Make) -> None:
    """``experiments`` gives at least one description, with plain arguments and tags."""
    found = _described(make, toy_selection())
    require(found, "it must describe at least one experiment")
    for one in found:
        require(
            isinstance(one, ExperimentDescription),
            f"it must give ExperimentDescription, not {type(one).__name__}",
        )
        for name in ("arguments", "defaults", "tags"):
            value = vars(one)[name]
            require(isinstance(value, Mapping), f"{name} of {one.name!r} must be a mapping")
            require(
                _is_plain(value), f"{name} of {one.name!r} must be texts, numbers, lists, mappings"
            )


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


@suite.check(after=[check_experiments])
def check_tags_differ(make: Make) -> None:
    """No two experiments have the same tags, by which tables find their results."""
    found = _described(make, toy_selection())
    for place, one in enumerate(found):
        for other in found[place + 1 :]:
            require(one.tags != other.tags, f"{one.name!r} and {other.name!r} have the same tags")
    for axis in make().axes:
        if any(axis in {**one.defaults, **one.arguments} for one in found):
            for one in found:
                said, done = one.tags.get(axis), one.arguments.get(axis)
                require(
                    said is None or axis not in one.defaults,
                    f"{one.name!r} has the tag {axis}={said}, which a user's options may change: "
                    "it is among the defaults, not the arguments",
                )
                require(
                    said is None or isinstance(done, (dict, list)) or str(said) == str(done),
                    f"{one.name!r} has the tag {axis}={said}, but runs with {done}",
                )


@suite.check(after=[check_experiments])
def check_repeatable(make: Make) -> None:
    """The same selection gives the same experiments, whatever was asked before."""
    used = make()
    first = _described(lambda: used, toy_selection())
    require(
        first == _described(lambda: used, toy_selection()),
        "a second call of experiments gives others",
    )
    require(first == _described(make, toy_selection()), "another instance gives others")


@suite.check(after=[check_axes, check_experiments])
def check_choices_count(make: Make) -> None:
    """What a user chooses of an axis is what the experiments are made of."""
    chosen: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("method", ("maml", "ncc")),
        ("shot", (1, 5)),
    )
    for axis, values in chosen:
        if axis not in make().axes:
            continue
        selection = toy_selection(**{f"{axis}s": values})
        try:
            described = list(make().experiments(selection))
            first = toy_benchmark_results(selection, described, arms=make().arms)
            described += make().further_experiments(first)
        except OptionError:
            continue  # it has its reasons against these
        found = {one.tags.get(axis, one.arguments.get(axis)) for one in described}
        require(
            set(values) <= found,
            f"of the {axis}s {', '.join(map(str, values))} the experiments have "
            f"{', '.join(map(str, sorted(found, key=str)))}",
        )


@suite.check(after=[check_experiments])
def check_tables(make: Make) -> None:
    """``tables`` gives declarations whose values have a number, or a reason for having none."""
    for table in _tables(make, failed=False):
        require(table.title, f"{table.name} must have a title")
        for entry in table.entries:
            require(
                entry.measured is not None or entry.reason,
                f"{table.name}: {entry.row}, {entry.column} has no value and no reason",
            )


def _tables(make: Make, *, failed: bool) -> list[TableDeclaration]:
    found = list(make().tables(_results(make, failed=failed)))
    require(found, "it must declare at least one table")
    for table in found:
        require(
            isinstance(table, TableDeclaration),
            f"it must give TableDeclaration, not {type(table).__name__}",
        )
        require(table.entries, f"{table.name} must have entries")
    return found


@suite.check(after=[check_tables])
def check_entries_plain(make: Make) -> None:
    """What is said about a value can be written as JSON, with the same keys throughout a table."""
    for table in _tables(make, failed=False):
        keys = {tuple(entry.about) for entry in table.entries}
        require(len(keys) == 1, f"{table.name}: about must have the same keys in every entry")
        require(
            all(_is_plain(entry.to_json()) for entry in table.entries),
            f"{table.name}: about must be texts, numbers, lists, mappings",
        )


@suite.check(after=[check_tables])
def check_failures_told(make: Make) -> None:
    """Where every experiment failed, no value is shown, and every place has a reason."""
    for table in _tables(make, failed=True):
        for entry in table.entries:
            where = f"{table.name}: {entry.row}, {entry.column}"
            require(entry.measured is None, f"{where} has a value although all runs failed")
            require(entry.reason, f"{where} has no reason")


@suite.check(after=[check_tables])
def check_cautions_told(make: Make) -> None:
    """The cautions of the runs are among the notes of the tables that show them."""
    for table in _tables(make, failed=False):
        require(
            any("a caution of the toys" in note for note in table.notes),
            f"{table.name} must have the cautions of its runs among its notes; see "
            "fsframework.values.footnotes",
        )


@suite.check(after=[check_tables, check_tags_differ])
def check_values_in_place(make: Make) -> None:
    """A value that belongs to experiments by its names is made of theirs."""
    chosen = {f"{axis}s": values for axis, values in _TWO.items() if axis in make().axes}
    for selection in (toy_selection(), toy_selection(**chosen)):
        try:
            usual = _results(make, selection)
        except NotApplicable:
            continue
        _require_in_place(make, usual)


_TWO: Mapping[str, tuple[Any, ...]] = {
    "dataset": (Labelled("planted"), Labelled("folder:./other", "other")),
    "method": ("maml", "ncc"),
    "shot": (1, 5),
}
"""Two choices of each axis that a benchmark may have."""


def _require_in_place(make: Make, usual: BenchmarkResults) -> None:
    selection, arms = usual.selection, make().arms
    described = [result.description for result in usual]
    tags_of = [{"the experiment": one.name, **one.tags} for one in described]
    before = _values(make, usual)
    moving: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for place in range(0, len(described), max(1, len(described) // _MOVED)):
        results = toy_benchmark_results(selection, described, arms=arms, moved=place)
        for where, (_, value) in _values(make, results).items():
            if where in before and value != before[where][1]:
                moving.setdefault(where, []).append(tags_of[place])
    for where, tags in moving.items():
        named = _named_tags(before[where][0], tags_of)
        require(
            any(all(own.get(key) in values for key, values in named.items()) for own in tags),
            f"{', '.join(where)} moves with the experiment {dict(tags[0])}, not with {named}",
        )


_MOVED = 12
"""Experiments whose values are moved, one at a time, to see what becomes of them."""


def _values(
    make: Make, results: BenchmarkResults
) -> dict[tuple[str, ...], tuple[dict[str, Any], Quantity | None]]:
    """Return by place what is said about each value, and the value."""
    found: dict[tuple[str, ...], tuple[dict[str, Any], Quantity | None]] = {}
    for table in make().tables(results):
        for entry in table.entries:
            names = dict(zip(table.row_names, entry.row, strict=True))
            about = {"column": entry.column, **names, **entry.about}
            found[table.name, *entry.row, entry.column] = about, entry.measured
    for figure in make().figures(results):
        for panel in figure.panels:
            for series in panel.series:
                for point in series.points:
                    names = (panel.title, series.name, str(point.x), point.label)
                    about = dict(zip(("panel", "series", "x", "label"), names, strict=True))
                    found[figure.name, *names] = about, point.y
    return found


def _named_tags(
    about: Mapping[str, Any], tags: Iterable[Mapping[str, Any]]
) -> dict[str, list[Any]]:
    """Return the tags that names of a value are, by key or where no other key has such a tag.

    A value of two experiments, such as a difference, may name both.
    """
    known = {(key, str(value)): value for one in tags for key, value in one.items()}
    by_key = {
        key: known[key, str(text)] for key, text in about.items() if (key, str(text)) in known
    }
    named = {key: [value] for key, value in by_key.items()}
    for text in map(str, about.values()):
        keys = [key for key, value in known if value == text]
        if len(keys) == 1 and not text.isdigit() and keys[0] not in by_key:
            named.setdefault(keys[0], []).append(known[keys[0], text])
    return named


@suite.check(after=[check_failures_told])
def check_figures(make: Make) -> None:
    """``figures`` gives declarations whose values are quantities, or missing where runs failed."""
    for failed in (False, True):
        for figure in make().figures(_results(make, failed=failed)):
            require(
                isinstance(figure, FigureDeclaration),
                f"it must give FigureDeclaration, not {type(figure).__name__}",
            )
            for panel in figure.panels:
                for y in (point.y for series in panel.series for point in series.points):
                    known = isinstance(y, Quantity) and math.isfinite(y.value)
                    require(
                        y is None if failed else known,
                        f"{figure.name}, {panel.title}: {y!r} where runs "
                        f"{'failed' if failed else 'are finished'}",
                    )


@suite.check(after=[check_tables])
def check_answer(make: Make) -> None:
    """``answer`` gives results with a name for each of ``row_names``, and sentences."""
    for failed in (False, True):
        results = _results(make, failed=failed)
        found = make().answer(results, tuple(make().tables(results)))
        require(isinstance(found, Answer), f"it must give Answer, not {type(found).__name__}")
        for names, result in found.rows:
            require(
                len(names) == len(found.row_names),
                f"the row {names} must have {len(found.row_names)} names",
            )
            require(result in results, f"the row {names} is of none of the results")
        for said in found.sentences:
            require(isinstance(said, str) and said, f"a sentence must be a text, not {said!r}")


@suite.check()
def check_printed(make: Make) -> None:
    """``printed`` gives printed values, and nothing for a cell that no publication has."""
    found = list(make().printed(_NOBODY))
    for one in found:
        require(isinstance(one, PrintedValue), f"it must give PrintedValue, not {one!r}")
        require(False, f"it prints {one} for a method and data that no publication has")


@suite.answers(after=[check_tables, check_repeatable])
def _answers(make: Make) -> dict[str, str]:
    results = _results(make)
    return {
        "the experiments": repr(_described(make, toy_selection())),
        "the tables": repr(list(make().tables(results))),
        "the figures": repr(list(make().figures(results))),
    }
