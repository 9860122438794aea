"""Data sets, pools and tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from fsframework.api.components import Component, component, layer
from fsframework.api.experiments import check_words_source
from fsframework.api.session import open_session
from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_settings
from fsframework.engine.detection import Detection
from fsframework.engine.lineage import SplitCounts, data_problems, similar_class_names, split_counts
from fsframework.engine.options import EMBEDDED, WordChoice, given_tree
from fsframework.engine.tasks import draw_arms
from fsframework.engine.words import (
    pool_with_attributes,
    read_attributes,
    without_class_words,
    without_dropped_words,
    words_in_classes,
)
from fsframework.errors import DataError, OptionError
from fsframework.interfaces.dataset import Dataset
from fsframework.values import Arms, AttributeTable, ImagePool

if TYPE_CHECKING:
    from fsframework.api import arguments

__all__ = [
    "SplitCounts",
    "attributes",
    "data_problems",
    "dataset",
    "draw",
    "opened",
    "pool",
    "similar_class_names",
    "split_counts",
    "without_class_words",
    "without_dropped_words",
    "words_in_classes",
]


def dataset(data: arguments.Dataset = EMBEDDED, **options: Any) -> Dataset:
    """Open a data set.

    Args:
        data: a name (``planted``, ``folder:./images``, one that was added with ``fsf data add``),
            a mapping of a name and options, a class, or an instance, which is returned as it is.
        **options: of the data set, in addition to those in ``data``.

    Raises:
        FsfError: the data set is unknown, or its files are missing or broken.

    >>> dataset("planted", n_per_class=8, size=16).splits.keys()
    dict_keys(['train', 'val', 'test'])
    """
    return opened(Registry(), _of_call(data), layer(options, "call"))[1]


def _of_call(request: Any) -> Any:
    """Return a request whose options the caller, and no file, has given."""
    return layer(request, "call") if isinstance(request, Mapping) else request


def opened(
    registry: Registry, data: Any, options: Mapping[str, Any] | None = None
) -> tuple[Component, Dataset]:
    """Return a data set and the component that made it."""
    if isinstance(data, Dataset):
        if options:
            raise OptionError("an open data set has its options already; open another one")
        return component(registry, "dataset", data), data
    found = component(registry, "dataset", data, options)
    return found, found.create()


def pool(  # noqa: PLR0913 - an option each
    data: arguments.Dataset = EMBEDDED,
    *,
    split: str = "test",
    attributes: str | Path | AttributeTable | None = None,
    detector: arguments.Detector | None = None,
    device: str = "auto",
    offline: bool = False,
    cache_dir: str | Path | None = None,
    progress: bool = True,
    **dropping: Unpack[arguments.Dropping],
) -> ImagePool:
    """Return the images of a split that tasks are drawn from, with their words.

    Args:
        data: what ``dataset`` takes.
        split: name of a split, or ``all``.
        attributes: a table, a ``.csv`` or ``.parquet`` file, or ``column:NAME`` for a metadata
            column; by default the data set's own words, if it has any.
        detector: a name, a mapping of a name and options, a class or an instance, to detect the
            words in the images.
        device: where the detector runs.
        offline: whether the detector must not use the network.
        cache_dir: where its answers are cached, so that no image is processed twice.
        progress: whether its progress is shown.
        **dropping: words that images are not to have: ``drop_class_words``, ``drop_words``,
            ``drop_words_in_classes`` and ``min_count``, as in ``fsframework.run``.

    Raises:
        DataError: the data set has no such split, the words are not of its images, or an image
            cannot be read by the detector.
        OptionError: both ``attributes`` and ``detector`` are given.

    >>> pool({"name": "planted", "n_per_class": 8, "size": 16}).class_sizes[:3].tolist()
    [8, 8, 8]
    """
    session = open_session(cache_dir=cache_dir, progress=progress)
    origin, source = opened(session.registry, _of_call(data))
    found = source.pool(split)
    words, _ = resolve_settings(WordChoice, given_tree(dropping, "call"), "words")
    if isinstance(attributes, AttributeTable):
        return without_dropped_words(found.with_attributes(attributes), words)
    check_words_source(attributes)
    detection = None
    if detector is not None:
        if attributes is not None:
            raise OptionError("words are either read or detected: leave out attributes or detector")
        seen_by = component(session.registry, "detector", _of_call(detector))
        detection = Detection(seen_by, source, origin, split, session, device, offline)
    elif attributes is not None:
        words = replace(words, attributes=str(attributes))
    elif "words" not in found.metadata:
        if words.drops:
            raise DataError("there are no words to drop: the data set has none, and none are given")
        return found
    return pool_with_attributes(found, words, session.reporter, detection)[0]


def draw(
    sampler: arguments.Sampler,
    pool: ImagePool,
    *,
    tasks: int | Literal["all"] = 600,
    seed: int = 0,
    way: int | None = None,
    shot: int | None = None,
    queries: int | None = None,
    **options: Any,
) -> Arms:
    """Draw tasks with a sampler, and with its control where it declares one.

    Args:
        sampler: a name (``fewstab``), a mapping of a name and options, a class or an instance.
        pool: the images to draw from.
        tasks: number of tasks of each arm; ``"all"`` for samplers that end.
        seed: task ``t`` depends on the seed and ``t`` only.
        way: classes per task.
        shot: support images per class.
        queries: query images per class.
        **options: of the sampler.

    Returns:
        The task sets by name of the arm, the control first.

    Raises:
        InfeasibleTask: the pool cannot yield such tasks; the message says what would work.

    >>> images = pool({"name": "planted", "n_per_class": 20, "size": 16})
    >>> arms = draw("fewstab", images, tasks=5, shot=1, queries=4)
    >>> list(arms), arms["biased"].n_shot
    (['random', 'biased'], 1)
    """
    if not isinstance(pool, ImagePool):
        raise OptionError(f"pool must be a pool, as fsframework.pool(...) gives, not {pool!r:.80}")
    registry = Registry()
    tree = given_tree({"way": way, "shot": shot, "queries": queries, "tasks": tasks}, "call")
    given = {**tree.get("sampler", {}), **layer(options, "call")}
    chosen = component(registry, "sampler", _of_call(sampler), given)
    return draw_arms(registry, chosen, pool, tree["tasks"].value, seed, None)


def attributes(file: str | Path) -> AttributeTable:
    """Read a table of words from a file.

    To detect the words of images that have no table yet, use ``fsframework.pool(data,
    detector=...)``, whose ``attributes`` is a table.

    Args:
        file: ``.parquet``, or ``.csv`` with the columns ``key`` and ``words``, separated by ``;``.

    Raises:
        DataError: the file is missing or damaged; the message names the row.
        OptionError: the file has another ending.
    """
    check_words_source(file)
    return read_attributes(Path(file))
