"""The classes of a user's own images, told from a few labelled ones of each class."""

from __future__ import annotations

import csv
import math
import re
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fsframework.components.registry import Registry
from fsframework.components.resolution import Given
from fsframework.errors import DataError, OptionError, close_matches
from fsframework.interfaces.dataset import Dataset
from fsframework.pipeline.cache.images import image_size
from fsframework.pipeline.experiment.configuration import Experiment
from fsframework.pipeline.experiment.settings import Settings, resolve_experiment
from fsframework.pipeline.experiment.stages import Precision
from fsframework.pipeline.learning.evaluation import embedded
from fsframework.pipeline.learning.model import (
    FewShotModel,
    build_model,
    lowered,
    reseed,
    resolve_device,
    seeded,
)
from fsframework.pipeline.learning.training import start_from
from fsframework.pipeline.progress import Advance, Reporter
from fsframework.values import FloatArray, IntArray, UInt8Array

__all__ = [
    "MOST_DRAWS",
    "Predictions",
    "SupportFiles",
    "draws_of",
    "find_queries",
    "find_support",
    "predict_files",
]

_ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".webp", ".gif"})
_ORIGIN = "fsf predict"
_KEYS = frozenset(
    {
        *("method", "backbone", "model", "training", "image_size", "seed", "device"),
        *("precision", "decoding", "broken", "offline"),
    }
)
_TRAINING_KEYS = frozenset({"init_from", "init_parts"})
MOST_DRAWS = 10
"""Supports drawn where classes have unequal numbers of images."""
_QUERIES_AT_ONCE = {"images": 64, "maps": 256, "vectors": 1024}
_IMAGES_A_READING = 256


@dataclass(frozen=True)
class SupportFiles:
    """Labelled images: the files of each class, and how many lay beside the classes."""

    classes: Mapping[str, tuple[Path, ...]]
    loose: int = 0


@dataclass(frozen=True)
class Predictions:
    """The class of each query.

    Args:
        classes: their names.
        files: of the queries, as they were given.
        run: the folder whose weights made the prediction, if any; ``seed`` of the draws, and of
            random weights.
        probabilities: float64 ``(n, classes)``, rows that sum to 1: the softmax of the method's
            scores, averaged over the draws of the support.
        shot: support images a class that were shown together; ``draws`` how often.
        broken: sentences on images that were left out.
        notes: what a reader must know.
    """

    classes: tuple[str, ...]
    files: tuple[Path, ...]
    probabilities: FloatArray
    method: str
    backbone: str
    shot: int
    draws: int
    image_size: int
    seed: int
    run: Path | None = None
    broken: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def predicted(self) -> tuple[str, ...]:
        """The likeliest class of each query; of equals the first."""
        return tuple(self.classes[int(i)] for i in self.probabilities.argmax(axis=1))

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        rows = zip(self.files, self.predicted, self.probabilities.tolist(), strict=True)
        return {
            "method": self.method,
            "backbone": self.backbone,
            "image_size": self.image_size,
            "run": None if self.run is None else str(self.run),
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


def find_support(folder: Path) -> SupportFiles:
    """Find the images of each class: those in each sub-folder, at any depth.

    A folder that holds nothing but one other folder is passed through, as archives have it.

    Raises:
        DataError: there is no such folder, fewer than two classes, or a class without an image.
    """
    if not folder.is_dir():
        raise DataError(f"--support {folder}: no such folder")
    inner = folder
    while not _images_in(inner) and len(_folders(inner)) == 1:
        (only,) = _folders(inner)
        if not _folders(only):
            break
        inner = only
    found = {
        unicodedata.normalize("NFC", sub.name): tuple(_images_below(sub)) for sub in _folders(inner)
    }
    if len(found) < 2:
        raise DataError(
            f"--support {folder}: needs a sub-folder with images for each of two classes or more, "
            f"such as {folder}/cat/1.jpg; there {'is' if len(found) == 1 else 'are'} {len(found)}"
        )
    empty = [name for name, files in found.items() if not files]
    if empty:
        raise DataError(f"--support {folder}: no image in {', '.join(map(repr, empty[:3]))}")
    return SupportFiles(found, len(_images_in(inner)))


def find_queries(given: Sequence[str]) -> tuple[Path, ...]:
    """Return the files that names, folders (at any depth) and patterns stand for, each once.

    Raises:
        DataError: there is no such file, or nothing fits a pattern.
    """
    found: list[Path] = []
    for one in given:
        path = Path(one).expanduser()
        if path.is_dir():
            files = list(_images_below(path))
            if not files:
                raise DataError(f"--query {one}: no image in this folder")
            found += files
        elif path.exists():
            found.append(path)
        elif matches := _matching(path):
            found += matches
        else:
            raise DataError(f"--query {one}: no such file")
    if not found:
        raise OptionError("say which images are to be predicted, with --query FILE, folder or both")
    unique: dict[str, Path] = {}
    for file in found:
        unique.setdefault(_place(file), file)
    return tuple(unique.values())


def _matching(pattern: Path) -> list[Path]:
    """Return the files that a pattern stands for, where the shell has left it as it is."""
    root = Path(pattern.anchor)
    try:
        matches = [m for m in root.glob(str(pattern.relative_to(root))) if m.is_file()]
    except (ValueError, NotImplementedError):  # no pattern
        return []
    return sorted(matches, key=lambda match: _natural(str(match)))


def _place(file: Path) -> str:
    return str(file.absolute())


def _folders(folder: Path) -> list[Path]:
    inner = (f for f in folder.iterdir() if f.is_dir() and not f.name.startswith("."))
    return sorted(inner, key=lambda f: _natural(f.name))


def _images_in(folder: Path) -> list[Path]:
    inner = (f for f in folder.iterdir() if f.is_file() and not f.name.startswith("."))
    return sorted(
        (f for f in inner if f.suffix.lower() in _ENDINGS), key=lambda f: _natural(f.name)
    )


def _images_below(folder: Path) -> Iterator[Path]:
    yield from _images_in(folder)
    for inner in _folders(folder):
        yield from _images_below(inner)


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts ``cat2`` before ``cat10``."""
    parts = re.split(r"([0-9]+)", text)
    numbers = [-1, *map(int, parts[1::2])]
    return list(zip(numbers, parts[::2], strict=True))


def draws_of(sizes: Sequence[int], seed: int) -> list[list[IntArray]]:
    """Return which images of each class are shown, draw by draw.

    Methods take as many images of each class. Where all classes have the same number there is one
    draw, of all images in their order. Otherwise each draw has as many of each class as the
    smallest has; a class goes round its images, shuffled once, so that enough draws show them all.

    Returns:
        for each draw the indices within each class, int64 ``(shot,)``.

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


def predict_files(
    registry: Registry,
    tree: Mapping[str, Any],
    support: SupportFiles,
    queries: Sequence[Path],
    reporter: Reporter,
) -> Predictions:
    """Predict the class of every query.

    Args:
        tree: of ``Given``: method, backbone, model and settings, as ``resolve_experiment`` has it.

    Raises:
        OptionError: an option that has no place here, or a method made for another number of ways.
        DataError: an image cannot be read, and ``broken`` is not ``skip``.
    """
    _check_keys(tree)
    files = {_place(file): file for one in support.classes.values() for file in one}
    files |= {_place(file): file for file in queries}
    with tempfile.TemporaryDirectory(prefix="fsf-predict-") as place:
        table = _write_table(Path(place) / "images.csv", list(files))
        experiment = resolve_experiment(registry, _tree(tree, support, table))
        settings, device = experiment.settings, resolve_device(experiment.settings.device)
        dataset: Dataset = experiment.dataset.create()
        model, notes = _model(experiment, dataset, device)
        rows = {path: row for row, path in enumerate(files)}
        read = _Reader(dataset, model, settings, list(files.values()))
        classes = tuple(support.classes)
        with reporter.stage(
            "images", sum(map(len, support.classes.values())) + len(queries)
        ) as advance:
            shown = [
                read.items([rows[_place(f)] for f in support.classes[name]], advance)[0]
                for name in classes
            ]
            for name, items in zip(classes, shown, strict=True):
                if not len(items):
                    raise DataError(f"no image of the class {name!r} can be read")
            draws = draws_of([len(items) for items in shown], settings.seed)
            wanted = [rows[_place(file)] for file in queries]
            kept, probabilities = _scored(model, shown, draws, read, wanted, advance)
    labelled = {_place(file) for one in support.classes.values() for file in one}
    if both := sum(_place(file) in labelled for file in queries):
        notes.append(f"support images among the queries, whose class was shown: {both}")
    if support.loose:
        notes.append(
            f"not used, since they lie beside the folders of the classes: {support.loose} "
            f"{'image' if support.loose == 1 else 'images'}"
        )
    return Predictions(
        classes,
        tuple(queries[place] for place in kept),
        probabilities,
        experiment.method.name,
        experiment.backbone.called,
        len(draws[0][0]),
        len(draws),
        model.size,
        settings.seed,
        next((stage.init_from for stage in experiment.stages if stage.init_from), None),
        tuple(read.broken),
        (*notes, *_support_notes(classes, [len(items) for items in shown], draws)),
    )


def _check_keys(tree: Mapping[str, Any]) -> None:
    for key in tree:
        if key not in _KEYS:
            raise OptionError(
                f"{key}: has no place in a prediction{close_matches(key, _KEYS)}; what can be set: "
                f"{', '.join(sorted(_KEYS))}"
            )
    training = tree.get("training", {})
    if not isinstance(training, Mapping) or set(training) - _TRAINING_KEYS:
        raise OptionError(
            "nothing is trained in a prediction: of training only init_from and init_parts can be "
            "set; train with fsf run, and give its folder with --model"
        )


def _write_table(path: Path, files: Sequence[str]) -> Path:
    """Write the files as a table, for the data set ``csv`` to read them."""
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["path", "label", "split"])
            writer.writerows([one, "image", "test"] for one in files)
    except UnicodeEncodeError:
        bad = next(one for one in files if not one.isprintable())
        raise DataError(f"{bad!a}: the name of a file must be Unicode") from None
    return path


def _tree(tree: Mapping[str, Any], support: SupportFiles, table: Path) -> dict[str, Any]:
    shot = min(map(len, support.classes.values()))
    full: dict[str, Any] = {
        **tree,
        "dataset": {"name": Given("csv", _ORIGIN), "path": Given(table, _ORIGIN)},
        "sampler": {
            "name": Given("random", _ORIGIN),
            "n_way": Given(len(support.classes), _ORIGIN),
            "n_shot": Given(shot, _ORIGIN),
            "n_query": Given(1, _ORIGIN),
        },
    }
    if "model" not in tree:
        full["recipe"] = Given(None, _ORIGIN)
        full["training"] = {**tree.get("training", {}), "epochs": Given(0, _ORIGIN)}
    return full


def _model(
    experiment: Experiment, dataset: Dataset, device: torch.device
) -> tuple[FewShotModel, list[str]]:
    """Return the model, and what a reader must know of its weights."""
    settings = experiment.settings
    preprocessing = experiment.backbone.create().preprocessing
    size = image_size(dataset, preprocessing, settings.image_size)
    model = build_model(
        experiment.backbone,
        experiment.method,
        size,
        0,
        settings.seed,
        pretrained=settings.model is None,
        offline=settings.offline,
    )
    loaded = False
    for stage in experiment.stages:
        if stage.init_from is not None:
            whole = settings.model is not None
            start_from(model, stage.init_from, stage.init_parts, whole=whole)
            loaded = True
    notes = []
    backbone, method = experiment.backbone.called, experiment.method.name
    if not loaded and model.extractor.pretrained_on is None:
        notes.append(
            f"{backbone} has random weights, so these predictions mean little; "
            "give a run with --model, or a pretrained backbone"
        )
    elif not loaded and any(True for _ in _own_parameters(model)):
        notes.append(f"the weights of {method} itself are untrained; give a run of it with --model")
    if model.method.transductive:
        notes.append(
            f"{method} looks at all queries together: with others, each may score otherwise"
        )
    return model.to(device).eval(), notes


def _own_parameters(model: FewShotModel) -> Iterator[Tensor]:
    """Yield the weights of the method, without those of the backbone it may hold."""
    held = {id(p) for p in model.extractor.parameters()}
    learns = model.method.learns_from != "nothing"
    yield from (p for p in model.method.parameters() if learns and id(p) not in held)


@dataclass
class _Reader:
    """Reads images by row, many at once, and embeds them; keeps sentences on broken ones."""

    dataset: Dataset
    model: FewShotModel
    settings: Settings
    files: Sequence[Path]
    broken: list[str] = field(default_factory=list)

    def items(self, rows: Sequence[int], advance: Advance) -> tuple[Tensor, list[int]]:
        """Return the embedded images, and the places of those that could be read."""
        found: list[Tensor] = []
        kept: list[int] = []
        for start in range(0, len(rows), _IMAGES_A_READING):
            block = rows[start : start + _IMAGES_A_READING]
            pixels, good = self._pixels(block)
            if good:
                found.append(embedded(self.model, pixels, self.settings.precision))
                kept += [start + place for place in good]
            advance(len(block))
        return (torch.cat(found) if found else torch.empty(0)), kept

    def _pixels(self, rows: Sequence[int]) -> tuple[UInt8Array, list[int]]:
        try:
            return self._images(rows), list(range(len(rows)))
        except DataError:
            pass  # one by one, to name what is broken
        good: list[int] = []
        parts = []
        for place, row in enumerate(rows):
            try:
                parts.append(self._images([row]))
                good.append(place)
            except DataError as error:
                # The table is ours: what the user knows is the file.
                reason = str(error).rpartition(f"{self.files[row].name}: ")[2]
                sentence = f"{self.files[row]}: {reason}"
                if self.settings.broken == "fatal":
                    raise DataError(f"{sentence}; --broken skip leaves such images out") from None
                self.broken.append(sentence)
        size = self.model.size
        empty = np.empty((0, size, size, 3), dtype=np.uint8)
        return np.concatenate([empty, *parts]), good

    def _images(self, rows: Sequence[int]) -> UInt8Array:
        scaled = self.settings.decoding == "scaled"
        read = self.dataset.scaled_images if scaled else self.dataset.images
        return read(rows, self.model.size, self.model.interpolation)


def _scored(
    model: FewShotModel,
    shown: Sequence[Tensor],
    draws: Sequence[Sequence[IntArray]],
    read: _Reader,
    rows: Sequence[int],
    advance: Advance,
) -> tuple[list[int], FloatArray]:
    """Return the places of the queries that could be read, and their probabilities."""
    supports = [
        torch.stack(
            [items[torch.from_numpy(index)] for items, index in zip(shown, draw, strict=True)]
        )
        for draw in draws
    ]
    at_once = len(rows) if model.method.transductive else _QUERIES_AT_ONCE[model.method.consumes]
    # Scores of embedded items are worth their full precision.
    precision = read.settings.precision if model.method.consumes == "images" else "fp32"
    kept: list[int] = []
    found: list[FloatArray] = []
    for start in range(0, len(rows), at_once):
        items, good = read.items(rows[start : start + at_once], advance)
        if not good:
            continue
        kept += [start + place for place in good]
        found.append(
            np.mean([_probabilities(model, s, items, precision) for s in supports], axis=0)
        )
    return kept, np.concatenate([np.empty((0, len(shown))), *found])


@torch.no_grad()
def _probabilities(
    model: FewShotModel, support: Tensor, query: Tensor, precision: Precision
) -> FloatArray:
    """Return the softmax of the scores, float64 ``(n, way)``.

    Args:
        support: ``(way, shot, *item)``.
        query: ``(n, *item)``.
    """
    with seeded(0, support.device), lowered(support.device, precision):
        # What a method draws depends on nothing that was predicted before.
        reseed(0, support.device)
        scores = model.method.scores(support[None], query[None])[0].double()
    if scores.shape != (len(query), len(support)) or not bool(torch.isfinite(scores).all()):
        raise DataError(
            f"{type(model.method).__name__}: its scores are of shape {tuple(scores.shape)} or not "
            f"finite; they must be finite and of shape {(len(query), len(support))}"
        )
    probabilities: FloatArray = torch.softmax(scores, dim=1).cpu().numpy()
    return probabilities


def _support_notes(
    classes: Sequence[str], sizes: Sequence[int], draws: Sequence[Sequence[IntArray]]
) -> Iterator[str]:
    shot = len(draws[0][0])
    if len(draws) == 1:
        return
    least, most = int(np.argmin(sizes)), int(np.argmax(sizes))
    left = (
        ""
        if len(draws) * shot >= max(sizes)
        else f"; of {classes[most]!r} only {len(draws) * shot} are used"
    )
    yield (
        f"classes have {shot} ({classes[least]!r}) to {max(sizes)} ({classes[most]!r}) images: "
        f"{shot} of each are shown at a time, and scores are means over {len(draws)} draws{left}"
    )
