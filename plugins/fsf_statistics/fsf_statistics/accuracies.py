"""Read and check accuracies of tasks that were measured elsewhere."""

from __future__ import annotations

import csv
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fsframework.errors import DataError, OptionError
from fsframework.values import (
    AccuracyOutcomes,
    FloatArray,
    Scope,
    check_file,
    digest_of,
    open_file,
    parse_number,
    read_parquet,
    text_lines,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "PUBLISHED_LAYOUT",
    "SUFFIXES",
    "Reading",
    "TaskAccuracies",
    "Unit",
    "accuracy_files",
    "read_accuracies",
    "unit_text",
]

Unit = Literal["auto", "percent", "share"]

SUFFIXES = (".pt", ".pth", ".npy", ".csv", ".parquet")
"""Suffixes of files of accuracies."""

PUBLISHED_LAYOUT = "tasks/method/method/tasks"
"""SHOT/MODEL/METHOD/DATASET.pt, the layout of the files of Lafargue et al. (2024)."""

_LAYOUT_WORDS = ("tasks", "method", "-")
_SCALES: Mapping[str, float] = {"percent": 100.0, "share": 1.0}
_ROUNDING = 1e-5
"""By which part of the unit rounding may exceed its range."""
_MOST_LOW, _FAR, _MOST_QUERIES, _COUNT_ROUNDING = 0.05, 3, 1000, 0.01
"""For values in percent that are at most 1 but not 0: their greatest part of all values, how far
above them others begin, and the queries and the rounding of correct answers that are tried."""
_INDEX = re.compile(r"|Unnamed: 0|__index_level_0__")
"""Names that pandas writes for an index without a name."""
_NO_METHOD = re.compile(
    r"(?i)((task|episode|run)[ _-]?)?(id|idx|index|episode|seed|step|epoch)"
    r"|((train|val|test)[ _-])?(loss|error)|(.*[ _-])?(std|ci|ci95|95% ?ci|stderr|sem)"
)
_SUMMARY = re.compile(r"|mean|avg|average|median|std|min|max|total|sum|ci(?:95)?", re.IGNORECASE)


@dataclass(frozen=True)
class Reading:
    """How files of accuracies are read.

    Args:
        layout: parts ``tasks``, ``method`` and ``-`` (ignored), joined by ``/``: what each part of
            a path below a folder means; by default ``PUBLISHED_LAYOUT``.
        method: name of the method, for one file with one column.
        task_set: name of the tasks, for files named one by one, which must all have these tasks.
            By default, a file with several columns has a separate set of tasks.
        unit: ``auto`` reads values as percent if they exceed 1, and refuses columns in which
            others may be shares, and columns whose units differ.
        scope: ``open`` if no image appears in two of the tasks, which only the user knows.
        n_images: number of distinct images in all tasks, 0 if unknown.
    """

    layout: str | None = None
    method: str | None = None
    task_set: str | None = None
    unit: Unit = "auto"
    scope: Scope = "closed"
    n_images: int = 0


@dataclass(frozen=True, eq=False)
class TaskAccuracies:
    """The accuracies of one method on one set of tasks, read from a file.

    Args:
        method: name of the method.
        task_set: name of the tasks. Accuracies contain no tasks: those with the same name, number,
            scope and ``tasks`` are assumed to be the same tasks.
        values: float64 ``(T,)``, shares of 1; ``unit`` is what they were in the file.
        tasks: the column ``task`` in ascending order, the order of ``values``; empty if it is
            0, 1, ..., T - 1 or absent.
        source: the file.
        scope: ``open`` if no image appears in two of the tasks.
        n_images: number of distinct images in all tasks, 0 if unknown.
    """

    method: str
    task_set: str
    values: FloatArray
    source: Path
    scope: Scope = "closed"
    n_images: int = 0
    unit: str = "share"
    tasks: tuple[str, ...] = ()

    @property
    def outcomes(self) -> AccuracyOutcomes:
        """The accuracies, with a digest of what is known of their tasks."""
        n_tasks = str(len(self.values))
        digest = digest_of("stated tasks", self.task_set, n_tasks, self.scope, *self.tasks)
        return AccuracyOutcomes(self.values, digest, self.n_images, self.scope == "closed")


@dataclass(frozen=True, eq=False)
class _Column:
    """Numbers of a column in a file in the order of its tasks, with the location of each."""

    name: str | None
    values: FloatArray
    where: Callable[[int], str]
    tasks: tuple[str, ...] = ()
    has_percent_signs: bool = False


def accuracy_files(folder: Path) -> list[Path]:
    """Return every file of accuracies below a folder, in natural order.

    Numbers in names count as numbers: ``5-shot`` comes before ``10-shot``.
    """
    found = [p for p in folder.rglob("*") if p.suffix in SUFFIXES and p.is_file()]
    return sorted(found, key=lambda p: _natural(str(p.relative_to(folder))))


def read_accuracies(
    paths: Sequence[str | Path], how: Reading | None = None
) -> list[TaskAccuracies]:
    """Read accuracies of tasks from files, and from folders with files below them.

    A ``.pt`` file holds one 1-d tensor or a list of numbers, ``.npy`` a 1-d array; CSV (its first
    line names the columns) and Parquet hold a column per method; values are sorted by a column
    ``task``, or else by a pandas index without a name, which has whole numbers or texts, each once.
    A folder's layout states what each part of a path below it means, such as
    ``tasks/method/method/tasks``.

    Raises:
        DataError: a file cannot be read, is empty or contains a value that is not an accuracy, or
            files of one set of tasks differ in their tasks; the message names file and row.
        OptionError: the layout does not fit, or a name is missing.
    """
    how = how or Reading()
    if how.layout is not None:
        _check_layout(how.layout)
    found: list[tuple[str, str, Path, _Column]] = []
    for path in map(Path, paths):
        if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises an error for long names
            if how.task_set is not None:
                raise OptionError(
                    f"--task-set {how.task_set}: the tasks in {path} are named by --layout"
                )
            found += _of_folder(path, how.layout)
        else:
            found += _of_file(path, how.task_set)
    if how.method is not None:
        if len(found) != 1:
            raise OptionError(f"--label names one method, but there are {len(found)} columns")
        found = [(how.method, *found[0][1:])]
    unit = _unit([(path, column) for *_, path, column in found], how.unit)
    kind = how.scope, how.n_images, unit
    read = [
        TaskAccuracies(name, tasks, _shares(column, unit, path), path, *kind, column.tasks)
        for name, tasks, path, column in found
    ]
    _check_sets(read)
    return read


def _check_layout(layout: str) -> None:
    parts = layout.split("/")
    if set(parts) - set(_LAYOUT_WORDS) or not {"tasks", "method"} <= set(parts):
        raise OptionError(
            f"--layout {layout}: must be parts {', '.join(_LAYOUT_WORDS)} joined by '/', with "
            f"tasks and method among them, such as {PUBLISHED_LAYOUT}"
        )


def _of_folder(folder: Path, layout: str | None) -> list[tuple[str, str, Path, _Column]]:
    files = accuracy_files(folder)
    if not files:
        raise DataError(f"{folder}: no file below it ends in {', '.join(SUFFIXES)}")
    found = []
    for path in files:
        parts = path.relative_to(folder).with_suffix("").parts
        words = (layout or PUBLISHED_LAYOUT).split("/")
        if len(parts) != len(words):
            raise OptionError(
                f"{path} has {len(parts)} parts below {folder}, but the layout "
                f"{'/'.join(words)} has {len(words)}; give the meaning of each part with --layout"
            )
        names = {
            word: "/".join(part for part, w in zip(parts, words, strict=True) if w == word)
            for word in ("method", "tasks")
        }
        for column in _columns(path):
            method = "/".join(filter(None, (names["method"], column.name)))
            found.append((method, names["tasks"], path, column))
    return found


def _of_file(path: Path, task_set: str | None) -> list[tuple[str, str, Path, _Column]]:
    columns = _columns(path)
    if len(columns) == 1 and task_set is None:
        raise OptionError(
            f"{path}: accuracies contain no tasks; name their tasks with --task-set NAME "
            "(equal names: the same tasks in the same order)"
        )
    alone = len(columns) == 1
    return [
        (path.stem if alone or c.name is None else c.name, task_set or path.stem, path, c)
        for c in columns
    ]


def _columns(path: Path) -> list[_Column]:
    readers = {".pt": _tensor, ".pth": _tensor, ".npy": _array, ".csv": _csv, ".parquet": _parquet}
    reader = readers.get(path.suffix)
    if reader is None:
        raise DataError(f"{path}: accuracies are read from {', '.join(SUFFIXES)}")
    try:
        check_file(path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    columns = reader(path)
    if not columns or not columns[0].values.size:
        raise DataError(f"{path}: is empty")
    return columns


def _tensor(path: Path) -> list[_Column]:
    import torch
    from torch.serialization import safe_globals

    try:
        with open_file(path) as file, warnings.catch_warnings(), safe_globals(_numpy_globals()):
            # PyTorch's own reader of quantised tensors is deprecated; they are refused below.
            warnings.simplefilter("ignore")
            tensor = torch.load(file, weights_only=True, map_location="cpu")
    except Exception as error:
        if (other := re.search(r"GLOBAL ([\w.]+)", str(error))) is not None:
            raise DataError(
                f"{path}: contains {other[1]}, which is not read; save "
                "torch.tensor(accuracies), one value per task"
            ) from None
        # The reader of a damaged file fails in as many ways as there are damages.
        reason = (getattr(error, "strerror", None) or str(error)).partition("\n")[0][:120]
        reason = reason or type(error).__name__
        raise DataError(f"{path}: not a tensor saved by PyTorch ({reason})") from None
    if isinstance(tensor, (list, tuple, np.ndarray)):
        return [_plain(tensor, path)]
    if not isinstance(tensor, torch.Tensor):
        kind = type(tensor).__name__
        raise DataError(f"{path}: must contain a tensor or a list of numbers, not {kind}")
    if (unfit := _unfit(tensor)) is not None:
        raise DataError(f"{path}: must be a dense tensor of real numbers, not {unfit}")
    if tensor.ndim != 1:
        raise DataError(
            f"{path}: must be a tensor of one dimension, one value per task, not "
            f"{tuple(tensor.shape)}"
        )
    # A gradient says how the numbers were made; it does not change them.
    return [_Column(None, tensor.detach().double().numpy(), lambda row: f"task {row}")]


def _numpy_globals() -> list[Any]:
    """Return what PyTorch must admit to read NumPy's numbers; none of it runs other code."""
    multiarray = np._core.multiarray  # type: ignore[attr-defined]
    functions = [multiarray._reconstruct, multiarray.scalar]
    earlier = [(f, f"numpy.core.multiarray.{f.__name__}") for f in functions]  # NumPy 1
    dtypes = [type(np.dtype(kind)) for kind in ("f2", "f4", "f8", "i4", "i8")]
    return [*functions, *earlier, np.ndarray, np.dtype, *dtypes]


def _array(path: Path) -> list[_Column]:
    try:
        return [_plain(np.load(path, mmap_mode="r", allow_pickle=False), path)]
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{path}: not an array saved by NumPy ({error})") from None


def _plain(numbers: Any, path: Path) -> _Column:
    """Return a list or an array of numbers as a column."""
    try:
        values = np.asarray(numbers)
    except ValueError:
        values = np.empty(0, object)
    if values.size and values.dtype.kind not in "iuf":
        raise DataError(f"{path}: must contain numbers, one per task")
    if values.ndim != 1:
        raise DataError(f"{path}: must have one dimension, one value per task, not {values.shape}")
    return _Column(None, values.astype(np.float64), lambda row: f"task {row}")


def _unfit(tensor: Tensor) -> str | None:
    """Return why the numbers of a tensor cannot be accuracies, if so."""
    import torch

    if tensor.is_meta:
        return "one without values (device meta)"
    if tensor.is_quantized:
        return f"quantised ({tensor.dtype}); save tensor.dequantize()"
    if tensor.is_nested or tensor.layout is not torch.strided:
        return "sparse or nested; save tensor.to_dense()"
    if tensor.is_complex() or tensor.dtype is torch.bool:
        return str(tensor.dtype).removeprefix("torch.")
    return None


def _csv(path: Path) -> list[_Column]:
    try:
        rows = [row for row in csv.reader(text_lines(open_file(path))) if row]
    except (OSError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read as CSV ({reason})") from None
    if not rows:
        return []
    names = [name.strip() for name in rows[0]]
    if all(parse_number(name) is not None for name in names):
        raise DataError(
            f"{path}: the first line must name the columns, such as the method, not be {rows[0]}"
        )
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(names):
            raise DataError(
                f"{path}, line {line}: {len(row)} values for {len(names)} columns; columns are "
                "separated by commas, decimals written with a point"
            )
    cells = [[row[i] for row in rows[1:]] for i in range(len(names))]
    return _columns_of(path, names, cells, lambda row: f"line {row + 2}")


def _parquet(path: Path) -> list[_Column]:
    table = read_parquet(path)
    if b"fsframework" in (table.schema.metadata or {}):
        raise DataError(f"{path}: is part of a run; name the run instead of this file")
    cells = [column.to_pylist() for column in table.columns]
    return _columns_of(path, table.column_names, cells, lambda row: f"row {row}")


def _columns_of(
    path: Path, names: Sequence[str], cells: Sequence[Sequence[Any]], where: Callable[[int], str]
) -> list[_Column]:
    """Return the methods' columns of a table in the order of its tasks."""
    task, methods = _roles(path, names)
    texts = [["" if cell is None else str(cell).strip() for cell in column] for column in cells]
    numbered = [str(row) for row in range(len(texts[0]) if texts else 0)]
    rows, tasks = _order_tasks(path, numbered if task is None else texts[task], where)
    columns = []
    for i in methods:
        has_signs = any(text.endswith("%") for text in texts[i])
        numbers = [parse_number(text.removesuffix("%")) for text in texts[i]]
        for row, (text, number) in enumerate(zip(texts[i], numbers, strict=True)):
            if number is None or (has_signs and number and not text.endswith("%")):
                fault = "is not a number" if number is None else "has no % sign, but others have"
                fault = f"{fault}: {text!r}" if text else "is missing"
                raise DataError(f"{path}, {where(row)}: the value of {names[i]!r} {fault}")
        values = np.array(numbers, np.float64)[rows]
        columns.append(_Column(names[i], values, lambda row: where(rows[row]), tasks, has_signs))
    return columns


def _roles(path: Path, names: Sequence[str]) -> tuple[int | None, list[int]]:
    """Return which column has the tasks, if one has, and which have accuracies."""
    index = [i for i, name in enumerate(names) if _INDEX.fullmatch(name) and (name or i == 0)][:1]
    tasks = [i for i, name in enumerate(names) if name.lower() == "task"]
    methods = [i for i in range(len(names)) if i not in (*index, *tasks[:1])]
    for i in methods:
        fault = "appears twice" if names[i] in names[:i] or i in tasks else ""
        if _NO_METHOD.fullmatch(names[i]):
            fault = "has no accuracies of a method; remove it, or name it task if it numbers them"
        if fault or not names[i]:
            raise DataError(f"{path}: the column {names[i] or i + 1!r} {fault or 'has no name'}")
    return next(iter(tasks or index), None), methods


def _order_tasks(
    path: Path, texts: Sequence[str], where: Callable[[int], str]
) -> tuple[list[int], tuple[str, ...]]:
    """Return the rows in ascending order of their tasks, and the tasks if not 0, 1, ..."""
    numbers = [parse_number(text) for text in texts]
    has_texts = all(number is None for number in numbers)
    rows: dict[Any, int] = {}
    for row, (text, number) in enumerate(zip(texts, numbers, strict=True)):
        is_whole = number is not None and number.is_integer()
        if _SUMMARY.fullmatch(text) if has_texts else not is_whole:
            rule = "a task must be a whole number, or every one a text"
            raise DataError(f"{path}, {where(row)}: {rule}, not {text!r}")
        task = text if has_texts else int(Decimal(text))
        if (earlier := rows.setdefault(task, row)) != row:
            raise DataError(f"{path}: {where(earlier)} and {where(row)} are both of task {text}")
    tasks = sorted(rows)
    is_usual = tasks == list(range(len(tasks)))
    return [rows[task] for task in tasks], () if is_usual else tuple(map(str, tasks))


def _unit(columns: Sequence[tuple[Path, _Column]], unit: Unit) -> str:
    """Return the unit of the values; all files that are read together have one.

    Raises:
        DataError: the values show more than one unit, or none.
    """
    first: dict[str, str] = {}
    for path, column in columns:
        place = f"{path}, column {column.name!r}" if column.name else f"{path}"
        values = column.values[column.values > 0]  # 0 is the same in both; NaN is refused later
        low = values[values <= 1 + _ROUNDING]
        if column.has_percent_signs or low.size < values.size:
            first.setdefault("percent", place)
            if unit == "share" and column.has_percent_signs:
                raise DataError(f"{place}: has % signs, but --unit is {unit}")
            if unit == "auto" and not (column.has_percent_signs or _fits_percent(values)):
                raise DataError(
                    f"{place}: {low.size:,} of {values.size:,} values over 0 are at most 1: percent"
                    " and shares may be mixed; correct them, or give --unit percent or --unit share"
                )
        elif values.size:
            first.setdefault("share", place)
    if unit != "auto":
        return unit
    if len(first) > 1:
        raise DataError(
            f"{first['percent']}: has values in percent, but {first['share']}: has none, so "
            "their unit may differ; read them one by one with --unit percent or --unit share"
        )
    return next(iter(first), "share")


def _fits_percent(values: FloatArray) -> bool:
    """Return whether values above 0, of which some exceed 1, can all be percent of Q queries.

    Those at most 1 must be few, near the others, and multiples of 100/Q for the smallest Q that
    fits the others: a share k/Q is one only if k is a multiple of 100.
    """
    low, high = values[values <= 1 + _ROUNDING], np.unique(values[values > 1 + _ROUNDING])
    if not low.size or low.size > _MOST_LOW * values.size or high[0] > _FAR * low.max():
        return not low.size
    counts = np.concatenate([high, low]) * np.arange(1, _MOST_QUERIES + 1)[:, None] / 100
    is_count = np.abs(counts - np.rint(counts)) < _COUNT_ROUNDING
    fits_high = is_count[:, : high.size].all(1)
    return bool(fits_high.any() and is_count[fits_high.argmax(), high.size :].all())


def unit_text(unit: str) -> str:
    """Return a unit in words, for the user who did not state it."""
    return "percent, up to 100" if unit == "percent" else "shares of 1, not percent"


def _shares(column: _Column, unit: str, path: Path) -> FloatArray:
    values, scale = column.values, _SCALES[unit]
    rounding = _ROUNDING * scale
    wrong = np.flatnonzero(~((values >= -rounding) & (values <= scale + rounding)))
    if wrong.size:
        row = int(wrong[0])
        named = f" of {column.name!r}" if column.name else ""
        value = "NaN" if np.isnan(values[row]) else f"{values[row]:g}"
        kind = "percent" if unit == "percent" else "a share"
        raise DataError(
            f"{path}, {column.where(row)}: an accuracy in {kind} must be from 0 to {scale:g}, "
            f"but the value{named} is {value}"
        )
    return np.asarray(np.clip(values / scale, 0, 1))


def _check_sets(read: Sequence[TaskAccuracies]) -> None:
    sets: dict[str, TaskAccuracies] = {}
    seen: dict[tuple[str, str], Path] = {}
    for one in read:
        first = sets.setdefault(one.task_set, one)
        if (len(one.values), one.tasks) != (len(first.values), first.tasks):
            raise DataError(
                f"{one.source}: {len(one.values)} accuracies for the tasks {one.task_set!r}, but "
                f"{first.source} has {len(first.values)}; their number and their column task (0, "
                "1, ... if there is none) must be equal"
            )
        earlier = seen.setdefault((one.method, one.task_set), one.source)
        if earlier != one.source:
            raise DataError(
                f"{one.source} and {earlier} both contain {one.method!r} on the tasks "
                f"{one.task_set!r}"
            )


def _natural(text: str) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]+)", text)
    return [(int(part), "") if i % 2 else (-1, part) for i, part in enumerate(parts)]
