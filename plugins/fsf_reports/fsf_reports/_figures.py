"""Figures of runs by name, declared as values; whoever draws them is elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import fsf_statistics
from fsf_reports._results import Group, Results, Shown, data_of, natural, reading, some_of, title_of
from fsf_reports.values import FigureDeclaration, Panel, Point, Quantity, Series
from fsf_statistics import FEWEST_RANKED, LEAST_HARM, MOST_WRONG, labelled, spearman
from fsframework.errors import DataError, OptionError, close_matches
from fsframework.statistics.facts import facts_of, told_apart
from fsframework.statistics.measures import Measure
from fsframework.statistics.results import MethodResult
from fsframework.statistics.task_values import values_of
from fsframework.values import Estimate, footnotes

__all__ = ["FIGURES", "Named", "Wanted", "figure"]


@dataclass(frozen=True)
class Wanted:
    """What a figure is asked to show.

    Args:
        statistic: whose values and gap.
        by: what a run is broken down by.
        question: how a word is related to a query; ``None`` for the first, or for all.
        most: parts of a breakdown that are shown.
    """

    statistic: str = "wacc"
    by: str = "class"
    question: str | None = None
    most: int = 25


@dataclass(frozen=True)
class Named:
    """A figure that can be asked for.

    Args:
        summary: what it shows.
        needs: what the runs must have.
        declare: makes it.
        main: whether most papers need it.
    """

    summary: str
    needs: str
    declare: Callable[[Results, Wanted], FigureDeclaration]
    main: bool = False


def figure(  # noqa: PLR0913 - an option each
    name: str,
    results: Any,
    *,
    statistic: str = "wacc",
    by: str = "class",
    question: str | None = None,
    most: int = 25,
    level: float = 0.95,
    runs_dir: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
) -> FigureDeclaration:  # fmt: skip
    """Declare a figure of runs; ``save_figure`` draws it, a notebook shows it.

    Args:
        name: one of ``fsf figure --list``, such as ``arms`` or ``intervals``.
        results: as for ``fsframework.compare``; one run is enough for most figures.
        statistic: whose values and gap are shown.
        by: what ``breakdown`` shows: ``class``, ``attribute``, ``pair`` or ``context``.
        question: for words, ``tied`` in the support or ``present`` in a query; by default
            ``breakdown`` shows the first and ``harm`` both.
        most: parts of a breakdown that are shown, those with the largest gap.
        level: confidence level of the intervals.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.
        plugins: Python files whose plugin classes are loaded too.

    Raises:
        OptionError: the figure is unknown, or an option is out of range.
        DataError: the runs lack what the figure needs.
        RecordError: a run does not exist, or has no outcomes.
    """
    if name not in FIGURES:
        raise OptionError(
            f"there is no figure {name!r}{close_matches(name, FIGURES)}; the figures are "
            f"{', '.join(FIGURES)}"
        )
    opened = Results.of(results, level=level, runs_dir=runs_dir, plugins=plugins)
    opened = opened.with_two_arms() if name in _OF_GAPS else opened
    return FIGURES[name].declare(opened, Wanted(statistic, by, question, most))


def _notes(
    results: Results, estimates: Iterable[Estimate], *said: str, per: str = "arm"
) -> tuple[str, ...]:
    told = (reading(estimates, results.groups, per), *filter(None, said), *results.cautions)
    return tuple(text if text.endswith((".", "!", "?")) else f"{text}." for text in told)


def _of_data(results: Results, *said: str) -> tuple[str, ...]:
    """Return what a caption says of data where no interval is shown."""
    return (f"On {data_of(results.groups)}.", *said, *results.cautions)


def _begun(note: str) -> str:
    """Return a note as a sentence of its own."""
    return note[:1].upper() + note[1:]


class _Values:
    """Estimates that a figure shows, collected for its notes."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.seen: list[Estimate] = []

    def __call__(self, one: Shown, measure: Measure) -> Quantity:
        found = self.results.estimate(one, measure)
        self.seen.append(found)
        return Quantity.of(found)


# --- both arms --------------------------------------------------------------------------------


def _against(
    results: Results, x_of: str, wanted: Wanted, title: str, *, diagonal: bool
) -> FigureDeclaration:
    """Declare the tested arm's statistic against a statistic of the control arm."""
    value, panels = _Values(results), []
    for group in results.groups:
        control, tested = group.arms()
        x, y = Measure(x_of, (control,)), Measure(wanted.statistic, (tested,))
        points = tuple(Point(value(one, x), value(one, y), one.label) for one in group.shown)
        panels.append(Panel(group.panel, (Series("", points),)))
    return FigureDeclaration(
        title,
        f"{results.label(y)} against {results.label(x)}, a point per method.",
        results.axis(x),
        results.axis(y),
        tuple(panels),
        mark="points",
        diagonal=diagonal,
        limits=results.limits(x, y),
        notes=_notes(
            results,
            value.seen,
            "On the dashed line both are equal." if diagonal else "",
            *results.limits_of_gaps(wanted.statistic),
        ),
    )


def _arms(results: Results, wanted: Wanted) -> FigureDeclaration:
    return _against(results, wanted.statistic, wanted, "Both arms", diagonal=True)


def _accuracy(results: Results, wanted: Wanted) -> FigureDeclaration:
    return _against(results, "acc", wanted, "Against accuracy", diagonal=False)


def _by_arm(results: Results, wanted: Wanted) -> FigureDeclaration:
    value, panels = _Values(results), []
    for group in results.groups:
        arms = group.arms()
        measures = [Measure(wanted.statistic, (arm,)) for arm in arms]
        series = tuple(
            Series(
                group.label(measure, results.statistic_of(measure.statistic)),
                tuple(Point(one.label, value(one, measure)) for one in group.shown),
            )
            for measure in measures
        )
        gap = Measure(wanted.statistic, arms)
        captions: dict[float | str, str] = {
            one.label: _short(results.quantity(one, gap)) for one in group.shown
        }
        panels.append(Panel(group.panel, series, captions))
    first, second = (results.label(measure) for measure in measures)
    better = results.statistic_of(wanted.statistic).higher_is_better
    terms = (first, second) if better else (second, first)
    return FigureDeclaration(
        "By arm",
        f"{first} and {second} of each method.",
        "method",
        results.axis(Measure(wanted.statistic)),
        tuple(panels),
        caption_axis=f"{terms[0]} − {terms[1]}",
        limits=results.limits(*measures),
        notes=_notes(results, value.seen, *results.limits_of_gaps(wanted.statistic)),
    )


def _short(gap: Quantity) -> str:
    """Return a gap with one digit, as there are many beside each other."""
    half = f" ± {gap.half_width:.1f}" if gap.has_interval else ""
    return f"{gap.value:+z.1f}{half}".replace("-", "−")


# --- dots and whiskers ------------------------------------------------------------------------


def _intervals(results: Results, wanted: Wanted) -> FigureDeclaration:
    value, found, rows, missing = _Values(results), [], [], []
    for group in results.groups:
        measure = results.measure(wanted.statistic, group)
        found.append(own := dict(_known(group, measure, value, missing)))
        statistic = results.statistic_of(measure.statistic)
        best = -1 if statistic.higher_is_better and not measure.is_gap else 1
        order = sorted(own, key=lambda label: best * own[label].value)
        rows.append([*order, *(one.label for one in group.shown if one.label not in own)])
    shared = _shared(rows, found)
    panels = [
        Panel(
            group.panel,
            (Series("", tuple(Point(label, values.get(label)) for label in own)),),
        )
        for group, values, own in zip(results.groups, found, shared, strict=True)
    ]
    if any(len(own) > len(one) for own, one in zip(shared, rows, strict=True)):
        missing.append("An empty row: the method has no run on these tasks")
    return FigureDeclaration(
        "Intervals",
        f"{results.label(measure)} of each method.",
        "method",
        results.axis(measure),
        tuple(panels),
        mark="whiskers",
        limits=results.limits(measure),
        notes=_notes(results, value.seen, *missing, *results.limits_of_gaps(measure.statistic)),
    )


def _known(
    group: Group, measure: Measure, value: _Values, missing: list[str]
) -> Iterator[tuple[str, Quantity]]:
    """Yield the values of methods; those that are near guessing have no relative drop."""
    for one in group.shown:
        try:
            yield one.label, value(one, measure)
        except DataError as error:
            if not measure.relative:
                raise
            missing.append(f"No value: {error}")


def _shared(
    rows: Sequence[list[str]], panels: Sequence[Mapping[str, Quantity]]
) -> Sequence[list[str]]:
    """Return the rows of each panel.

    Panels that have most of the rows in common share all of them, in the order of the panel with
    most values, and of these of that in which they lie furthest apart.
    """

    def spread(number: int) -> tuple[int, float]:
        found = [one.value for one in panels[number].values()]
        return len(found), max(found, default=0.0) - min(found, default=0.0)

    labels = list(dict.fromkeys(label for own in rows for label in own))
    if any(2 * len(own) < len(labels) for own in rows):
        return rows
    first = rows[max(range(len(rows)), key=spread)]
    return [[*first, *(label for label in labels if label not in first)]] * len(rows)


def _robustness(results: Results, wanted: Wanted) -> FigureDeclaration:
    panels, seen, letters, said = [], [], set[str](), {}
    for group in results.groups:
        try:
            found = fsf_statistics.effective_robustness(
                {one.label: one.result for one in group.shown},
                wanted.statistic, level=results.level,
            )  # fmt: skip
        except DataError:
            if len(results.groups) == 1:
                raise
            said[f"Left out, as too few methods can be compared: {group.title}"] = None
            continue
        seen += found.control.values()
        letters |= set(found.letters.values())
        points = tuple(
            Point(
                f"{label} ({fsf_statistics.letters_shown(found.letters[label])})", Quantity.of(one)
            )
            for label, one in found.values.items()
        )
        panels.append(Panel(group.panel, (Series("", points),)))
        said |= dict.fromkeys(_begun(note) for note in found.notes)
        without = footnotes({label: [why] for label, why in found.left_out.items()})
        said |= {f"Without {one}": None for one in without}
    if not panels:
        raise DataError("robustness: needs three methods on equal tasks")
    control, tested = (
        results.label(Measure(wanted.statistic, (arm,))) for arm in results.groups[0].arms()
    )
    return FigureDeclaration(
        "Robustness",
        f"{tested} of each method beyond what {control} predicts.",
        "method (letter)",
        "effective robustness (points)",
        tuple(panels),
        mark="whiskers",
        notes=_notes(results, seen, fsf_statistics.letters_told(seen, letters), *said),
    )


def _variants(results: Results) -> dict[str, list[tuple[str, Shown]]]:
    """Return the runs of each method that has several, with the options in which they differ.

    Raises:
        DataError: no method has runs that differ.
    """
    of_method: dict[str, list[Shown]] = {}
    for one in results.shown:
        method = one.record.method
        of_method.setdefault(method.called if method else one.label, []).append(one)
    found = {}
    for name, shown in of_method.items():
        facts = [{**facts_of(one.record), "run": one.name} for one in shown]
        names = _titles(facts)
        if len(names) > 1:
            pairs = zip(names, shown, strict=True)
            found[name] = sorted(pairs, key=lambda pair: natural(pair[0]))
    if not found:
        raise DataError(
            "ablations: no two of these runs are of one method with different options; give runs "
            "that differ in an option, such as method.NAME or detector"
        )
    return found


def _ablations(results: Results, wanted: Wanted) -> FigureDeclaration:
    value, series = _Values(results), []
    measure = results.measure(wanted.statistic, results.groups[0])
    for method, variants in _variants(results).items():
        points = []
        for name, one in variants:
            measure = results.measure(wanted.statistic, Group((one,)))
            points.append(Point(name, value(one, measure)))
        series.append(Series(method, tuple(points)))
    of = series[0].name if len(series) == 1 else "each method"
    return FigureDeclaration(
        "Ablations",
        f"{results.label(measure)} of {of} by the options in which its runs differ.",
        "options",
        results.axis(measure),
        (Panel("", tuple(series)),),
        mark="whiskers",
        notes=_notes(results, value.seen, *results.limits_of_gaps(measure.statistic)),
    )


def _breakdown(results: Results, wanted: Wanted) -> FigureDeclaration:
    [one] = _only(results, "breakdown")
    by: Any = wanted.by
    question: Any = wanted.question or "tied"
    found = fsf_statistics.breakdown(one.run, by, question=question, level=results.level)
    arms = list(dict.fromkeys(row.arm for row in found.rows))
    names = list(dict.fromkeys(row.names for row in found.rows))
    first = "largest gap" if "gap" in arms else "lowest accuracy"
    cost = {
        row.names: -row.estimate.value if row.arm == "gap" else row.estimate.value
        for row in found.rows
        if row.arm == ("gap" if "gap" in arms else arms[-1])
    }
    ranked = sorted(names, key=lambda name: cost.get(name, math.inf))[: wanted.most]
    place = {name: n for n, name in enumerate(ranked)}
    series = []
    for arm in (arm for arm in arms if arm != "gap"):
        rows = sorted((r for r in found.rows if r.arm == arm and r.names in place),
                      key=lambda r: place[r.names])  # fmt: skip
        points = tuple(Point(": ".join(r.names), Quantity.of(r.estimate)) for r in rows)
        series.append(Series(arm, points))
    left = len(names) - len(ranked)
    what = " and ".join(found.row_names)
    asked = f" {_RELATED[question]}" if by in ("attribute", "pair") else ""
    on = f", {series[0].name} tasks" if len(series) == 1 else ""
    return FigureDeclaration(
        "Breakdown",
        f"Accuracy of {one.label} per {what}{asked}{on}.",
        what,
        "accuracy (%)",
        (Panel("", tuple(series)),),
        mark="whiskers",
        limits=(0.0, 100.0),
        notes=_notes(
            results,
            [row.estimate for row in found.rows if row.arm != "gap" and row.names in place],
            f"The {len(ranked)} of {len(names)} with the {first}." if left else "",
            *map(_begun, found.notes),
            per=what if len(series) == 1 else f"{what} and arm",
        ),
    )


_RELATED = {"tied": "tied to the class in the support", "present": "present in the query"}
"""How a word is related to a query."""


def _harm(results: Results, wanted: Wanted) -> FigureDeclaration:
    [one] = _only(results, "harm")
    question: Any = wanted.question
    found = fsf_statistics.harmful_pairs(one.run, question, level=results.level)
    rows = found.rows[: wanted.most]
    if not rows:
        raise DataError(f"harm: no pair of a class and a word is found to hurt {one.label}")
    panels = []
    for asked in found.questions:
        points = tuple(
            Point(f"{row.class_name}: {row.words}", Quantity.of(row.estimate))
            for row in rows
            if row.question == asked
        )
        if points:
            panels.append(Panel(f"word {_RELATED[asked]}", (Series("", points),)))
    without = [q for q in found.questions if all(row.question != q for row in found.rows)]
    return FigureDeclaration(
        "Harmful pairs",
        f"Accuracy that a class loses by a word, {one.label}.",
        "class: word",
        "accuracy lost (points)",
        tuple(panels),
        mark="whiskers",
        notes=_notes(
            results,
            [row.estimate for row in rows],
            f"The {len(rows)} of {len(found)} pairs with the largest loss."
            if len(rows) < len(found)
            else "",
            *(f"No pair with a word {_RELATED[asked]} is found." for asked in without),
            f"A pair is shown if it costs at least {100 * LEAST_HARM:g} points; at most "
            f"{100 * MOST_WRONG:g} % of those shown are expected to be harmless.",
            per="pair",
        ),
    )


def _only(results: Results, name: str) -> tuple[Shown, ...]:
    if len(results.shown) != 1:
        raise OptionError(f"{name} shows one run, and {len(results.shown)} are given")
    return results.shown


# --- shots ------------------------------------------------------------------------------------


def _shots(results: Results, wanted: Wanted) -> FigureDeclaration:
    value = _Values(results)
    by_panel: dict[str, dict[int, list[Point]]] = {}
    for group, panel in zip(results.groups, _apart_but_for_shots(results.groups), strict=True):
        measure = Measure(wanted.statistic, group.arms())
        for one in group.shown:
            series = by_panel.setdefault(panel, {})
            point = Point(one.label, value(one, measure))
            series.setdefault(one.n_shot, []).append(point)
    panels = tuple(
        Panel(title, tuple(Series(_shot(n), tuple(points)) for n, points in sorted(series.items())))
        for title, series in by_panel.items()
    )
    return FigureDeclaration(
        "Shots",
        f"{results.label(measure)} by shots of the tasks.",
        "method",
        results.axis(measure),
        panels,
        notes=_notes(results, value.seen, *results.limits_of_gaps(wanted.statistic)),
    )


def _apart_but_for_shots(groups: Sequence[Group]) -> list[str]:
    """Return what tells the tasks of each group from the others besides their shots."""
    facts = []
    for group in groups:
        arms = group.first.arms
        shape = {"data": group.facts["data"], "way": "" if arms is None else str(arms.tested.n_way)}
        left = {
            k: v for k, v in group.facts.items() if k not in ("tasks", "count", "sampler.n_shot")
        }
        facts.append({**shape, **left})
    return _titles(facts)


def _titles(facts: Sequence[Mapping[str, str]]) -> list[str]:
    """Return what tells things from each other, as titles."""
    told = told_apart(facts)
    return [title_of({name: own[n] for name, own in told.items()}) for n in range(len(facts))]


def _shot(n: int) -> str:
    return f"{n} shot" if n == 1 else f"{n} shots"


def _training_shots(results: Results, wanted: Wanted) -> FigureDeclaration:
    import fsframework as fsf

    seen: list[Estimate] = []
    panels: dict[str, dict[int, list[Point]]] = {}
    known: set[int] = set()
    for group, panel in zip(results.groups, _apart_but_for_shots(results.groups), strict=True):
        measure = Measure(wanted.statistic, group.arms()[1:])
        for name in dict.fromkeys(one.result.label for one in group.shown):
            own = {
                shot: one
                for one in group.shown
                if one.result.label == name and (shot := one.trained_shot) is not None
            }
            if len(own) < 2:
                continue
            few, many = min(own), max(own)
            known |= {few, many}
            compared = fsf.compare(
                {f"{name} {n}": own[n].result for n in (many, few)}, measure.name,
                level=results.level,
            )  # fmt: skip
            difference = compared.pairs[0].difference
            seen.append(difference)
            series = panels.setdefault(panel, {})
            series.setdefault(group.shown[0].n_shot, []).append(
                Point(name, Quantity.of(difference))
            )
    if not panels:
        raise DataError(
            "training-shots: no method was trained at two numbers of shots and tested on the same "
            "tasks"
        )
    return FigureDeclaration(
        "Training shots",
        f"{results.label(measure)} of models trained at {max(known)} shots minus at {min(known)}.",
        "method",
        f"difference in {results.label(measure)} (points)",
        tuple(
            Panel(
                title,
                tuple(Series(f"tasks of {_shot(n)}", tuple(points))
                      for n, points in sorted(series.items())),
            )
            for title, series in panels.items()
        ),
        notes=_notes(
            results,
            seen,
            "Above 0, more shots in training make a method more robust.",
            *results.limits_of_gaps(wanted.statistic),
        ),
    )  # fmt: skip


# --- pairs of methods, sets of tasks ----------------------------------------------------------


def _pairs(results: Results, wanted: Wanted) -> FigureDeclaration:
    import fsframework as fsf

    panels: list[Panel] = []
    seen: list[Estimate] = []
    left: list[str] = []
    for group in results.groups:
        if len(group.shown) < 2:
            left.append(group.shown[0].name)
            continue
        measure = results.measure(wanted.statistic, group)
        found = fsf.compare(
            {one.label: one.result for one in group.shown}, measure.name, level=results.level
        )[measure.name]
        labels = sorted(found.values, key=lambda label: found.values[label].value)
        first = [series.name for series in panels[0].series] if panels else labels
        # Panels of the same methods have the same rows.
        labels = first if set(first) == set(labels) else labels
        seen += found.values.values()
        series = []
        for row in labels:
            points = []
            for column in labels:
                if row == column:
                    points.append(Point(column, None))
                    continue
                pair, sign = found.pair(row, column)
                shown = Quantity.of(pair.difference)
                if sign < 0:
                    shown = Quantity(-shown.value, -shown.high, -shown.low, shown.unit)
                told = pair.p_holm is not None and pair.p_holm <= 1 - results.level
                points.append(Point(column, shown, "*" if told else ""))
            series.append(Series(row, tuple(points)))
        panels.append(Panel(group.panel, tuple(series)))
    if not panels:
        raise DataError("pairs: no two of these methods have equal tasks")
    return FigureDeclaration(
        "Pairs",
        f"Differences in {results.label(measure)} between methods, row minus column.",
        "",
        f"difference in {results.axis(measure)}",
        tuple(panels),
        mark="matrix",
        notes=_notes(
            results,
            seen,
            "Bold or *: the two can be told apart (Holm's p).",
            f"Left out, as no other method has their tasks: {some_of(left)}." if left else "",
            *results.limits_of_gaps(measure.statistic),
        ),
    )


def _agreement(results: Results, wanted: Wanted) -> FigureDeclaration:
    if len(results.groups) != 2:
        raise DataError(
            f"agreement: needs the same methods on two sets of tasks, such as those of two "
            f"detectors, and these runs have {len(results.groups)}"
        )
    value, points = _Values(results), []
    both: list[tuple[Quantity, Quantity]] = []
    sides = [{one.result.label: one for one in group.shown} for group in results.groups]
    measures = [Measure(wanted.statistic, (g.arms()[1],)) for g in results.groups]
    for name in (name for name in sides[0] if name in sides[1]):
        x, y = (value(side[name], m) for side, m in zip(sides, measures, strict=True))
        both.append((x, y))
        points.append(Point(x, y, name))
    if not points:
        raise DataError("agreement: no method has both sets of tasks")
    names = [group.panel for group in results.groups]
    said = ""
    if len(points) >= FEWEST_RANKED:
        import numpy as np

        values = np.array([[x.value, y.value] for x, y in both])
        rho = spearman(values[:, 0], values[:, 1])
        said = f"Spearman's rank correlation: {rho:.2f} over {len(points)} methods."
    return FigureDeclaration(
        "Agreement",
        f"{results.label(measures[0])} of each method on two sets of tasks.",
        f"{results.axis(measures[0])}, {names[0]}",
        f"{results.axis(measures[1])}, {names[1]}",
        (Panel("", (Series("", tuple(points)),)),),
        mark="points",
        diagonal=True,
        limits=results.limits(*measures),
        notes=_notes(results, value.seen, said, *results.limits_of_gaps(wanted.statistic)),
    )  # fmt: skip


def _task_accuracies(results: Results, wanted: Wanted) -> FigureDeclaration:
    import numpy as np

    del wanted
    panels, numbers = [], list[int]()
    firsts = {group.shown[0].label for group in results.groups if len(group.shown) > 1}
    for group in results.groups:
        measure = Measure("acc", tuple(group.first.outcomes)[:1])
        shown = [one.result for one in group.shown]
        columns = values_of(shown, measure, results.statistic_of("acc")).means[0].T
        x, first = 100 * columns[0], group.shown[0].label
        against = f" against {first}" if len(firsts) > 1 else ""
        for one, column in zip(group.shown[1:], 100 * columns[1:], strict=True):
            points = tuple(Point(float(a), Quantity(b)) for a, b in zip(x, column, strict=True))
            parts = [group.panel, f"{one.label}{against}"]
            if x.std() > 0 and column.std() > 0:
                parts.append(f"r={np.corrcoef(x, column)[0, 1]:.3f}")
            panels.append(Panel(", ".join(filter(None, parts)), (Series("", points),)))
            numbers.append(len(x))
    if not panels:
        raise DataError("task-accuracies: needs two methods on equal tasks")
    tasks = " to ".join(f"{n:,}" for n in sorted({min(numbers), max(numbers)}))
    other = firsts.pop() if len(firsts) == 1 else "the second method"
    return FigureDeclaration(
        "Task accuracies",
        "Accuracy of each task by two methods.",
        f"Acc of {other} (%)",
        "Acc of the method above (%)",
        tuple(panels),
        mark="points",
        diagonal=True,
        limits=(0.0, 100.0),
        notes=_of_data(results, f"r: Pearson's correlation over {tasks} tasks."),
    )


# --- training and planning --------------------------------------------------------------------


def _training(results: Results, wanted: Wanted) -> FigureDeclaration:
    del wanted
    return _curves(results, "Training", "validation accuracy (%)", lambda e: (
        None if e.validation_accuracy is None else 100 * e.validation_accuracy
    ))  # fmt: skip


def _loss(results: Results, wanted: Wanted) -> FigureDeclaration:
    del wanted
    return _curves(results, "Loss", "training loss", lambda epoch: epoch.loss)


def _curves(
    results: Results, name: str, axis: str, value: Callable[[Any], float | None]
) -> FigureDeclaration:
    trained = [
        (one.result.label, record)
        for one in results.shown
        for record in one.result.records
        if record.training.history
    ]
    labels = labelled([label for label, _ in trained], [facts_of(one) for _, one in trained])
    series = []
    for label, (_, record) in zip(labels, trained, strict=True):
        points = [
            Point(float(number), Quantity(found, unit=""))
            for number, epoch in enumerate(record.training.history, start=1)
            if (found := value(epoch)) is not None
        ]
        if points:
            series.append(Series(label, tuple(points)))
    if not series:
        raise DataError(f"{name.lower()}: nothing was trained in these runs, or not validated")
    what = axis.partition(" (")[0]
    without = [one.label for one in results.shown if one.result.label not in dict(trained)]
    left = ", ".join(dict.fromkeys(without))
    return FigureDeclaration(
        name,
        f"{what[0].upper()}{what[1:]} by epoch.",
        "epoch",
        axis,
        (Panel("", tuple(series)),),
        mark="lines",
        limits=(0.0, 100.0) if axis.endswith("(%)") else None,
        notes=_of_data(results, *([f"Not trained, and left out: {left}."] if left else [])),
    )


def _length(results: Results, wanted: Wanted) -> FigureDeclaration:
    value, panels = _Values(results), []
    for group in results.groups:
        updates = {one: _updates(one.result) for one in group.shown}
        lengths: dict[str, set[float]] = {}
        for one, length in updates.items():
            lengths.setdefault(one.result.label, set()).add(length)
        several = [method for method, found in lengths.items() if len(found) > 1]
        if not several:
            continue
        control, tested = group.arms()
        for measure in (
            Measure(wanted.statistic, (control, tested)),
            Measure(wanted.statistic, (control,)),
            Measure("acc", (control,)),
        ):
            series = []
            for method in several:
                own = [one for one in group.shown if one.result.label == method]
                own.sort(key=updates.__getitem__)
                points = tuple(Point(updates[one], value(one, measure)) for one in own)
                series.append(Series(method, points))
            title = ": ".join(filter(None, [group.panel, results.axis(measure)]))
            panels.append(Panel(title, tuple(series)))
    if not panels:
        raise DataError(
            "length: no two of these runs are of one method and trained for different lengths; "
            "give runs that differ in training.epochs or training.steps"
        )
    return FigureDeclaration(
        "Training length",
        "Gap and accuracy in the control arm by the length of the training.",
        "updates in training",
        "%, gap in points",
        tuple(panels),
        mark="lines",
        limits=(-100.0, 100.0),
        own_ranges=True,
        notes=_notes(results, value.seen, *results.limits_of_gaps(wanted.statistic)),
    )


def _updates(result: MethodResult) -> float:
    """Return how many updates trained a model, the mean over its seeds."""
    done = [
        sum(record.stages[epoch.stage].steps for epoch in record.training.history)
        for record in result.records
    ]
    return sum(done) / max(1, len(done))


def _queries(results: Results, wanted: Wanted) -> FigureDeclaration:
    del wanted
    from fsf_statistics import QueryVariance, TaskSupply, pilot_of

    series: list[Series] = []
    left: list[str] = []
    for group in results.groups:
        for one in group.shown:
            arms = one.result.arms
            name = ", ".join(filter(None, (one.label, group.panel)))
            if arms is None or not one.result.class_sizes:
                raise DataError(f"queries: {one.label}: the images of its tasks are not known")
            arm = next(iter(one.result.outcomes))
            try:
                pilot = QueryVariance.of(pilot_of(arms[arm], one.result.outcomes[arm]))
            except DataError as error:
                left.append(f"Without {name}: {error}.")
                continue
            supply = TaskSupply(one.result.class_sizes, pilot.n_way, pilot.n_shot)
            numbers = [q for q in supply.candidates if q <= max(20, 4 * min(pilot.cautious, 25))]
            points = tuple(
                Point(float(q), Quantity(1e4 * float(pilot.variance(q)) / supply.most_tasks(q),
                                         unit=""))
                for q in numbers
            )  # fmt: skip
            series.append(Series(name, points))
    if not series:
        raise DataError(f"queries: nothing to draw. {' '.join(left)}")
    return FigureDeclaration(
        "Queries",
        "Variance of the mean accuracy over all tasks without replacement, by queries per class.",
        "queries per class",
        "variance of the mean (squared points)",
        (Panel("", tuple(series)),),
        mark="lines",
        notes=("Estimated from the tasks of the control arm.", *_of_data(results), *left),
    )


_OF_GAPS = (
    "arms", "by-arm", "intervals", "robustness", "shots", "ablations", "accuracy",
    "training-shots", "agreement", "length", "pairs",
)  # fmt: skip
"""Figures that leave out runs on tasks of one arm where other runs have two."""

_TWO_ARMS = "runs whose tasks have two arms, as from the sampler fewstab"

FIGURES: Mapping[str, Named] = MappingProxyType(
    {
        "arms": Named(
            "the tested arm against the control arm, a point per method",
            _TWO_ARMS, _arms, main=True,
        ),
        "by-arm": Named(
            "bars of both arms per method, the gap below (MetaCoCo Fig. 3)", _TWO_ARMS, _by_arm,
            main=True,
        ),
        "intervals": Named(
            "the gap, or another measure, of each method as dot and whiskers",
            "any runs", _intervals, main=True,
        ),
        "robustness": Named(
            "effective robustness of each method, with letters", f"{_TWO_ARMS}, of three methods",
            _robustness, main=True,
        ),
        "shots": Named(
            "gaps by shots of the tasks (FewSTAB Fig. 4)", f"{_TWO_ARMS}, of several shots", _shots,
            main=True,
        ),
        "ablations": Named(
            "the gap by the options in which runs differ", "runs that differ in options",
            _ablations, main=True,
        ),
        "breakdown": Named(
            "accuracy per class, word, pair or context (--by)", "one run and its images",
            _breakdown, main=True,
        ),
        "harm": Named(
            "which words hurt which classes (--question)", "one run and its images", _harm,
            main=True,
        ),
        "accuracy": Named(
            "the tested arm against accuracy in the control arm (FewSTAB Figs. 5 and S1)",
            _TWO_ARMS, _accuracy,
        ),
        "training-shots": Named(
            "models trained at more shots minus at fewer (FewSTAB Fig. 6)",
            "the same methods trained at two numbers of shots, on equal tasks", _training_shots,
        ),
        "agreement": Named(
            "the tested arm on one set of tasks against another (FewSTAB Table 6)",
            "the same methods on two sets of tasks, such as of two detectors", _agreement,
        ),
        "pairs": Named(
            "differences between all pairs of methods", "several methods on equal tasks", _pairs
        ),
        "task-accuracies": Named(
            "accuracy of each task by two methods (Lafargue et al. Fig. 1)",
            "two or more methods on equal tasks", _task_accuracies,
        ),
        "queries": Named(
            "variance of the mean accuracy by queries per class", "runs with several queries",
            _queries,
        ),
        "length": Named(
            "gap and accuracy by the length of the training",
            f"{_TWO_ARMS}, of one method trained for different lengths", _length,
        ),
        "training": Named("validation accuracy by epoch", "runs that were trained", _training),
        "loss": Named("training loss by epoch", "runs that were trained", _loss),
    }
)  # fmt: skip
"""The figures of runs by name, those that most papers need first."""
