"""Small made-up runs, figures and tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fsf_reports.interfaces import ReportedData, ReportedRun, ReportedRuns
from fsf_reports.values import (
    Entry,
    FigureDeclaration,
    Mark,
    Panel,
    Point,
    Quantity,
    Series,
    TableDeclaration,
)
from fsframework.testing import toy_images, toy_outcomes, toy_pool, toy_record
from fsframework.values import (
    ArmOutcomes,
    Arms,
    Contrast,
    Estimate,
    ImagePool,
    IntArray,
    Outcomes,
    TaskSet,
    UInt8Array,
)

__all__ = ["toy_figure", "toy_runs", "toy_table"]


def toy_runs(
    n_runs: int = 2,
    *,
    names: Sequence[str] = ("first", "second"),
    finished: bool = True,
    words: bool = True,
    task_seed: int = 0,
    seed: int = 0,
) -> ReportedRuns:
    """Return runs as the sections of a report see them, on equal paired tasks.

    Args:
        n_runs: their number.
        names: what runs, classes and words are called, repeated with a number.
        finished: whether they have outcomes.
        words: whether their images have words.
        task_seed: of the tasks of both arms.
        seed: of the answers of the first run.

    >>> runs = toy_runs(3)
    >>> [run.label for run in runs], len(runs.by_tasks())
    (['first', 'second', 'first 2'], 1)
    """
    labels = [f"{names[i % len(names)]}{f' {i}' if i >= len(names) else ''}" for i in range(n_runs)]
    if not finished:
        reason = "not finished"
        return ReportedRuns(_toy_run(label, {}, reason=reason) for label in labels)
    pool = toy_pool(12, 80, 20 if words else 0)
    called = tuple(f"{names[i % len(names)]} {i}" for i in range(12))
    pool = dataclasses.replace(pool, class_names=called)
    data = ReportedData(
        name=names[0], split="test", key_digest=pool.key_digest, pool=pool, read=_toy_pixels
    )
    contrast = Contrast("plain", "hard", paired=True)
    tasks = {arm: _toy_tasks_of(pool, task_seed + place) for place, arm in enumerate(contrast.arms)}
    arms = Arms(tasks, contrast)
    runs = []
    for number, label in enumerate(labels, seed):
        outcomes = {}
        for place, (arm, one) in enumerate(tasks.items()):
            made = toy_outcomes(
                len(one), one.n_way, one.n_query, accuracy=0.9 - 0.2 * place, seed=number
            )
            outcomes[arm] = Outcomes.of(one, made.predictions)
        answered = ArmOutcomes(outcomes, arms)
        runs.append(_toy_run(label, _estimates_of_run(answered, contrast), answered, data))
    return ReportedRuns(runs)


def _toy_tasks_of(pool: ImagePool, seed: int) -> TaskSet:
    """Return tasks whose ways are tied to words, where the images have any."""
    rng = np.random.default_rng(seed)
    classes = np.stack([rng.permutation(12)[:5] for _ in range(12)])
    place = np.stack([rng.permutation(80)[:8] for _ in range(60)]).reshape(12, 5, 8)
    images: IntArray = classes[..., None] * 80 + place
    tasks = TaskSet.of(
        pool, classes, images[..., :2], images[..., 2:], sampler="toy", options={}, seed=seed
    )
    if pool.attributes is None:
        return tasks
    attribute = rng.integers(0, len(pool.attributes.words), classes.shape)
    return tasks.with_attributes(pool.attributes, attribute, rng.random(classes.shape) < 0.1)


def _estimates_of_run(outcomes: ArmOutcomes, contrast: Contrast) -> dict[str, Estimate]:
    made = {}
    means = {arm: float(one.task_accuracy.mean()) for arm, one in outcomes.items()}
    gap = means[contrast.control] - means[contrast.tested]
    values = {(arm,): mean for arm, mean in means.items()} | {contrast.arms: gap}
    for arms, value in values.items():
        estimate = Estimate(
            "acc",
            value,
            value - 0.1,
            value + 0.1,
            0.95,
            "closed",
            True,
            "student-t",
            12,
            480,
            share=True,
            arms=arms,
        )
        made[estimate.name] = estimate
    return made


def _toy_pixels(images: IntArray) -> dict[int, UInt8Array]:
    """Return every second image: the others are no longer there."""
    return {int(i): toy_images(1)[0] for i in images if i % 2 == 0}


def _toy_run(
    label: str,
    estimates: dict[str, Estimate],
    outcomes: ArmOutcomes | None = None,
    data: ReportedData | None = None,
    reason: str = "",
) -> ReportedRun:
    return ReportedRun(
        label=label,
        folder=Path("runs") / "toy",
        record=toy_record("unfinished" if outcomes is None else "finished"),
        reason=reason,
        arms=None if outcomes is None else outcomes.arms,
        outcomes=outcomes,
        estimates=estimates,
        measures={name: name for name in estimates},
        data=data,
    )


def toy_figure(
    mark: Mark = "bars", *, names: Sequence[str] = ("maml", "protonet"), missing: bool = False
) -> FigureDeclaration:
    """Return a figure of two panels with two series of several values each.

    Args:
        mark: how the values are shown.
        names: at least two, of categories, series, panels, labels and axes.
        missing: whether the first value of each series is missing.

    >>> figure = toy_figure("points")
    >>> len(figure.panels), len(figure.points), figure.points[0].label
    (2, 8, 'maml')
    """
    panels = tuple(
        Panel(
            f"{shift} {name}",
            tuple(
                Series(series, _toy_points(mark, names, 10.0 * shift + 5.0 * place, missing))
                for place, series in enumerate(names[:2])
            ),
            {} if mark == "points" else {name: f"{name} below" for name in names},
        )
        for shift, name in enumerate(names[:2])
    )
    first, second = names[:2]
    return FigureDeclaration(
        "Toys",
        f"Values of {first}.",
        f"{first} (%)",
        f"{second} (%)",
        panels,
        caption_axis="" if mark == "points" else "what is below",
        mark=mark,
        diagonal=mark == "points",
        notes=(f"Intervals of {first}.",),
    )


def toy_table(names: Sequence[str] = ("maml", "protonet"), *, reason: str = "") -> TableDeclaration:
    """Return a table with a row per name, measured and printed values, marks and a note.

    Args:
        names: at least two, of rows, and in the title, a column and the note.
        reason: why the last row has no measured values; empty where it has them.

    >>> toy_table().columns, toy_table().rows
    (('Acc', 'gap of maml'), (('1', 'maml'), ('1', 'protonet')))
    """
    entries = []
    for place, name in enumerate(names):
        missing = reason if place == len(names) - 1 else ""
        for shift, column in enumerate(("Acc", f"gap of {names[0]}")):
            value = Quantity.around(21.25 + 10 * place + shift, 1.5)
            entries.append(
                Entry(
                    ("1", name),
                    column,
                    None if missing else value,
                    missing,
                    Quantity.around(20.75 + place, 0.25) if shift == 0 else None,
                    about={"shot": 1},
                    mark="best" if place == 0 else "",
                )
            )
    title = f"Accuracy of {names[0]}."
    notes = (f"Intervals of {names[1]}.",)
    return TableDeclaration("Toys", title, ("shot", "method"), tuple(entries), notes)


def _toy_points(mark: Mark, names: Sequence[str], start: float, missing: bool) -> tuple[Point, ...]:
    x: tuple[float | str | Quantity, ...] = tuple(names)
    if mark == "points":
        x = tuple(Quantity.around(start + 3.0 * n, 1.0) for n in range(len(names)))
    elif mark == "lines":
        x = tuple(float(n) for n in range(len(names)))
    return tuple(
        Point(
            place,
            None if missing and n == 0 else Quantity.around(start + 2.0 * n + 1.0, 2.0),
            names[n] if mark == "points" else "",
        )
        for n, place in enumerate(x)
    )
