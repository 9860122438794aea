"""Few-shot tasks, as indices into a pool."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypedDict

import numpy as np
import numpy.typing as npt

from fsframework._digest import digest_of
from fsframework._files import atomic_write
from fsframework._reading import check_file
from fsframework._tables import data_frame
from fsframework.errors import DataError, naming
from fsframework.values._arrays import BoolArray, IntArray, frozen, named
from fsframework.values._formats import SCHEMA_VERSION, read_header
from fsframework.values.attributes import AttributeTable
from fsframework.values.pool import ImagePool

__all__ = ["TaskSet"]

_WORDS_SHOWN = 8
_ARRAYS: Mapping[str, tuple[npt.DTypeLike, int]] = {
    "classes": (np.int64, 2),
    "support": (np.int64, 3),
    "query": (np.int64, 3),
    "attribute": (np.int32, 2),
    "relaxed": (np.bool_, 2),
}
"""Type and number of dimensions of each array of a task set."""


@dataclass(frozen=True, eq=False, repr=False)
class TaskSet:
    """Few-shot tasks as indices into one pool, without pixels or a model.

    Args:
        classes: int64 ``(T, way)``, label of each way's class.
        support: int64 ``(T, way, shot)``, indices of images.
        query: int64 ``(T, way, n_query)``, indices of images.
        attribute: int32 ``(T, way)``, index into ``words`` of the attribute tied to the way, -1
            where there is none.
        relaxed: bool ``(T, way)``, whether the sampler had to relax a condition.
        words: the vocabulary that ``attribute`` refers to.
        sampler: name of the sampler; ``options`` its resolved options; ``seed`` its seed.
        arm: name of the arm of the experiment that the tasks belong to; empty if unknown.
        uniform: whether classes and images were drawn uniformly and independently, so that
            image-level intervals hold.
        placebo: whether the images of each class were permuted again for every task.
        key_digest: ``ImagePool.key_digest`` of the pool.
        pool_fingerprint: ``ImagePool.fingerprint``; ``attributes_fingerprint`` the table's.

    Raises:
        DataError: shapes disagree, or a task has an image or a class twice.
    """

    classes: IntArray
    support: IntArray
    query: IntArray
    attribute: IntArray
    relaxed: BoolArray
    words: tuple[str, ...]
    sampler: str
    options: Mapping[str, Any]
    seed: int
    key_digest: str
    pool_fingerprint: str
    attributes_fingerprint: str | None = None
    arm: str = ""
    uniform: bool = False
    placebo: bool = False

    def __post_init__(self) -> None:
        for name, (dtype, ndim) in _ARRAYS.items():
            object.__setattr__(self, name, frozen(getattr(self, name), dtype, name, ndim))
        object.__setattr__(self, "words", tuple(self.words))
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))
        shape = self.classes.shape
        for name in _ARRAYS:
            if (found := getattr(self, name).shape[:2]) != shape:
                raise DataError(f"{name} has {found} tasks and ways, but classes has {shape}")
        if shape[1] < 2:
            raise DataError(f"a task needs at least 2 ways, not {shape[1]}")
        if self.support.shape[2] < 1 or self.query.shape[2] < 1:
            raise DataError("a task needs at least one support image and one query image per class")
        if self.attribute.size and not (
            self.attribute.min() >= -1 and self.attribute.max() < len(self.words)
        ):
            raise DataError(f"attribute must be in -1..{len(self.words) - 1}")
        images = self.images
        if images.size and images.min() < 0:
            raise DataError("image indices must not be negative")
        for rows, what in ((self.classes, "a class"), (images, "an image")):
            repeats = np.any(np.diff(np.sort(rows, axis=1), axis=1) == 0, axis=1)
            if repeats.any():
                raise DataError(f"task {int(repeats.argmax())}: {what} appears twice")

    @classmethod
    def of(
        cls,
        pool: ImagePool,
        classes: npt.ArrayLike,
        support: npt.ArrayLike,
        query: npt.ArrayLike,
        *,
        sampler: str,
        options: Mapping[str, Any],
        seed: int,
    ) -> Self:
        """Build a task set of ``pool`` whose ways are tied to no attribute.

        Args:
            classes: ``(T, way)``, like the field of this name, an array or lists.
            support: ``(T, way, shot)``; ``query``: ``(T, way, n_query)``.

        Raises:
            DataError: the numbers of images differ between classes, or as for any task set.
        """
        try:
            ways, shots, queries = (np.asarray(one) for one in (classes, support, query))
        except ValueError:
            raise DataError(
                "every class must have as many support images as the others, and as many queries"
            ) from None
        return cls(
            ways,
            shots,
            queries,
            np.full(ways.shape, -1),
            np.zeros(ways.shape, bool),
            (),
            sampler,
            options,
            seed,
            pool.key_digest,
            pool.fingerprint,
        )

    def with_attributes(
        self, table: AttributeTable, attribute: IntArray, relaxed: BoolArray | None = None
    ) -> Self:
        """Return the tasks with each way tied to an attribute.

        Args:
            table: attributes of the pool that the tasks were drawn from.
            attribute: ``(T, way)``, index of a word of ``table``, -1 where a way has none.
            relaxed: ``(T, way)``, whether a condition had to be relaxed; by default nowhere.

        Raises:
            DataError: a shape is not ``(T, way)``, or an index is outside the words.
        """
        return dataclasses.replace(
            self,
            attribute=attribute,
            relaxed=self.relaxed if relaxed is None else relaxed,
            words=table.words,
            attributes_fingerprint=table.fingerprint,
        )

    def __len__(self) -> int:
        return int(self.classes.shape[0])

    def to_pandas(self) -> Any:
        """Return a pandas ``DataFrame``: a row per image of a task.

        Its columns: task, way, the label of the class, the part (support or query), the index of
        the image in the pool, and the word tied to the way, empty for none.
        """
        both = np.concatenate([self.support, self.query], axis=2)
        task, way, place = (axis.ravel() for axis in np.indices(both.shape))
        words = np.array([*self.words, ""], dtype=object)  # -1 is none
        return data_frame({
            "task": task,
            "way": way,
            "class": self.classes[task, way],
            "part": np.where(place < self.n_shot, "support", "query"),
            "image": both.ravel(),
            "word": words[self.attribute[task, way]],
        })  # fmt: skip

    def __repr__(self) -> str:
        return f"<TaskSet: {self.described()}>"

    def _repr_html_(self) -> str:
        from fsframework._tables import html_table

        tied = self.attribute[self.attribute >= 0]
        rows = [
            ("tasks", f"{len(self):,}"),
            ("shape", self.shape),
            ("sampler", f"{self.sampler}, seed {self.seed}"),
            ("images", f"{self.n_images:,}"),
        ]
        if tied.size:
            words, counts = np.unique(tied, return_counts=True)
            most = sorted(zip(-counts, words, strict=True))[:_WORDS_SHOWN]
            shown = ", ".join(f"{self.words[word]} ({-count:,})" for count, word in most)
            rows += [
                (f"most tied of {len(words):,} words", shown),
                ("relaxed ways", f"{100 * float(self.relaxed.mean()):.1f} %"),
            ]
        return html_table(("", self.described()), rows)

    def described(self) -> str:
        """Return the number, arm and shape of the tasks in a few words."""
        kind = f"{self.arm or self.sampler}{' placebo' if self.placebo else ''}"
        return f"{len(self):,} {kind} tasks, {self.shape}, {self.n_images:,} images"

    @property
    def shape(self) -> str:
        """Ways, shots and queries as text."""
        queries = "query" if self.n_query == 1 else "queries"
        return f"{self.n_way}-way {self.n_shot}-shot, {self.n_query} {queries} per class"

    @property
    def n_way(self) -> int:
        """Classes per task."""
        return int(self.classes.shape[1])

    @property
    def n_shot(self) -> int:
        """Support images per class."""
        return int(self.support.shape[2])

    @property
    def n_query(self) -> int:
        """Query images per class."""
        return int(self.query.shape[2])

    @property
    def images(self) -> IntArray:
        """All images of each task, int64 ``(T, way * (shot + n_query))``."""
        count, way = self.classes.shape
        parts = [part.reshape(count, way * part.shape[2]) for part in (self.support, self.query)]
        return np.concatenate(parts, axis=1)

    @cached_property
    def n_images(self) -> int:
        """Number of distinct images in all tasks together."""
        return int(np.unique(self.images).size)

    @property
    def reuses_images(self) -> bool:
        """Whether any image is in two tasks, which makes intervals *closed*."""
        return self.n_images < self.images.size

    @cached_property
    def digest(self) -> str:
        """Digest of classes, support, query and the pool's keys: equal digests mean equal tasks."""
        return digest_of("tasks", self.key_digest, self.classes, self.support, self.query)

    @cached_property
    def _checksum(self) -> str:
        drawn_by = self.sampler, dict(self.options), self.seed
        drawn_from = self.pool_fingerprint, self.attributes_fingerprint
        kind = self.arm, self.uniform, self.placebo
        header = json.dumps([*drawn_by, *drawn_from, *kind], sort_keys=True)
        return digest_of(self.digest, self.attribute, self.relaxed, self.words, header)

    def __getitem__(self, tasks: int | slice) -> TaskSet:
        """Return the tasks of a slice, or one task."""
        if isinstance(tasks, int | np.integer):
            place = range(len(self))[tasks]
            tasks = slice(place, place + 1)
        parts: dict[str, Any] = {name: getattr(self, name)[tasks] for name in _ARRAYS}
        return dataclasses.replace(self, **parts)

    def verify(self, pool: ImagePool) -> None:
        """Check that the tasks belong to this pool and that every image has its way's class.

        Raises:
            DataError: they do not; the message names the first task at fault.
        """
        if self.key_digest != pool.key_digest:
            raise DataError(
                f"these tasks were drawn from other data: their image-key digest is "
                f"{self.key_digest[:12]}, that of the data {pool.key_digest[:12]}; give the data "
                "set, its options and the split with which the tasks were made"
            )
        if self.images.size and self.images.max() >= len(pool):
            raise DataError(f"image index {self.images.max()} is not in a pool of {len(pool)}")
        if self.classes.size:
            low, high = self.classes.min(), self.classes.max()
            if low < 0 or high >= len(pool.class_names):
                raise DataError(
                    f"classes must be in 0..{len(pool.class_names) - 1}, not {low}..{high}"
                )
        for name in ("support", "query"):
            wrong = pool.labels[getattr(self, name)] != self.classes[:, :, None]
            if wrong.any():
                task, way, place = (int(i[0]) for i in np.nonzero(wrong))
                image = int(getattr(self, name)[task, way, place])
                raise DataError(
                    f"task {task}: {name} image {pool.keys[image]!r} of way {way} is a "
                    f"{pool.class_names[pool.labels[image]]!r}, not a "
                    f"{pool.class_names[self.classes[task, way]]!r}"
                )

    def save(self, path: str | Path) -> None:
        """Write safetensors: the five arrays, and the rest as JSON in the header."""
        from safetensors.numpy import save

        header = {
            "what": "a task set",
            "schema_version": SCHEMA_VERSION,
            **{name: getattr(self, name) for name in _Header.__annotations__ if name != "checksum"},
            "options": dict(self.options),
            "digest": self.digest,
            "checksum": self._checksum,
        }
        arrays = {name: _narrow(getattr(self, name)) for name in _ARRAYS}
        # Not save_file, whose error does not show that the disk is full.
        atomic_write(Path(path), save(arrays, metadata={"fsframework": json.dumps(header)}))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what ``save`` wrote.

        Raises:
            DataError: the file is not a task file, or its arrays were changed after it was written.
        """
        from safetensors import safe_open

        path = Path(path)
        try:
            check_file(path)
            with safe_open(path, framework="numpy") as file:
                raw = (file.metadata() or {}).get("fsframework")
                header = read_header(raw, path, _Header, "a task set")
                if missing := set(_ARRAYS) - set(file.keys()):
                    raise DataError(f"{path}: lacks the array {named(sorted(missing))}")
                arrays = {name: file.get_tensor(name) for name in _ARRAYS}
        except DataError:
            raise
        except FileNotFoundError:
            raise DataError(f"{path}: no such file") from None
        except Exception as error:  # safetensors raises many types for a damaged file
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"{path}: not a task file, or damaged ({reason})") from None
        fields: dict[str, Any] = {**header}
        checksum = fields.pop("checksum")
        with naming(path):
            tasks = cls(**arrays, **fields)
        if tasks._checksum != checksum:
            raise DataError(f"{path}: was changed after it was written (checksum differs)")
        return tasks


def _narrow(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array in the smallest type that holds its values: files are a quarter the size."""
    ends = (array.min(initial=0), array.max(initial=0))
    return np.ascontiguousarray(array, np.result_type(*map(np.min_scalar_type, ends)))


class _Header(TypedDict):
    """The header of a task file."""

    sampler: str
    options: dict[str, Any]
    seed: int
    arm: str
    uniform: bool
    placebo: bool
    words: tuple[str, ...]
    key_digest: str
    pool_fingerprint: str
    attributes_fingerprint: str | None
    checksum: str
