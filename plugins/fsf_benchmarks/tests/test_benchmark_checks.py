"""Each check of benchmarks rejects the one broken benchmark made for it, and nothing else does."""

from dataclasses import replace

import numpy as np
import pytest

from fsf_benchmarks.interfaces import Answer, Benchmark, ExperimentDescription, PrintedValue
from fsf_reports.values import (
    Entry,
    FigureDeclaration,
    Panel,
    Point,
    Quantity,
    Series,
    TableDeclaration,
)
from fsframework.errors import DataError
from fsframework.testing import checks_for, parametrize_with_checks
from fsframework.values import footnotes
from tests.misdeclared import changed, hashed


class Gaps(Benchmark):
    """The gap of each method at each number of shots."""

    axes = ("method", "shot")
    tasks = 600

    def experiments(self, selection):
        for shot in selection.shots or (1, 5):
            for method in selection.methods or ("protonet", "renet"):
                chosen = {"method": method, "shot": shot}
                yield ExperimentDescription(
                    f"{method}, {shot}-shot", chosen, {"tasks": self.tasks}, chosen
                )

    def entry(self, result):
        gap = result.estimates.get("wacc-gap")
        measured = None if gap is None else Quantity.of(gap)
        row = (str(result.tags["shot"]), result.tags["method"])
        return Entry(row, "gap", measured, result.reason, about={"run": str(result.folder)})

    def entries(self, results):
        return tuple(self.entry(result) for result in results)

    def tables(self, results):
        notes = tuple(footnotes(results.cautions))
        return [TableDeclaration("Gaps", "Gaps.", ("shot", "method"), self.entries(results), notes)]

    def figures(self, results):
        points = tuple(Point(r.description.name, self.entry(r).measured) for r in results)
        panel = Panel("", (Series("gap", points),))
        return [FigureDeclaration("Gaps", "Gaps.", "method", "gap in points", (panel,))]


class Unwritable(Gaps):
    """A set among the arguments."""

    def experiments(self, selection):
        for one in super().experiments(selection):
            yield replace(one, arguments={**one.arguments, "x": {1}})


class Alike(Gaps):
    """The tags leave out the shot, and the results are taken as they come."""

    def experiments(self, selection):
        for one in super().experiments(selection):
            yield replace(one, tags={"method": one.tags["method"]})

    def entry(self, result):
        gap = result.estimates.get("wacc-gap")
        measured = None if gap is None else Quantity.of(gap)
        return Entry(("1", result.description.name), "gap", measured, result.reason)


class Counting(Gaps):
    """The number of tasks grows from call to call."""

    def experiments(self, selection):
        self.tasks += 1
        return list(super().experiments(selection))


class Deaf(Gaps):
    """A choice of methods is ignored."""

    def experiments(self, selection):
        for shot in selection.shots or (1, 5):
            chosen = {"method": "protonet", "shot": shot}
            yield ExperimentDescription(f"{shot}-shot", chosen, {}, chosen)


class Unreasoned(Gaps):
    """A value is left out without a word, unless the run failed."""

    def entries(self, results):
        *rest, last = super().entries(results)
        return (*rest, replace(last, measured=None))


class Hopeful(Gaps):
    """Failed runs count as nothing lost."""

    def entries(self, results):
        found = super().entries(results)
        return tuple(replace(e, measured=e.measured or Quantity(0.0)) for e in found)


class Bare(Gaps):
    """Numbers without intervals in a figure."""

    def figures(self, results):
        points = tuple(Point(r.description.name, 1.0) for r in results)
        panel = Panel("", (Series("gap", points),))
        return [FigureDeclaration("Gaps", "Gaps.", "method", "gap", (panel,))]


class Swapped(Gaps):
    """The values of two methods are exchanged."""

    def entries(self, results):
        found = super().entries(results)
        values = [entry.measured for entry in found]
        values[:2] = values[1::-1]
        return tuple(replace(e, measured=m) for e, m in zip(found, values, strict=True))


class Hashed(Gaps):
    """The number of tasks depends on the hashes of the process."""

    def experiments(self, selection):
        for one in super().experiments(selection):
            yield replace(one, defaults={"tasks": hashed()})


class Nameless(Gaps):
    """One name for two columns of names."""

    def answer(self, results, tables):
        rows = tuple(((result.tags["method"],), result) for result in results)
        return Answer(("shot", "method"), rows)


BROKEN = {
    "check_axes": changed(Gaps, axes=("method", "shots")),
    "check_reserved": changed(Gaps, reserved=["sampler"]),
    "check_experiments": Unwritable,
    "check_tags_differ": Alike,
    "check_repeatable": Counting,
    "check_choices_count": Deaf,
    "check_tables": Unreasoned,
    "check_entries_plain": changed(
        Gaps,
        entry=lambda self, run: replace(Gaps.entry(self, run), about={"run": np.zeros(2)}),
    ),
    "check_failures_told": Hopeful,
    "check_cautions_told": changed(
        Gaps, tables=lambda self, runs: [replace(t, notes=()) for t in Gaps.tables(self, runs)]
    ),
    "check_values_in_place": Swapped,
    "check_figures": Bare,
    "check_answer": Nameless,
    "check_printed": changed(
        Gaps,
        printed=lambda self, cell: [PrintedValue("wacc-gap", Quantity(10.0), "Gaps", "Table 1")],
    ),
    "check_fresh_process": Hashed,
}


@parametrize_with_checks([Gaps])
def test_a_sound_benchmark_passes(make, check):
    check(make)


@pytest.mark.parametrize("name", BROKEN)
def test_only_its_check_rejects(name, failing):
    assert failing(BROKEN[name], "benchmark") == {name}


def test_every_check_has_its_broken_benchmark():
    # The first eight are common to all kinds, and tested with those of the core.
    assert list(BROKEN) == [check.__name__ for check in checks_for("benchmark")[8:]]


def test_a_table_has_one_value_in_each_place():
    entry = Entry(("1",), "gap", Quantity(1.0))
    with pytest.raises(DataError, match="two values have the row"):
        TableDeclaration("Gaps", "Gaps.", ("shot",), (entry, entry))
    with pytest.raises(DataError, match=r"must have 2 names \(shot, method\)"):
        TableDeclaration("Gaps", "Gaps.", ("shot", "method"), (entry,))
