"""The data under test: classes, words, and which images each arm used."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from fsf_reports._sections._headline import titled
from fsf_reports.interfaces import ReportedData, ReportedRun, ReportedRuns, Section
from fsf_reports.values import Block, Entry, Quantity, TableDeclaration, Text
from fsframework.values import Arms, ImagePool

__all__ = ["DataAndWords"]

_MOST_WORDS = 300


class DataAndWords(Section):
    """The data set, its words, how many images each arm used, and relaxed classes."""

    title: ClassVar[str] = "Data and words"
    place: ClassVar[int] = 500

    def blocks(self, runs: ReportedRuns) -> Iterator[Block]:
        """Return a summary of each arm, and a table of classes and of words for each data set."""
        groups = runs.by_tasks()
        described: list[ReportedData] = []
        for number, (run, *_) in enumerate(groups, start=1):
            assert run.data is not None
            if not any(data is run.data for data in described):
                described.append(run.data)
                yield from _described(run.data)
            for table in _tables(run):
                yield dataclasses.replace(table, name=titled(table.name, number, groups))


def _tables(run: ReportedRun) -> Iterator[TableDeclaration]:
    assert run.data is not None
    assert run.arms is not None
    yield _arms(run)
    if run.data.pool is not None:
        yield _classes(run.data.name, run.data.pool, run.arms)
        if run.data.pool.attributes is not None:
            yield _words(run.data.name, run.data.pool, run.arms)


def _described(data: ReportedData) -> Iterator[Text]:
    pool = data.pool
    if pool is None:
        yield Text((f"{data.name}: {data.reason}; classes and images are numbered.",), "caution")
        return
    words = ""
    if pool.attributes is not None:
        mean = pool.attributes.words_per_image().mean()
        words = f", {len(pool.attributes.words):,} words, {mean:.1f} per image on average"
    yield Text(
        (
            f"{data.name}, split {data.split}: {len(pool):,} images of {len(pool.class_names):,} "
            f"classes{words}.",
        )
    )
    if data.reason:
        yield Text((f"Images are shown by their keys: {data.reason}.",), "caution")


def _count(value: float) -> Quantity:
    return Quantity(float(value), unit="")


def _arms(run: ReportedRun) -> TableDeclaration:
    assert run.arms is not None
    total = len(run.data.pool) if run.data is not None and run.data.pool is not None else None
    entries = []
    for arm, tasks in run.arms.items():
        values = {
            "tasks": _count(len(tasks)),
            "images used": _count(tasks.n_images),
            "of all images (%)": None if total is None else Quantity(100 * tasks.n_images / total),
            "times an image is used": Quantity(tasks.images.size / tasks.n_images, unit=""),
            "relaxed classes (%)": Quantity(100 * float(tasks.relaxed.mean())),
        }
        reason = "the data cannot be opened"
        entries += [
            Entry((arm, tasks.sampler), name, value, "" if value else reason)
            for name, value in values.items()
        ]
    notes = (
        "A class of a task is relaxed where too few images met the sampler's condition on its "
        "queries, so that some only lack the class's own word.",
    )
    assert run.data is not None
    title = f"what the tasks of each arm used of {run.data.name}"
    return TableDeclaration("Arms", title, ("arm", "sampler"), tuple(entries), notes)


def _classes(name: str, pool: ImagePool, arms: Arms) -> TableDeclaration:
    used = {
        arm: np.bincount(pool.labels[np.unique(t.images)], minlength=len(pool.class_names))
        for arm, t in arms.items()
    }
    drawn = {
        arm: np.bincount(t.classes.ravel(), minlength=len(pool.class_names))
        for arm, t in arms.items()
    }
    relaxed = {
        arm: np.bincount(t.classes[t.relaxed], minlength=len(pool.class_names))
        for arm, t in arms.items()
        if t.relaxed.any()
    }
    entries = []
    for label, class_name in enumerate(pool.class_names):
        values = {"images": pool.class_sizes[label]}
        values |= {f"tasks, {arm}": found[label] for arm, found in drawn.items()}
        values |= {f"used, {arm}": found[label] for arm, found in used.items()}
        values |= {f"relaxed, {arm}": found[label] for arm, found in relaxed.items()}
        entries += [Entry((class_name,), n, _count(v)) for n, v in values.items()]
    title = f"images of {name} per class, and tasks that drew and that relaxed the class"
    return TableDeclaration("Classes", title, ("class",), tuple(entries))


def _words(name: str, pool: ImagePool, arms: Arms) -> TableDeclaration:
    assert pool.attributes is not None
    words = pool.attributes.words
    of_class = np.zeros((len(pool.class_names), len(words)), np.int64)
    label = np.repeat(pool.labels, pool.attributes.words_per_image())
    np.add.at(of_class, (label, pool.attributes.indices), 1)
    images = of_class.sum(axis=0)
    spurious = ((of_class > 0) & (of_class < pool.class_sizes[:, None])).sum(axis=0)
    common = (2 * of_class > pool.class_sizes[:, None]).sum(axis=0)
    tied = {arm: _tied(t.words, t.attribute) for arm, t in arms.items() if (t.attribute >= 0).any()}
    order = np.argsort(-images, kind="stable")[:_MOST_WORDS]
    entries = []
    for w in order:
        values = {
            "images": images[w],
            "classes where it is spurious": spurious[w],
            "classes where most images have it": common[w],
        }
        values |= {f"tied, {arm}": found.get(words[w], 0) for arm, found in tied.items()}
        entries += [Entry((words[w],), n, _count(v)) for n, v in values.items()]
    left = len(words) - len(order)
    notes = [
        "A word is spurious for a class if some of its images have it and some lack it. One that "
        "most images of nearly every class have may say what the classes are.",
    ]
    if left > 0:
        notes.append(f"The {left:,} words of the fewest images are left out.")
    title = f"words of {name}, and in how many supports each was tied to a class"
    return TableDeclaration("Words", title, ("word",), tuple(entries), tuple(notes))


def _tied(words: tuple[str, ...], attribute: np.ndarray) -> dict[str, int]:  # type: ignore[type-arg]
    counts = np.bincount(attribute[attribute >= 0], minlength=len(words))
    return dict(zip(words, counts.tolist(), strict=True))
