"""Images in arrays: the pickles of miniImageNet and tieredImageNet, the files of CIFAR-100.

From an array in a file on disk, only the requested images are read, one by one; an array in a zip
archive is read completely.
"""

from __future__ import annotations

import io
import math
import reprlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from PIL import Image

from fsf_datasets._class_names import ClassNames
from fsf_datasets._declaration import Layout
from fsf_datasets._decoding import decode
from fsf_datasets._found import Found, Pictures
from fsf_datasets._messages import quoted, reason
from fsf_datasets._tables import label_fault
from fsf_datasets._trees import RawFile, Tree, ZipTree
from fsf_datasets._unpickle import Extent, StoredArray, read_pickle
from fsframework.interfaces import DataError
from fsframework.values import UInt8Array, normalize, text_lines

__all__ = ["find_cifar", "find_pickles"]

_IMAGES = ("image_data", "data", "images", "images_png")
_LABELS = ("labels", "label_specific", "fine_labels")
_SIDE = 32
_PLANES = 3 * _SIDE * _SIDE
_BLOCK = 1000
_MOST_HEADER = 1 << 16  # bytes of the header of an .npy file


class _Rows(Pictures):
    """Images of the rows of arrays ``(n, H, W, 3)``, one array after the other."""

    def __init__(self) -> None:
        self._blocks: list[Any] = []
        self._places: list[tuple[int, int]] = []

    def add(self, block: Any, rows: Sequence[int]) -> None:
        """Add rows of another array."""
        self._blocks.append(block)
        self._places.extend((len(self._blocks) - 1, int(row)) for row in rows)

    def __getitem__(self, index: int) -> Image.Image:
        block, row = self._places[index]
        found = self._blocks[block][row]
        return found if isinstance(found, Image.Image) else Image.fromarray(np.asarray(found))


class _FileRows:
    """A uint8 array ``(n, ...)`` in a file, whose rows are read on request."""

    dtype = np.dtype(np.uint8)

    def __init__(self, file: RawFile, start: int, shape: tuple[int, ...]) -> None:
        self._file, self._start, self.shape = file, start, shape
        self._row = math.prod(shape[1:])
        if min(shape) < 0 or start + shape[0] * self._row > file.size:
            raise ValueError("the file ends within the array")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, row: int) -> UInt8Array:
        raw = self._file.read(self._start + row * self._row, self._row)
        return np.frombuffer(raw, np.uint8).reshape(self.shape[1:])


class _Encoded:
    """A sequence of encoded PNG or JPEG images: arrays, bytes, or positions in a file."""

    def __init__(self, items: Sequence[Any], file: RawFile | None) -> None:
        self._items, self._file = items, file

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, row: int) -> Image.Image:
        return decode(io.BytesIO(self._raw(self._items[row])))

    def _raw(self, item: StoredArray | Extent | bytes | str) -> bytes:
        if isinstance(item, Extent):
            assert self._file is not None
            return self._file.read(*item)
        if isinstance(item, StoredArray):
            return item.numpy(_reader(self._file)).tobytes()
        return item.encode("latin1") if isinstance(item, str) else item  # str: from Python 2


class _Planes:
    """Images stored as red, green and blue planes, after the first ``skip`` bytes of each row."""

    def __init__(self, rows: UInt8Array | _FileRows, skip: int) -> None:
        self._rows, self._skip = rows, skip

    def __getitem__(self, row: int) -> UInt8Array:
        planes = self._rows[row][self._skip :].reshape(3, _SIDE, _SIDE)
        return np.ascontiguousarray(planes.transpose(1, 2, 0))


def _raw(tree: Tree, name: str) -> RawFile | None:
    """Return a file for reading in parts; ``None`` if it is not a file on disk."""
    local = tree.local(name)
    try:
        return None if local is None else RawFile(local)
    except OSError as error:
        raise DataError(f"{tree.place(name)}: cannot be read ({reason(error)})") from None


def _reader(file: RawFile | None) -> Callable[[int, int], bytes] | None:
    return None if file is None else file.read


# --- pickles ---------------------------------------------------------------------------------


def find_pickles(layout: Layout, tree: Tree, names: ClassNames | None) -> Found:
    """Find the images in pickles or ``.npz`` files of images, labels and optional class names."""
    found = Found(layout.name)
    pictures = _Rows()
    sources: list[str] = []
    for split, wanted in layout.files.items():
        files = [tree.nearest(name) for name in wanted]
        there = [file for file in files if file is not None]
        if len(there) < len(wanted):
            if there:
                absent = next(n for n, file in zip(wanted, files, strict=True) if file is None)
                found.problems.append(f"{there[0]} needs {absent}, which is missing")
            continue
        sources += there
        content: dict[str, Any] = {}
        for file in there:
            content |= _content(tree, file)
        _take(found, pictures, split, content, tree.place(there[0]), names)
    found.pictures = pictures if found.files else None
    found.sources = tuple(sources)
    return found


def _content(tree: Tree, file: str) -> dict[str, Any]:
    """Return the contents of a pickle or ``.npz`` by name."""
    place, local = tree.place(file), _raw(tree, file)
    try:
        if file.casefold().endswith(".npz"):
            return _npz(tree, file, local)
        with tree.open(file) as stream:
            raw = read_pickle(stream, place, leave=local is not None)
        if not isinstance(raw, dict):
            raw = {"images_png": raw}
        named = {_text(key): value for key, value in raw.items()}
        return {key: _ready(value, local, key in _IMAGES) for key, value in named.items()}
    except DataError:
        raise
    except Exception as error:  # damaged arrays can fail anywhere in NumPy
        raise DataError(f"{place}: an array is damaged ({reason(error)})") from None


def _ready(value: Any, local: RawFile | None, images: bool) -> Any:
    """Return arrays for what describes them: those of numbers, and those of encoded images."""
    if isinstance(value, dict):  # of the rows or the number of each class
        return {key: _numbers(inner, local) for key, inner in value.items()}
    value = _numbers(value, local)
    if images and isinstance(value, (list, tuple)) and value:
        whole = (StoredArray, Extent, bytes, str)
        return _Encoded(value, local) if all(isinstance(v, whole) for v in value) else value
    return value


def _numbers(value: Any, local: RawFile | None) -> Any:
    """Return the array that a description stands for; the items of an array of objects."""
    if not isinstance(value, StoredArray):
        return value
    if isinstance(value.data, list):
        return value.data
    pixels = value.dtype == np.uint8 and len(value.shape) > 1 and not value.fortran
    if local is not None and pixels and isinstance(value.data, Extent):
        return _FileRows(local, value.data.start, value.shape)
    return value.numpy(_reader(local))


def _npz(tree: Tree, file: str, local: RawFile | None) -> dict[str, Any]:
    """Return the arrays of an ``.npz``; uncompressed pixels stay in the file."""
    if local is not None:
        archive = ZipTree(local.path)
    else:
        with tree.open(file) as stream:
            archive = ZipTree(Path(tree.place(file)), stream.read())
    found: dict[str, Any] = {}
    for member in archive.names:
        name = member.removesuffix(".npy")
        if name not in (*_IMAGES, *_LABELS):
            continue
        if name in found:
            raise DataError(f"{archive.root}: contains the array {name!r} twice")
        place = archive.stored(member) if local is not None else None
        found[name] = None if place is None else _uncompressed(local, *place)
        if found[name] is None:
            with archive.open(member) as stream:
                found[name] = _npy(stream.read())
    return found


def _npy(content: bytes) -> npt.NDArray[Any]:
    """Return the array of an ``.npy`` file whose size agrees with its header."""
    stream = io.BytesIO(content)
    shape, fortran, dtype = _npy_header(stream)
    values = np.frombuffer(content, np.uint8, offset=stream.tell()).view(dtype)
    return values.reshape(shape, order="F" if fortran else "C")


def _npy_header(stream: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"the version {version} of the .npy format is not read")
    shape, fortran, dtype = readers[version](stream)
    if dtype.hasobject:
        raise ValueError("it contains objects")
    if min(shape, default=0) < 0:
        raise ValueError(f"its shape is {shape}")
    return shape, fortran, dtype


def _uncompressed(file: RawFile | None, start: int, size: int) -> _FileRows | None:
    """Return the array of an uncompressed ``.npy``; ``None`` if it does not contain pixels."""
    assert file is not None
    stream = io.BytesIO(file.read(start, min(size, _MOST_HEADER)))
    shape, fortran, dtype = _npy_header(stream)
    if fortran or dtype != np.uint8 or len(shape) < 2:
        return None
    if stream.tell() + math.prod(shape) != size:
        raise ValueError(f"its size does not agree with its shape {shape}")
    return _FileRows(file, start + stream.tell(), shape)


def _take(
    found: Found,
    pictures: _Rows,
    split: str,
    content: Mapping[str, Any],
    place: str,
    names: ClassNames | None,
) -> None:
    """Add the images of one split to ``found`` and ``pictures``."""
    images = next((content[key] for key in _IMAGES if key in content), None)
    encoded = isinstance(images, _Encoded)
    if not encoded and not (
        isinstance(images, (np.ndarray, _FileRows))
        and images.dtype == np.uint8
        and len(images.shape) == 4
        and images.shape[3] == 3
    ):
        held = ", ".join(content) or "nothing"
        if isinstance(images, (np.ndarray, _FileRows)):
            held = f"{images.dtype} {images.shape}; save values from 0 to 255 as uint8"
        raise DataError(
            f"{place}: must contain images, uint8 (n, height, width, 3), under "
            f"{' or '.join(_IMAGES)}, not {held}"
        )
    assert images is not None
    count = len(images)
    rows = _rows_of_classes(content, place, count)
    written = _written(content, rows, place)
    labels: dict[str, Any] = {}
    for label, members in rows.items():
        text = written.get(label)
        text = None if text is None else normalize(text)
        if text is not None and (why := label_fault(text)):
            raise DataError(f"{place}: the class name {reprlib.repr(text)} {why}")
        name = None if text is None else (text if names is None else names(text))
        if name is None:
            found.numbered = True
            name = f"{split}/{label:02d}" if isinstance(label, int) else f"{split}/{label}"
        if name in labels:
            raise DataError(
                f"{place}: the labels {labels[name]!r} and {label!r} both mean the class {name!r}"
            )
        labels[name] = label
        found.placed[name].add(split)
        found.add(name, [f"{name}/{row:05d}" for row in members])
        pictures.add(images, members)


def _rows_of_classes(content: Mapping[str, Any], place: str, count: int) -> dict[Any, list[int]]:
    """Return the rows of each label or class name, in the order of the labels."""
    rows: dict[Any, list[int]] = defaultdict(list)
    listed = content.get("class_dict")
    labels = next((content[key] for key in _LABELS if key in content), None)
    if isinstance(listed, dict):
        for name, members in listed.items():
            rows[_text(name)] = _listed(members, place, "class_dict", int)
    elif labels is not None:
        for row, label in enumerate(_labels(labels, place)):
            rows[label].append(row)
        if sum(map(len, rows.values())) != count:
            total = sum(map(len, rows.values()))
            raise DataError(f"{place}: contains {count:,} images but {total:,} labels")
    else:
        raise DataError(f"{place}: must contain class_dict or {' or '.join(_LABELS)}")
    if any(not 0 <= row < count for members in rows.values() for row in members):
        raise DataError(
            f"{place}: contains {count:,} images, but its class_dict has rows beyond them"
        )
    listings = np.bincount([row for members in rows.values() for row in members], minlength=count)
    if wrong := np.flatnonzero(listings != 1).tolist():
        classes = [name for name, members in rows.items() if wrong[0] in members]
        where = f"more than once, in {quoted(classes)}" if classes else "in no class"
        raise DataError(f"{place}: class_dict must have each row once; row {wrong[0]} is {where}")
    return (
        {label: rows[label] for label in sorted(rows, key=str)}
        if listed
        else dict(sorted(rows.items()))
    )


def _written(content: Mapping[str, Any], rows: Mapping[Any, Any], place: str) -> dict[Any, str]:
    """Return the name of each label that the pickle names."""
    if all(isinstance(label, str) for label in rows):
        return {label: label for label in rows}
    by_name = content.get("catname2label")
    if isinstance(by_name, dict):
        numbers = _listed(list(by_name.values()), place, "catname2label", int)
        named = dict(zip(numbers, map(_text, by_name), strict=True))
        if len(named) < len(numbers):
            same = [_text(n) for n, number in by_name.items() if named[int(number)] != _text(n)]
            raise DataError(f"{place}: catname2label gives {quoted(same)} another name's number")
        return named
    if (listed := content.get("label_specific_str")) is not None:
        return dict(enumerate(_listed(listed, place, "label_specific_str", str)))
    return {}


def _labels(values: Any, place: str) -> list[Any]:
    """Return labels, which are all whole numbers or all names."""
    if (plain := _plain(values)) is None:
        raise DataError(f"{place}: the labels must be a flat list of whole numbers or names")
    found = [_label(value, row, place) for row, value in enumerate(plain)]
    if len({type(label) for label in found}) > 1:
        raise DataError(f"{place}: the labels must be all whole numbers or all names")
    return found


def _label(value: Any, row: int, place: str) -> int | str:
    if isinstance(value, (str, bytes)):
        name = _text(value)
        if why := label_fault(name):
            shown = reprlib.repr(name)
            raise DataError(f"{place}: the label of image {row} is {shown}, which {why}")
        return name
    # NaN is not equal to anything, so it is refused too.
    if not isinstance(value, (int, float)) or value % 1 != 0:
        shown = reprlib.repr(value) if isinstance(value, float) else f"a {type(value).__name__}"
        raise DataError(f"{place}: the label {shown} is neither a whole number nor a name")
    if value < 0:
        raise DataError(f"{place}: the label of image {row} is {value:g}, which is below 0")
    return int(value)


def _listed(values: Any, place: str, what: str, kind: type[Any]) -> list[Any]:
    """Return a flat list of whole numbers or of texts.

    Raises:
        DataError: it contains anything else, such as NaN or another list.
    """
    if (plain := _plain(values)) is not None:
        found = [_text(v) if isinstance(v, bytes) else v for v in plain]
        if kind is int:
            found = [int(v) if isinstance(v, (bool, float)) and v % 1 == 0 else v for v in found]
        if all(type(v) is kind for v in found):
            return found
    wanted = "whole numbers" if kind is int else "names"
    raise DataError(f"{place}: {what} must be a flat list of {wanted}")


def _plain(values: Any) -> list[Any] | None:
    """Return the items of a list or of an array of one dimension; ``None`` for anything else."""
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return list(values.tolist())
    return list(values) if isinstance(values, (list, tuple)) else None


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# --- CIFAR-100 -------------------------------------------------------------------------------


def find_cifar(layout: Layout, tree: Tree, names: ClassNames | None) -> Found:
    """Find the original files of CIFAR-100: the binary ones or the Python pickles."""
    if (binary := tree.nearest("fine_label_names.txt")) is not None:
        try:
            with tree.open(binary) as stream:
                fine = "".join(text_lines(stream)).split()
        except OSError as error:
            raise DataError(f"{tree.place(binary)}: cannot be read ({reason(error)})") from None
        return _cifar(layout, tree, names, fine, binary, (".bin", _binary))
    if (meta := tree.nearest("meta")) is None:
        return Found(layout.name)
    content = _content(tree, meta)
    if "fine_label_names" not in content:
        raise DataError(f"{tree.place(meta)}: must contain fine_label_names")
    fine = _listed(content["fine_label_names"], tree.place(meta), "fine_label_names", str)
    return _cifar(layout, tree, names, fine, meta, ("", _pickled))


def _cifar(
    layout: Layout,
    tree: Tree,
    names: ClassNames | None,
    fine: Sequence[str],
    source: str,
    how: tuple[str, Any],
) -> Found:
    found = Found(layout.name)
    pictures = _Rows()
    sources = [source]
    suffix, read = how
    for part in ("train", "test"):
        if (file := tree.nearest(f"{part}{suffix}")) is None:
            found.problems.append(f"{part}{suffix} is missing")
            continue
        sources.append(file)
        labels, planes = read(tree, file)
        if labels.size and not 0 <= labels.min() <= labels.max() < len(fine):
            raise DataError(
                f"{tree.place(file)}: labels must be in 0..{len(fine) - 1}, not "
                f"{labels.min()}..{labels.max()}"
            )
        for label in np.unique(labels).tolist():
            name = fine[label] if names is None else names(fine[label])
            rows = np.flatnonzero(labels == label).tolist()
            if name is None:
                found.unknown[fine[label]] += len(rows)
                continue
            found.add(name, [f"{name}/{part}_{row:05d}" for row in rows])
            pictures.add(planes, rows)
    found.pictures = pictures if found.files else None
    found.sources = tuple(sources)
    return found


def _binary(tree: Tree, file: str) -> tuple[Any, _Planes]:
    """Read rows of a coarse label, a fine label and 3,072 pixels."""
    local, width = _raw(tree, file), _PLANES + 2
    if local is None:
        try:
            with tree.open(file) as stream:
                raw = np.frombuffer(stream.read(), np.uint8)
        except OSError as error:
            raise DataError(f"{tree.place(file)}: cannot be read ({reason(error)})") from None
    size = raw.size if local is None else local.size
    if size == 0 or size % width:
        raise DataError(
            f"{tree.place(file)}: the size must be a multiple of {width:,} bytes, not {size:,}; "
            "is the file incomplete?"
        )
    if local is None:
        rows = raw.reshape(-1, width)
        return np.array(rows[:, 1]), _Planes(rows, 2)
    labels = [
        np.frombuffer(local.read(start, width * _BLOCK), np.uint8).reshape(-1, width)[:, 1].copy()
        for start in range(0, size, width * _BLOCK)
    ]
    return np.concatenate(labels), _Planes(_FileRows(local, 0, (size // width, width)), 2)


def _pickled(tree: Tree, file: str) -> tuple[Any, _Planes]:
    """Read a pickle with 3,072 pixels per row and fine labels."""
    content = _content(tree, file)
    listed = _listed(content.get("fine_labels", []), tree.place(file), "fine_labels", int)
    data, labels = content.get("data"), np.array(listed, np.int64)
    if (
        not isinstance(data, (np.ndarray, _FileRows))
        or data.dtype != np.uint8
        or data.shape != (len(labels), _PLANES)
    ):
        raise DataError(f"{tree.place(file)}: must contain data and fine_labels of CIFAR-100")
    return labels, _Planes(data, 0)
