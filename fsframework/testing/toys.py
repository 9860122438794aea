"""Small synthetic data, the same on every machine, that every valid component can use."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fsframework.interfaces.benchmark import BenchmarkResults, Selection
from fsframework.interfaces.dataset import Dataset
from fsframework.interfaces.section import ReportedData, ReportedRun, ReportedRuns
from fsframework.records import RunRecord
from fsframework.values import (
    ArmOutcomes,
    Arms,
    AttributeTable,
    Contrast,
    Entry,
    Estimate,
    ExperimentDescription,
    ExperimentResult,
    FigureDeclaration,
    ImagePool,
    ImageRecord,
    IntArray,
    Mark,
    Outcomes,
    Panel,
    Point,
    Quantity,
    Series,
    TableDeclaration,
    TaskSet,
    UInt8Array,
)

__all__ = [
    "toy_benchmark_results",
    "toy_figure",
    "toy_images",
    "toy_outcomes",
    "toy_pool",
    "toy_records",
    "toy_runs",
    "toy_selection",
    "toy_table",
]

_WORDS_AN_IMAGE = 3
_CONTEXTS = ("forest", "grass", "sand", "snow", "water")


def toy_pool(n_classes: int = 12, n_images: int = 80, n_words: int = 20) -> ImagePool:
    """Return a pool with attributes and a metadata column ``context``.

    Every image has three words drawn uniformly, which leaves enough images for FewSTAB tasks of 5
    ways, 5 shots and 15 queries; the contexts of a class alternate.

    Args:
        n_classes: number of classes.
        n_images: images per class.
        n_words: size of the vocabulary, at least 3; 0 for a pool without attributes.

    >>> pool = toy_pool(2, 3)
    >>> pool.keys[:3], pool.metadata["context"][:3]
    (('class-00/000.png', 'class-00/001.png', 'class-00/002.png'), ('forest', 'grass', 'sand'))
    """
    names = tuple(f"class-{c:02}" for c in range(n_classes))
    keys = tuple(f"{name}/{i:03}.png" for name in names for i in range(n_images))
    contexts = tuple(_CONTEXTS[i % len(_CONTEXTS)] for _ in names for i in range(n_images))
    table = None
    if n_words:
        rng = np.random.default_rng(0)
        order = rng.permuted(np.tile(np.arange(n_words), (len(keys), 1)), axis=1)
        columns = order[:, :_WORDS_AN_IMAGE].reshape(-1)
        rows = np.repeat(np.arange(len(keys)), columns.size // len(keys))
        words = [f"word-{w:02}" for w in range(n_words)]
        table = AttributeTable.from_indices(keys, words, rows, columns)
    labels = np.repeat(np.arange(n_classes), n_images)
    return ImagePool(keys, labels, names, {"context": contexts}, table)


def toy_outcomes(
    n_tasks: int = 6, n_way: int = 5, n_query: int = 8, *, accuracy: float = 0.6, seed: int = 0
) -> Outcomes:
    """Return predictions that are right with probability ``accuracy``, else any other way.

    >>> toy_outcomes(2, 3, 4).predictions.shape
    (2, 3, 4)
    """
    rng = np.random.default_rng(seed)
    shape = n_tasks, n_way, n_query
    truth = np.arange(n_way)[None, :, None]
    wrong = (truth + rng.integers(1, n_way, shape)) % n_way
    predictions = np.where(rng.random(shape) < accuracy, truth, wrong)
    return Outcomes(predictions, "toy", n_tasks * n_way * (n_query + 1), False)


def toy_images(count: int = 4, height: int = 48, width: int = 48) -> list[UInt8Array]:
    """Return uint8 RGB images ``(height, width, 3)``: a coloured disc on a coloured background.

    >>> [image.shape for image in toy_images(2, 32, 40)]
    [(32, 40, 3), (32, 40, 3)]
    """
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:height, :width]
    images = []
    for _ in range(count):
        ground, disc = rng.integers(0, 256, (2, 3), dtype=np.uint8)
        inside = (
            np.hypot(y - height * rng.random(), x - width * rng.random()) < min(height, width) / 3
        )
        images.append(np.where(inside[..., None], disc, ground))
    return images


def toy_records(count: int = 4) -> list[ImageRecord]:
    """Return records with a key, ``words`` and a ``caption``.

    >>> toy_records(1)[0].metadata["words"]
    'ball;green'
    """
    things = ("ball", "dog", "tree", "car")
    colours = ("green", "black", "red")
    found = []
    for i in range(count):
        thing, colour = things[i % len(things)], colours[i % len(colours)]
        metadata = {"words": f"{thing};{colour}", "caption": f"a {colour} {thing} on the grass"}
        found.append(ImageRecord(f"{thing}/{i:03}.png", metadata))
    return found


class _ToyImages(Dataset):
    """The images of ``toy_pool`` with the splits ``train`` and ``test``."""

    native_size = 48

    def __init__(self) -> None:
        pool = toy_pool(24, 80, 0)
        self.keys, self.labels, self.class_names = pool.keys, pool.labels, pool.class_names
        self.splits = {"train": self.class_names[:12], "test": self.class_names[12:]}
        columns = ("context", "background")
        self.metadata = dict.fromkeys(columns, pool.metadata["context"])
        self.metadata = {**self.metadata, "words": ("green;ball",) * len(self.keys)}
        self.fingerprint = "toy images"

    def image(self, index: int) -> UInt8Array:
        return toy_images(1)[0] if index < len(self.keys) else toy_images(2)[1]


def toy_selection(**chosen: Any) -> Selection:
    """Return what a user might ask of a benchmark: nothing but what is given.

    Data sets of any name are the same toy; the installed plugins are those of the main job.

    >>> toy_selection(shots=(1,)).shots
    (1,)
    """
    installed = {
        "method": ("baseline-plus-plus", "dn4", "maml", "ncc", "protonet", "r2d2", "renet"),
        "backbone": ("conv64f", "resnet10", "resnet12"),
        "sampler": ("context", "fewstab", "random"),
    }
    return Selection(installed=installed, open_dataset=lambda name: _ToyImages(), **chosen)


_ARMS = ("random", "biased", "iid", "ood")
"""Arms of every made-up run, next to those that its benchmark declares."""


def toy_benchmark_results(
    selection: Selection,
    experiments: Iterable[ExperimentDescription],
    *,
    arms: Sequence[str] = (),
    failed: bool = False,
) -> BenchmarkResults:
    """Return made-up results of experiments: the estimates of Acc and wAcc in several arms.

    Args:
        selection: that the experiments were made for.
        experiments: as a benchmark describes them.
        arms: that the benchmark declares; of two, the first is the control.
        failed: whether all of them failed.
    """
    described = list(experiments)
    made = [
        _toy_result(one, seed, tuple(arms), failed=failed) for seed, one in enumerate(described)
    ]
    return BenchmarkResults(selection, made)


def _toy_result(
    description: ExperimentDescription, seed: int, declared: tuple[str, ...], *, failed: bool
) -> ExperimentResult:
    arms = tuple(dict.fromkeys((*declared, *_ARMS)))
    contrast = Contrast(*declared) if len(declared) == 2 else Contrast("random", "biased")
    options = {
        "dataset": {"name": "toy"},
        "backbone": {"name": "conv64f"},
        "method": {"name": "toy"},
        "sampler": {"name": "toy", "n_way": 5, "n_shot": 1, "n_query": 8, "column": "context"},
        "training": [{"epochs": 0, "init_from": None}],
        "tasks": 6,
        "task_seed": 0,
        "training_seed": 0,
        "level": 0.95,
        "query_batch": "task",
        "recipe": None,
        "image_size": None,
    }
    if failed:
        return ExperimentResult(
            description=description, options=options, reason="the toy was told to fail"
        )
    return ExperimentResult(
        description=description,
        options=options,
        folder=Path("toys") / str(seed),
        fingerprint=f"toy-{seed}",
        data_fingerprint="toy images",
        trained=True,
        n_tasks=dict.fromkeys(arms, 6),
        estimates=_toy_estimates(arms, contrast, seed),
        notes=("a caution of the toys",),
        cautions=("a caution of the toys",),
        load_outcomes=lambda: _toy_arm_outcomes(arms, contrast, seed),
    )


def _toy_estimates(arms: tuple[str, ...], contrast: Contrast, seed: int) -> dict[str, Estimate]:
    measured = (*((arm,) for arm in arms), (contrast.control, contrast.tested))
    found = {}
    for number, statistic in enumerate(("acc", "wacc")):
        for place, of in enumerate(measured):
            value = 0.9 - 0.1 * place - 0.2 * number + 0.001 * seed
            estimate = Estimate(
                statistic,
                value,
                value - 0.05,
                value + 0.05,
                0.95,
                "closed",
                False,
                "student-t",
                6,
                200,
                share=True,
                arms=of,
            )
            found[estimate.name] = estimate
    return found


def _toy_tasks(place: int) -> TaskSet:
    pool = toy_pool(12, 40, 0)
    rng = np.random.default_rng(place)
    classes = np.stack([rng.choice(12, 5, replace=False) for _ in range(6)])
    images: IntArray = classes[..., None] * 40 + np.arange(9)
    return TaskSet.of(
        pool, classes, images[..., :1], images[..., 1:], sampler="toy", options={}, seed=0
    )


def _toy_arm_outcomes(arms: tuple[str, ...], contrast: Contrast, seed: int) -> ArmOutcomes:
    tasks = {arm: _toy_tasks(place) for place, arm in enumerate(arms)}
    outcomes = {}
    for place, (arm, one) in enumerate(tasks.items()):
        made = toy_outcomes(accuracy=0.8 - 0.1 * place, seed=seed)
        outcomes[arm] = Outcomes(made.predictions, one.digest, one.n_images, True)
    return ArmOutcomes(outcomes, Arms(tasks, contrast))


def toy_runs(
    n_runs: int = 2,
    *,
    names: Sequence[str] = ("first", "second"),
    finished: bool = True,
    words: bool = True,
) -> ReportedRuns:
    """Return runs as the sections of a report see them, on equal paired tasks.

    Args:
        n_runs: their number.
        names: what runs, classes and words are called, repeated with a number.
        finished: whether they have outcomes.
        words: whether their images have words.

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
    tasks = {arm: _toy_tasks_of(pool, place) for place, arm in enumerate(contrast.arms)}
    arms = Arms(tasks, contrast)
    runs = []
    for seed, label in enumerate(labels):
        outcomes = {}
        for place, (arm, one) in enumerate(tasks.items()):
            made = toy_outcomes(
                len(one), one.n_way, one.n_query, accuracy=0.9 - 0.2 * place, seed=seed
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
    record = RunRecord("0" * 64, "unfinished" if outcomes is None else "finished", "2026-01-01")
    return ReportedRun(
        label=label,
        folder=Path("runs") / "toy",
        record=record.to_json(),
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
