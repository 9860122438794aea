"""The predictions of a method."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NotRequired, Self, TypedDict

import numpy as np
import numpy.typing as npt

from fsframework._digest import digest_of
from fsframework._tables import data_frame
from fsframework.errors import DataError, naming
from fsframework.values._arrays import FloatArray, IntArray, frozen, read_only
from fsframework.values._formats import parquet_header, write_parquet
from fsframework.values.tasks import TaskSet

__all__ = ["AccuracyOutcomes", "Outcomes", "QueryBatch", "Scope"]


Scope = Literal["open", "closed"]


QueryBatch = Literal["task", "class"]
"""Which queries a method sees together: all of a task, or those of one class at a time."""


_ACCURACIES = "accuracies of tasks"
"""The name of ``AccuracyOutcomes`` in the header of a file."""


@dataclass(frozen=True, eq=False, repr=False)
class Outcomes:
    """A method's prediction for every query of every task, and nothing derived from it.

    Args:
        predictions: int16 ``(T, way, n_query)``: the predicted way of each query; the true way of
            the query at ``[t, w, q]`` is ``w``.
        task_digest: ``TaskSet.digest`` of the tasks.
        n_images: number of distinct images in all tasks; ``reuses_images`` whether two share any.
        query_batch: which queries the method saw together.
        notes: what a reader of the answers must know, such as that many best scores are tied.

    Raises:
        DataError: the shape is wrong, a prediction is not a way of the task, or the number of
            images is negative.

    >>> outcomes = Outcomes(np.array([[[0, 1], [1, 1]]]), "digest", 6, False)
    >>> outcomes.class_accuracy.tolist()
    [[0.5, 1.0]]
    """

    predictions: IntArray
    task_digest: str
    n_images: int
    reuses_images: bool
    query_batch: QueryBatch = "task"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        array = frozen(self.predictions, np.int16, "predictions", 3)
        object.__setattr__(self, "predictions", array)
        way = array.shape[1]
        if array.size and not (array.min() >= 0 and array.max() < way):
            raise DataError(f"predictions must be in 0..{way - 1}")
        _check_images(self.n_images)

    @classmethod
    def of(cls, tasks: TaskSet, predictions: IntArray, query_batch: QueryBatch = "task") -> Self:
        """Build outcomes from predictions ``(T, way, n_query)`` and their tasks."""
        if predictions.shape != tasks.query.shape:
            raise DataError(
                f"predictions of shape {predictions.shape} for queries of {tasks.query.shape}"
            )
        return cls(predictions, tasks.digest, tasks.n_images, tasks.reuses_images, query_batch)

    def __len__(self) -> int:
        return int(self.predictions.shape[0])

    def to_pandas(self) -> Any:
        """Return a pandas ``DataFrame``: a row per query, with the true and the predicted way."""
        task, way, query = (axis.ravel() for axis in np.indices(self.predictions.shape))
        predicted = self.predictions.ravel()
        return data_frame({"task": task, "way": way, "query": query, "predicted": predicted})

    def __repr__(self) -> str:
        accuracy = f"{100 * self.task_accuracy.mean():.1f} %" if len(self) else "unknown"
        return (
            f"<{type(self).__name__}: {len(self):,} tasks, mean accuracy {accuracy}, "
            f"{self.scope} intervals>{''.join(f' note: {note}' for note in self.notes)}"
        )

    @property
    def n_way(self) -> int:
        """Classes per task."""
        return int(self.predictions.shape[1])

    @property
    def scope(self) -> Scope:
        """The scope of an interval over these tasks: ``open`` only if no image is reused."""
        return "closed" if self.reuses_images else "open"

    @cached_property
    def class_accuracy(self) -> FloatArray:
        """Fraction of each way's queries that are right, float64 ``(T, way)``: M_c of FewSTAB."""
        truth = np.arange(self.n_way, dtype=np.int16)[None, :, None]
        return read_only(np.asarray((self.predictions == truth).mean(axis=2)))

    @cached_property
    def task_accuracy(self) -> FloatArray:
        """Fraction of each task's queries that are right, float64 ``(T,)``."""
        return read_only(np.asarray(self.class_accuracy.mean(axis=1)))

    @property
    def digest(self) -> str:
        """Digest of everything that a file of them holds but notes."""
        return digest_of("outcomes", str(self._header()), self.predictions)

    def _header(self) -> dict[str, Any]:
        """Return the header of a file of outcomes, without notes."""
        _, way, n_query = self.predictions.shape
        return {
            "what": "outcomes",
            "n_way": way,
            "n_query": n_query,
            "task_digest": self.task_digest,
            "n_images": self.n_images,
            "reuses_images": self.reuses_images,
            "query_batch": self.query_batch,
        }

    def save(self, path: str | Path) -> None:
        """Write Parquet: one row per task and way, with its queries' predictions as a list."""
        import pyarrow as pa

        count, way, n_query = self.predictions.shape
        offsets = np.arange(0, count * way * n_query + 1, n_query, dtype=np.int32)
        columns = {
            "task": pa.array(np.repeat(np.arange(count), way)),
            "way": pa.array(np.tile(np.arange(way), count)),
            "predictions": pa.ListArray.from_arrays(
                pa.array(offsets), pa.array(self.predictions.reshape(-1))
            ),
        }
        write_parquet(Path(path), columns, {**self._header(), "notes": self.notes})

    @staticmethod
    def load(path: str | Path) -> Outcomes:
        """Read what ``save`` wrote, ``AccuracyOutcomes`` included.

        Raises:
            DataError: the file does not contain outcomes or is damaged.
        """
        path = Path(path)
        table, header = parquet_header(path, _Header, "outcomes", _ACCURACIES)
        known = header["task_digest"], header["n_images"], header["reuses_images"]
        with naming(path):
            if header["what"] == _ACCURACIES:
                return AccuracyOutcomes(_numbers(table, "accuracy"), *known)
            told = header.get("query_batch", "task"), tuple(header.get("notes", ()))
            return Outcomes(_predictions(table, header), *known, *told)


def _check_images(n_images: int) -> None:
    if n_images < 0:
        raise DataError(f"the number of images must be at least 0, not {n_images}")


class _Header(TypedDict):
    """The header of a file of outcomes; ``n_way`` and ``n_query`` belong to predictions."""

    what: str
    task_digest: str
    n_images: int
    reuses_images: bool
    n_way: NotRequired[int]
    n_query: NotRequired[int]
    query_batch: NotRequired[QueryBatch]
    notes: NotRequired[list[str]]


def _numbers(table: Any, name: str) -> npt.NDArray[Any]:
    """Return a column of numbers, or of lists of numbers, one after the other."""
    import pyarrow as pa

    if name not in table.column_names:
        raise DataError(f"has no column {name!r}; it has {table.column_names}")
    column = table[name].combine_chunks()
    if pa.types.is_list(column.type):
        column = column.flatten()
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)) or column.null_count:
        empty = f", {column.null_count:,} of them empty" if column.null_count else ""
        raise DataError(f"the column {name!r} must contain numbers, not {kind}{empty}")
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _predictions(table: Any, header: _Header) -> npt.NDArray[Any]:
    flat = _numbers(table, "predictions")
    way, n_query = header.get("n_way", 0), header.get("n_query", 0)
    if way < 1 or n_query < 1 or flat.size % (way * n_query):
        raise DataError(f"{flat.size} predictions do not fill whole tasks")
    predictions = flat.reshape(-1, way, n_query)
    rows = [_numbers(table, name) for name in ("task", "way")]
    expected = [np.repeat(np.arange(len(predictions)), way), np.tile(range(way), len(predictions))]
    if not all(map(np.array_equal, rows, expected)):
        raise DataError("its rows are not in the order of tasks and ways")
    return predictions


class AccuracyOutcomes(Outcomes):
    """Accuracies of whole tasks, measured elsewhere: outcomes without predictions.

    Properties that need predictions, or accuracies of single classes, raise ``DataError``.

    Args:
        accuracy: float64 ``(T,)``, the fraction of each task's queries that are right, 0..1.
        task_digest: equal for outcomes of equal tasks in equal order, as the importer guarantees.
        n_images: number of distinct images in all tasks, 0 if unknown.
        reuses_images: whether two tasks share an image.

    Raises:
        DataError: the array is not one-dimensional, a value is not in 0..1, or the number of
            images is negative.

    >>> AccuracyOutcomes([0.5, 1.0], "digest", 0, False).task_accuracy.tolist()
    [0.5, 1.0]
    """

    def __init__(
        self, accuracy: npt.ArrayLike, task_digest: str, n_images: int, reuses_images: bool
    ) -> None:
        values = frozen(accuracy, np.float64, "accuracy", 1)
        wrong = np.flatnonzero(~((values >= 0) & (values <= 1)))
        if wrong.size:
            raise DataError(
                f"accuracies must be in 0..1; that of task {wrong[0]} is {values[wrong[0]]}"
            )
        _check_images(n_images)
        fields = (values, task_digest, n_images, reuses_images, "task")
        names = ("_accuracy", "task_digest", "n_images", "reuses_images", "query_batch")
        for name, value in zip(names, fields, strict=True):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return int(self.task_accuracy.size)

    def to_pandas(self) -> Any:
        """Return a pandas ``DataFrame``: a row per task, with its accuracy."""
        return data_frame({"task": np.arange(len(self)), "accuracy": self.task_accuracy})

    @property
    def task_accuracy(self) -> FloatArray:
        """Accuracy of each task, float64 ``(T,)``."""
        values: FloatArray = self.__dict__["_accuracy"]
        return values

    @property
    def predictions(self) -> IntArray:
        """Raises ``DataError``, as do ``n_way`` and ``class_accuracy``."""
        raise DataError(
            "these are accuracies of whole tasks measured elsewhere; without predictions, "
            "results for single queries or classes are not available"
        )

    @property
    def class_accuracy(self) -> FloatArray:
        """Raises ``DataError``; see ``predictions``."""
        return np.asarray(self.predictions, np.float64)

    @property
    def digest(self) -> str:
        """Digest of everything that a file of them holds."""
        return digest_of("outcomes", str(self._header()), self.task_accuracy)

    def _header(self) -> dict[str, Any]:
        known = ("task_digest", "n_images", "reuses_images")
        return {"what": _ACCURACIES, **{name: getattr(self, name) for name in known}}

    def save(self, path: str | Path) -> None:
        """Write Parquet: one row per task."""
        write_parquet(Path(path), {"accuracy": self.task_accuracy}, self._header())
