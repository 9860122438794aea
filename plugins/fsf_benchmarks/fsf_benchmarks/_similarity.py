"""CLIP similarity of images to the names of their classes and contexts.

Source: Zhang et al. 2024 (MetaCoCo), section 3.2, Eq. 1: M_ce = d(z_x, z_ce) of an image and its
concept, M_te = d(z_x, z_te) of an image and its context. They call d the cosine distance and the
result a similarity. Their values are about 0.2 and lower for less similar pairs, which fits the
cosine and not one minus the cosine. So d is the cosine similarity here.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fsf_reports.values import FigureDeclaration, Panel, Point, Quantity, Series
from fsframework.api.experiments import Description, Experiment
from fsframework.api.models import resolve_device
from fsframework.api.session import Session
from fsframework.api.stores import Rows, records_of
from fsframework.errors import DataError, OptionError, argument
from fsframework.interfaces import AttributeDetector, Dataset, ImageTextModel
from fsframework.values import FloatArray, IntArray, atomic_path, atomic_write, csv_text, digest_of

__all__ = [
    "SUFFIXES",
    "ImageGroup",
    "Similarities",
    "Templates",
    "drawn",
    "measure_similarities",
    "readable",
    "write_similarities",
]

SUFFIXES = (".csv", ".parquet")
"""Suffixes of the files that values can be written to."""

_IMAGES_AT_ONCE = {"cpu": 16, "cuda": 64}
_MOST_OFF_UNIT = 1e-2
_MOST_POINTS, _MOST_SERIES = 4000, 8


@dataclass(frozen=True)
class ImageGroup:
    """Means over some images.

    Args:
        by: ``all``, ``split``, ``class`` or ``context``.
        name: name of the split, class or context.
        n_images: number of images.
        n_contexts: number of images with a context.
        m_ce: mean similarity to the class.
        m_te: mean similarity to the context, NaN without contexts.
        above: share of images with a context that are more similar to it than to their class.
    """

    by: str
    name: str
    n_images: int
    n_contexts: int
    m_ce: float
    m_te: float
    above: float

    def to_json(self) -> dict[str, Any]:
        """Return the fields, with null for what is missing."""
        return {k: None if v != v else v for k, v in vars(self).items()}


@dataclass(frozen=True, eq=False)
class Similarities:
    """M_ce and M_te of images.

    Args:
        keys: keys of the images.
        classes: class of each image.
        splits: split of each image.
        contexts: context of each image, empty if unknown; ``None`` if the data have no contexts.
        m_ce: float64 ``(n,)``.
        m_te: float64 ``(n,)``, NaN without a context.
        provenance: model, revision, templates.
    """

    keys: tuple[str, ...]
    classes: tuple[str, ...]
    splits: tuple[str, ...]
    contexts: tuple[str, ...] | None
    m_ce: FloatArray
    m_te: FloatArray
    provenance: dict[str, str]

    def groups(self) -> Iterator[ImageGroup]:
        """Yield the means over all images and over each split, class and context."""
        columns = [("split", self.splits), ("class", self.classes)]
        columns += [("context", self.contexts)] if self.contexts is not None else []
        yield self._mean("all", "", np.arange(len(self.keys)))
        for by, values in columns:
            order = dict.fromkeys(values) if by == "split" else sorted(set(values))
            names = np.array(values)
            for name in order:
                if name:
                    yield self._mean(by, name, np.flatnonzero(names == name))

    def _mean(self, by: str, name: str, which: IntArray) -> ImageGroup:
        ce, te = self.m_ce[which], self.m_te[which]
        known = ~np.isnan(te)
        some = bool(known.any())
        return ImageGroup(
            by,
            name,
            len(which),
            int(known.sum()),
            float(ce.mean()),
            float(te[known].mean()) if some else float("nan"),
            float((te > ce)[known].mean()) if some else float("nan"),
        )


def readable(name: str) -> str:
    """Return a name with underscores, slashes and runs of spaces replaced by single spaces.

    >>> readable("aquarium_fish"), readable("Greek/character01")
    ('aquarium fish', 'Greek character01')
    """
    return re.sub(r"[\s_/]+", " ", name).strip()


@dataclass(frozen=True)
class Templates:
    """Templates that turn names into texts.

    Args:
        classes: template for the name of a class, which replaces ``{}``.
        contexts: template for a context; ``None`` for the template of classes.

    Raises:
        OptionError: a template does not contain ``{}`` exactly once.
    """

    classes: str = "a photo of a {}"
    contexts: str | None = None

    def __post_init__(self) -> None:
        for name, text in (("template", self.classes), ("context template", self.contexts)):
            if text is not None and text.count("{}") != 1:
                raise OptionError(f"the {name} must contain {{}} exactly once, not {text!r}")

    @property
    def of_contexts(self) -> str:
        """The template of contexts."""
        return self.classes if self.contexts is None else self.contexts


def measure_similarities(
    described: Description,
    templates: Templates | None = None,
    *,
    splits: Sequence[str] = (),
    column: str | None = None,
    batch_size: int | None = None,
) -> Similarities:
    """Measure the similarity of every image to its class and, where it has one, its context.

    The model sees each image once, whatever the templates: its features are cached, and an
    interrupted call resumes where it stopped.

    Args:
        described: by ``fsframework.describe``, with the data set, a detector, which must be an
            ``ImageTextModel`` too, and the device.
        templates: of the texts.
        splits: splits whose images are measured; by default all.
        column: metadata column of the contexts; by default ``context`` if there is one.
        batch_size: images per batch; by default 16 on a CPU and 64 on a GPU.

    Raises:
        OptionError: the detector does not compare images with texts, or the data do not have the
            column.
        DataError: the model cannot be loaded, or an image cannot be read.
    """
    if batch_size is not None and batch_size < 1:
        raise OptionError(f"batch_size must be at least 1, not {batch_size}")
    templates = templates or Templates()
    experiment, session = described.experiment, described.session
    dataset: Dataset = experiment.dataset.create()
    if column is None and "context" in dataset.metadata:
        column = "context"
    if column is not None and column not in dataset.metadata:
        there = ", ".join(map(repr, sorted(dataset.metadata)))
        has = f"the metadata columns {there}" if there else "no metadata columns"
        raise OptionError(f"{argument('column', column)}: the data set has {has}")
    component = experiment.roles["detector"]
    detector, model = component.name, component.create()
    if not isinstance(model, ImageTextModel):
        raise OptionError(
            f"detector {detector}: does not compare images with texts; use clip-words:MODEL"
        )
    wanted = tuple(splits) or tuple(dataset.splits)
    parts = [dataset.split_indices(split) for split in wanted]
    indices = np.concatenate(parts)
    assert isinstance(model, AttributeDetector)
    where = resolve_device(experiment.options["device"])
    model.prepare(device=str(where), offline=experiment.options["offline"])
    classes = [dataset.class_names[label] for label in dataset.labels[indices]]
    class_vectors, class_of = _vectors(model, detector, classes, templates.classes)
    provenance = dict(model.provenance())
    block = batch_size or _IMAGES_AT_ONCE["cuda" if where.type == "cuda" else "cpu"]
    width = class_vectors.shape[1]
    features = _features(experiment, session, model, dataset, (indices, width), block)
    m_ce = _dots(features, np.arange(len(indices)), class_vectors, class_of)
    m_te, contexts = np.full(len(indices), np.nan), None
    if column is not None:
        values = dataset.metadata[column]
        contexts = tuple(values[i] for i in indices)
        known = np.flatnonzero([bool(context) for context in contexts])
        if known.size:
            names = [contexts[i] for i in known]
            vectors, of = _vectors(model, detector, names, templates.of_contexts)
            m_te[known] = _dots(features, known, vectors, of)
    origin = {k: v for k, v in provenance.items() if k not in _OF_WORDS}
    origin |= {"detector": detector, "template": templates.classes}
    origin |= {"column": column, "context_template": templates.of_contexts} if column else {}
    return Similarities(
        tuple(dataset.keys[i] for i in indices),
        tuple(classes),
        tuple(split for split, part in zip(wanted, parts, strict=True) for _ in part),
        contexts,
        m_ce,
        m_te,
        origin,
    )


_OF_WORDS = ("vocabulary", "template", "threshold", "top")
"""Entries of a detector's provenance that do not affect the features."""


def _vectors(
    model: ImageTextModel, detector: str, names: Sequence[str], template: str
) -> tuple[FloatArray, IntArray]:
    """Return a vector per distinct name, and the index of each name's vector."""
    distinct, of = np.unique(np.array(names), return_inverse=True)
    texts = [template.replace("{}", readable(str(name))) for name in distinct]
    return _checked(detector, model.text_features(texts), len(texts), "texts"), of


def _checked(detector: str, found: Any, count: int, what: str) -> FloatArray:
    """Check the features of a plugin before they are stored."""
    vectors = np.asarray(found, np.float32)
    if vectors.ndim != 2 or len(vectors) != count:
        raise DataError(
            f"detector {detector}: returned features of shape {vectors.shape} for {count} {what}"
        )
    off = np.abs(np.linalg.norm(vectors, axis=1) - 1)
    if not (off < _MOST_OFF_UNIT).all():
        raise DataError(f"detector {detector}: the features of {what} do not have length 1")
    return vectors


def _features(
    experiment: Experiment,
    session: Session,
    model: ImageTextModel,
    dataset: Dataset,
    shape: tuple[IntArray, int],
    block: int,
) -> FloatArray:
    """Return features of images, float32 ``(n, width)``, from the cache if stored there.

    Args:
        experiment: with the detector and the data set.
        session: whose cache keeps them.
        model: the prepared model.
        dataset: data set of the images.
        shape: indices of the images, int ``(n,)``, and the number of features per image.
        block: images per batch.
    """
    assert isinstance(model, AttributeDetector)
    indices, width = shape
    roles = experiment.roles
    origin = {k: v for k, v in model.provenance().items() if k not in _OF_WORDS}
    key = digest_of(
        "image-text features",
        dataclasses.replace(roles["detector"], options={}).fingerprint,
        json.dumps(origin, sort_keys=True),
        dataclasses.replace(roles["dataset"], options={}).fingerprint,
        dataset.fingerprint,
        indices,
    )
    detector = roles["detector"].name

    def make(rows: IntArray) -> tuple[FloatArray, Any]:
        images = [dataset.image(int(i)) for i in indices[rows]]
        found = _checked(detector, model.image_features(images), len(images), "images")
        if found.shape[1] != width:
            raise DataError(
                f"detector {detector}: image features have {found.shape[1]} dimensions, text "
                f"features {width}"
            )
        found = np.ascontiguousarray(found, np.float32)
        return found, records_of(found)

    folder = session.workspace.cache / "similarity" / key[:24]
    stored = Rows(folder, (len(indices), width), np.float32, "image features")
    return np.asarray(stored.built(make, block, np.arange(len(indices)), session.reporter))


def _dots(features: FloatArray, rows: IntArray, vectors: FloatArray, of: IntArray) -> FloatArray:
    """Return the cosine of each row's feature and its vector, float64 ``(len(rows),)``."""
    found = np.empty(len(rows))
    for start in range(0, len(rows), 4096):
        part = slice(start, start + 4096)
        mine, theirs = features[rows[part]], vectors[of[part]]
        found[part] = np.einsum("nd,nd->n", mine.astype(np.float64), theirs.astype(np.float64))
    return found


def drawn(found: Similarities) -> FigureDeclaration:
    """Declare Figure 2(b) of MetaCoCo: every image with a context as a point.

    The most frequent classes have series of their own. Of very many images a random sample is
    shown, the same every time.
    """
    known = np.flatnonzero(~np.isnan(found.m_te))
    n_known = len(known)
    if n_known > _MOST_POINTS:
        known = np.sort(np.random.default_rng(0).choice(known, _MOST_POINTS, replace=False))
    names, count = np.unique(np.array(found.classes)[known], return_counts=True)
    ranked = [str(name) for name in names[np.argsort(-count, kind="stable")]]
    own = ranked if len(ranked) <= _MOST_SERIES else ranked[: _MOST_SERIES - 1]
    points: dict[str, list[Point]] = {name: [] for name in own}
    for image in known:
        name = found.classes[image]
        series = name if name in points else f"{len(ranked) - len(own)} other classes"
        y = Quantity(float(found.m_ce[image]), unit="")
        points.setdefault(series, []).append(Point(float(found.m_te[image]), y))
    shown = "" if n_known == len(known) else f"{len(known):,} of them, drawn at random. "
    return FigureDeclaration(
        "Figure 2(b)",
        "Similarity of images to their class and to their context.",
        "M_te: similarity to the context",
        "M_ce: similarity to the class",
        (Panel("", tuple(Series(name, tuple(of)) for name, of in points.items())),),
        source="MetaCoCo",
        mark="points",
        diagonal=True,
        notes=(f"{n_known:,} images. {shown}On the dashed line both are equal.",),
    )


def write_similarities(found: Similarities, path: Path) -> None:
    """Write one row per image: key, class, split, context, m_ce, m_te.

    Args:
        found: the similarities.
        path: path of the file, which ends in one of ``SUFFIXES``.
    """
    contexts = found.contexts or ("",) * len(found.keys)
    if path.suffix.lower() == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table(
            {
                "key": pa.array(found.keys),
                "class": pa.array(found.classes),
                "split": pa.array(found.splits),
                "context": pa.array([context or None for context in contexts], pa.string()),
                "m_ce": pa.array(found.m_ce),
                "m_te": pa.array(found.m_te, from_pandas=True),
            }
        )
        table = table.replace_schema_metadata({"fsframework": json.dumps(found.provenance)})
        with atomic_path(path) as temporary:
            pq.write_table(table, temporary, compression="zstd")
        return
    rows = [
        (key, label, split, context, f"{ce:.6f}", "" if np.isnan(te) else f"{te:.6f}")
        for key, label, split, context, ce, te in zip(
            found.keys, found.classes, found.splits, contexts, found.m_ce, found.m_te, strict=True
        )
    ]
    atomic_write(path, csv_text(("key", "class", "split", "context", "m_ce", "m_te"), rows))
