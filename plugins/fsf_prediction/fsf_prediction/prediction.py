"""Predict the classes of a user's own images from a few labelled images per class."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from fsf_prediction.files import SupportFiles, find_queries, find_support
from fsframework.api.experiments import resolved, tree_of_call
from fsframework.api.models import Model, model_of
from fsframework.api.session import Session, open_session
from fsframework.errors import DataError, OptionError, close_matches
from fsframework.values import FloatArray, IntArray, UInt8Array

if TYPE_CHECKING:
    from fsf_datasets.image_files import ImageFiles
    from fsframework.api.arguments import Arguments

__all__ = ["MOST_DRAWS", "Predictions", "draws_of", "predict", "predict_files"]

_KEYS = (
    *("method", "backbone", "model", "training", "image_size", "seed", "task_seed"),
    "allow_external",
    *("training_seed", "device"),
    *("precision", "decoding", "broken", "offline"),
)
_TRAINING_KEYS = frozenset({"init_from", "init_parts"})
MOST_DRAWS = 10
"""Supports drawn if classes have unequal numbers of images."""
_QUERIES_AT_ONCE = {"images": 64, "maps": 256, "vectors": 1024}
_IMAGES_AT_ONCE = 256

Items = npt.NDArray[np.float32]
"""Embedded images, ``(n, *embedded)``."""


@dataclass(frozen=True)
class Predictions:
    """The predicted class of each query.

    Args:
        classes: names of the classes.
        files: files of the queries, as they were given.
        probabilities: float64 ``(n, classes)``, rows that sum to 1: the softmax of the method's
            scores, averaged over the draws of the support.
        model: the model that made the prediction.
        seed: seed of the draws and of random weights.
        shot: support images per class and draw.
        draws: number of supports that were drawn.
        broken: one sentence per image that was left out.
        notes: what a reader must know.
    """

    classes: tuple[str, ...]
    files: tuple[Path, ...]
    probabilities: FloatArray
    model: Model
    seed: int
    shot: int
    draws: int
    broken: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def predicted(self) -> tuple[str, ...]:
        """The most likely class of each query; the first of equally likely classes."""
        return tuple(self.classes[int(i)] for i in self.probabilities.argmax(axis=1))

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        rows = zip(self.files, self.predicted, self.probabilities.tolist(), strict=True)
        return {
            "method": self.model.name,
            "backbone": self.model.backbone,
            "image_size": self.model.image_size,
            "run": None if self.model.source is None else str(self.model.source),
            "seed": self.seed,
            "classes": list(self.classes),
            "shot": self.shot,
            "draws": self.draws,
            "predictions": [
                {
                    "file": str(file),
                    "class": name,
                    "scores": dict(zip(self.classes, row, strict=True)),
                }
                for file, name, row in rows
            ],
            "broken": list(self.broken),
            "notes": list(self.notes),
        }


def draws_of(sizes: Sequence[int], seed: int) -> list[list[IntArray]]:
    """Return the images of each class in each draw.

    Methods take the same number of images of each class. If all classes have the same number, there
    is one draw of all images in their order. Otherwise each draw has as many images of each class
    as the smallest class has; a class cycles through its images, shuffled once, and enough draws
    use all of them.

    Args:
        sizes: number of images of each class.
        seed: seed of the shuffling.

    Returns:
        For each draw, the indices within each class, int64 ``(shot,)``.

    >>> [[c.tolist() for c in draw] for draw in draws_of([2, 2], 0)]
    [[[0, 1], [0, 1]]]
    >>> draws = draws_of([2, 5], 0)
    >>> len(draws), sorted({int(i) for draw in draws for i in draw[1]})
    (3, [0, 1, 2, 3, 4])
    """
    shot = min(sizes)
    if max(sizes) == shot:
        return [[np.arange(shot) for _ in sizes]]
    rng = np.random.default_rng(seed)
    orders = [np.arange(size) if size == shot else rng.permutation(size) for size in sizes]
    number = min(MOST_DRAWS, math.ceil(max(sizes) / shot))
    return [
        [order[(draw * shot + np.arange(shot)) % len(order)] for order in orders]
        for draw in range(number)
    ]


def predict(
    files: str | Path | Sequence[str | Path],
    support: str | Path,
    *,
    config: str | Path | Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
    cache_dir: str | Path | None = None,
    progress: bool = True,
    **arguments: Unpack[Arguments],
) -> Predictions:
    """Classify images from a few examples per class, as ``fsf predict`` does.

    Args:
        files: images, folders of images, and patterns, or one of them.
        support: folder with one sub-folder of images per class.
        config: a TOML file, or a mapping of the same shape; other arguments take precedence.
        plugins: Python files whose plugin classes are loaded too.
        cache_dir: where pretrained weights and features are cached.
        progress: whether progress is shown on standard error.
        **arguments: those of ``fsframework.run`` that concern the model: ``model``, or ``method``
            and ``backbone``; ``image_size``, ``broken``, ``seed``, ``device``, ``offline``.

    Raises:
        OptionError: an option does not apply to a prediction.
        DataError: a file does not exist or cannot be read.
    """
    session = open_session(cache_dir=cache_dir, plugins=plugins, progress=progress)
    several = [files] if isinstance(files, (str, bytes, os.PathLike)) else files
    queries = find_queries([os.fsdecode(file) for file in several])
    tree = tree_of_call(arguments, config)
    return predict_files(tree, session, find_support(Path(support)), queries)


def predict_files(
    tree: Mapping[str, Any], session: Session, support: SupportFiles, queries: ImageFiles
) -> Predictions:
    """Predict the class of every query.

    Args:
        tree: method, backbone, model and settings, from ``fsframework.cli.options.tree_of``.
        session: the session of the command.
        support: the labelled images.
        queries: the images to classify.

    Raises:
        OptionError: an option does not apply to a prediction, or the method has another fixed
            number of classes.
        DataError: an image cannot be read, and ``broken`` is not ``skip``, or no image to classify
            or none of a class can be read.
    """
    _check_keys(tree)
    untrained = {} if "model" in tree else {"recipe": "none", "training": {"epochs": 0}}
    # A method with a fixed number of classes is created for this number.
    experiment = resolved(tree, session, way=len(support.classes), **untrained)
    model = model_of(experiment)
    if model.network.method.needs_words:
        raise OptionError(
            f"{model.name} needs the words of the support images, and a prediction has none; use "
            "another method"
        )
    labelled = _Images(support.images, model, experiment.options)
    unlabelled = _Images(queries, model, experiment.options)
    count = len(queries.paths)
    with session.reporter.stage("images", len(support.images.paths) + count) as advance:
        shown = []
        for name, rows in support.classes.items():
            items, kept = labelled.embedded(rows)
            if not kept:
                raise DataError(f"no image of the class {name!r} can be read")
            shown.append(items)
            advance(len(rows))
        seed = int(experiment.options["task_seed"])
        draws = draws_of([len(items) for items in shown], seed)
        supports = [
            np.stack([items[index] for items, index in zip(shown, draw, strict=True)])
            for draw in draws
        ]
        names = tuple(support.classes)
        kept, found = [], []
        for block in _blocks(count, model):
            items, good = unlabelled.embedded(block)
            if good:
                kept += [block[i] for i in good]
                scored = [_probabilities(model, s, items, names) for s in supports]
                found.append(np.mean(scored, 0))
            advance(len(block))
    if not kept:
        raise DataError(f"no image to classify can be read: {unlabelled.broken[0]}")
    sizes = dict(zip(support.classes, map(len, shown), strict=True))
    return Predictions(
        classes=names,
        files=tuple(queries.paths[row] for row in kept),
        probabilities=np.concatenate(found),
        model=model,
        seed=seed,
        shot=min(sizes.values()),
        draws=len(draws),
        broken=(*labelled.broken, *unlabelled.broken),
        notes=(
            *_model_notes(model),
            *_overlap_note(support.images.paths, queries.paths),
            *support.images.notes,
            *queries.notes,
            *_support_notes(sizes, len(draws)),
        ),
    )


def _check_keys(tree: Mapping[str, Any]) -> None:
    for key in tree:
        if key not in _KEYS:
            raise OptionError(
                f"{key} does not apply to a prediction{close_matches(key, _KEYS)}; these do: "
                f"{', '.join(_KEYS)}"
            )
    training = tree.get("training", {})
    if not isinstance(training, Mapping) or set(training) - _TRAINING_KEYS:
        raise OptionError(
            "a prediction trains nothing, so only init_from and init_parts of training apply; "
            "train with fsf run, then give its folder with --model"
        )


def _blocks(count: int, model: Model) -> Iterator[range]:
    """Yield the queries that a method is shown together, block by block."""
    method = model.network.method
    at_once = count if method.transductive else _QUERIES_AT_ONCE[method.consumes]
    for start in range(0, count, at_once):
        yield range(start, min(start + at_once, count))


@dataclass
class _Images:
    """Reads images by row, in batches, and embeds them; collects a sentence per broken image."""

    files: ImageFiles
    model: Model
    options: Mapping[str, Any]
    broken: list[str] = field(default_factory=list)

    def embedded(self, rows: Sequence[int]) -> tuple[Items, list[int]]:
        """Return the embedded images and the positions in ``rows`` of those that can be read."""
        found: list[Items] = []
        kept: list[int] = []
        for start in range(0, len(rows), _IMAGES_AT_ONCE):
            pixels, good = self._pixels(rows[start : start + _IMAGES_AT_ONCE])
            if good:
                found.append(self.model.embed(pixels))
                kept += [start + place for place in good]
        return (np.concatenate(found) if found else np.empty(0, np.float32)), kept

    def _pixels(self, rows: Sequence[int]) -> tuple[UInt8Array, list[int]]:
        try:
            return self._read(rows), list(range(len(rows)))
        except DataError:
            pass  # one by one, to name what is broken
        good: list[int] = []
        size = self.model.image_size
        parts = [np.empty((0, size, size, 3), dtype=np.uint8)]
        for place, row in enumerate(rows):
            try:
                parts.append(self._read([row]))
                good.append(place)
            except DataError as error:
                if self.options["broken"] == "fatal":
                    raise DataError(f"{error}; --broken skip leaves such images out") from None
                self.broken.append(str(error))
        return np.concatenate(parts), good

    def _read(self, rows: Sequence[int]) -> UInt8Array:
        scaled = self.options["decoding"] == "scaled"
        read = self.files.scaled_images if scaled else self.files.images
        return read(rows, self.model.image_size, self.model.network.interpolation)


def _probabilities(model: Model, support: Items, query: Items, names: Sequence[str]) -> FloatArray:
    """Return the softmax of the scores, float64 ``(n, way)``.

    Args:
        model: the model.
        support: ``(way, shot, *embedded)``.
        query: ``(n, *embedded)``.
        names: of the classes.
    """
    scores = model.embedded_scores(support, query, names).astype(np.float64)
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: FloatArray = raised / raised.sum(axis=1, keepdims=True)
    return probabilities


def _model_notes(model: Model) -> Iterator[str]:
    if model.trained == "nothing":
        yield (
            f"{model.backbone} has random weights, so these predictions mean little; "
            "give a run with --model, or a pretrained backbone"
        )
    elif model.trained == "backbone":
        yield f"the weights of {model.name} itself are untrained; give a run of it with --model"
    if model.network.method.transductive:
        yield (
            f"{model.name} uses all queries together: with other queries, an image may get other "
            "scores"
        )


def _overlap_note(support: Sequence[Path], queries: Sequence[Path]) -> Iterator[str]:
    labelled = set(map(os.path.realpath, support))
    if both := sum(os.path.realpath(file) in labelled for file in queries):
        queries_are = "1 query is" if both == 1 else f"{both:,} queries are"
        yield f"{queries_are} also in the support, where the class is given"


def _support_notes(sizes: Mapping[str, int], draws: int) -> Iterator[str]:
    if draws == 1:
        return
    least, most = min(sizes, key=lambda c: sizes[c]), max(sizes, key=lambda c: sizes[c])
    shot = sizes[least]
    left = ""
    if draws * shot < sizes[most]:
        left = f"; of {most!r} only {draws * shot} are used"
    yield (
        f"classes have {shot} ({least!r}) to {sizes[most]} ({most!r}) images: each draw uses "
        f"{shot} per class, and scores are means over {draws} draws{left}"
    )
