"""Every reader of files of a user: a sound file for each, and how it is read to the end."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import lzma
import pickle
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

from fsf_datasets import CsvTable, Declared, Folder
from fsf_datasets._declaration import read_declaration
from fsf_detectors._vocabulary import read_vocabulary
from fsf_detectors.records import CaptionsFile
from fsf_importing.libfewshot._files import read_config as read_libfewshot_config
from fsf_importing.reference import _arrays
from fsf_statistics.accuracies import Reading, read_accuracies
from fsf_statistics.ranking import read_columns
from fsframework.components.registry import Registry
from fsframework.engine.learning.model import load_tensors, save_tensors
from fsframework.engine.options import read_config
from fsframework.engine.words import read_attributes
from fsframework.interfaces import DataError, Dataset
from fsframework.records import RunRecord
from fsframework.values import (
    AccuracyOutcomes,
    AttributeTable,
    ImagePool,
    Outcomes,
    TaskSet,
)
from fsframework.values.weights import read_weights
from tests.test_records import example_record

__all__ = ["READERS", "Reader", "broken_of", "picture", "reader_of"]


@dataclass(frozen=True)
class Reader:
    """A reader of one file.

    Args:
        name: what it reads.
        file: a name that the reader accepts.
        read: reads the file at a path, to the end.
        write: writes a sound file to a path.
    """

    name: str
    file: str
    read: Callable[[Path], object]
    write: Callable[[Path], object]


def picture(seed: int = 0, kind: str = "PNG", mode: str = "RGB") -> bytes:
    """Return a small encoded image."""
    stream = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (9, 8, 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(stream, kind)
    return stream.getvalue()


def broken_of(data: Dataset) -> list[str]:
    """Read every image of a data set; return the sentence of each that is broken."""
    broken = []
    for index in range(len(data.keys)):
        try:
            data.image(index)
        except DataError as error:
            broken.append(str(error))
    return broken


def read_all(data: Dataset) -> None:
    """Read every image of a data set; those that are broken are one error."""
    if broken := broken_of(data):
        raise DataError("; ".join(broken))


# --- sound files -----------------------------------------------------------------------------


def _table() -> AttributeTable:
    words = [{"grass", "dog"}, set(), {"sofa"}, {"dog"}, {"snow"}, {"sofa"}, {"dog"}, {"red"}]
    keys = [f"{c}/{i}.png" for c in "ab" for i in range(4)]
    return AttributeTable.from_words(keys, words, {"detector": "none"}, [f"a {k}" for k in keys])


def _pool() -> ImagePool:
    keys = _table().keys
    return ImagePool(keys, np.repeat([0, 1], 4), ("a", "b"), {"place": keys}, _table())


def _tasks() -> TaskSet:
    return TaskSet.of(
        _pool(),
        np.array([[0, 1], [1, 0]]),
        np.array([[[0], [4]], [[5], [1]]]),
        np.array([[[1, 2], [5, 6]], [[6, 7], [2, 3]]]),
        sampler="random",
        options={"n_way": 2},
        seed=3,
    )


def _outcomes(path: Path) -> None:
    Outcomes.of(_tasks(), np.array([[[0, 1], [1, 1]], [[0, 0], [1, 0]]])).save(path)


def _csv(*rows: tuple[str, ...]) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)

    return write


def _text(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text, encoding="utf-8")


def _archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for number, kind in enumerate(("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM")):
            method = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)[number % 3]
            for c in "ab":
                name = f"{c}/{number}.{kind.lower()}"
                archive.writestr(name, picture(number, kind), compress_type=method)


def _images(path: Path) -> None:
    path.parent.joinpath("a").mkdir(exist_ok=True)
    path.write_bytes(picture())


def _pickle(path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 10, 10, 3), np.uint8)
    names = {"cat": [0, 1, 2], "dog": [3, 4, 5]}
    path.write_bytes(pickle.dumps({"image_data": pixels, "class_dict": names}, protocol=2))


def _npz(path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 10, 10, 3), np.uint8)
    np.savez_compressed(path, images=pixels, labels=np.repeat([0, 1], 3))


def _reference(path: Path) -> None:
    np.savez(path, images=np.zeros((4, 3, 8, 8), np.uint8), output=np.zeros((2, 2)))


_DECLARATION = """
name = "mine"
title = "Mine"
[pixels]
size = 8
[[layouts]]
kind = "folders"
levels = ["place", "class"]
pattern = '_(?P<light>[a-z]+)'
columns = { where = "{place}" }
[splits.usual]
train = ["a"]
test = { b = 3 }
counts = { train = [1, 2] }
"""

# --- reading to the end ----------------------------------------------------------------------


def _read_pixels(path: Path) -> None:
    """Read a table that names one image, which is broken or not."""
    table = path.parent / "images.csv"
    table.write_text(f"path,label\n{path.name},x\n", encoding="utf-8")
    read_all(CsvTable(path=table))


def _arrays_of(file: str) -> Callable[[Path], object]:
    layout = f'[[layouts]]\nkind = "pickles"\nfiles = {{ train = ["{file}"] }}\n'

    def read(path: Path) -> None:
        declaration = path.parent / "arrays.toml"
        declaration.write_text(f'name = "arrays"\ntitle = "Arrays"\n{layout}', encoding="utf-8")
        read_all(Declared(declaration=declaration, path=path.parent))

    return read


def _read_split(path: Path) -> object:
    with _two_classes() as folder:
        return Folder(path=Path(folder), split=path)


def _read_compressed_split(path: Path) -> object:
    declaration = path.parent / "split.toml"
    text = f'name = "split"\ntitle = "Split"\n[splits.usual]\nfile = "{path.name}"\n'
    declaration.write_text(text, encoding="utf-8")
    with _two_classes() as folder:
        return Declared(declaration=declaration, path=Path(folder))


@contextlib.contextmanager
def _two_classes() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        for c in "ab":
            (Path(folder) / c).mkdir()
            (Path(folder) / c / "1.png").write_bytes(picture())
        yield folder


def _read_captions(path: Path) -> None:
    from fsf_detectors.selection import SpacySelector

    for on_error in ("stop", "skip"):
        CaptionsFile(path=path, on_error=on_error, selector=SpacySelector()).prepare()


def _read_record(path: Path) -> RunRecord:
    return RunRecord.load(path.parent)


def _record(path: Path) -> None:
    example_record().save(path.parent)


def _accuracies(path: Path) -> object:
    return read_accuracies([path], Reading(task_set="mine"))


def _weights(path: Path) -> None:
    torch.save({"a": torch.zeros(2)}, path)


_CONFIGURATION = f"""
way = 5
name = "{"x." * 50}"
[training]
epochs = 2
"""
"""The dots of a text nest nothing."""
_CAPTION = {"key": "a/1.png", "caption": "a dog on grass"}
_ACCURACIES: dict[str, Any] = {"a": [0.5, 1.0, 0.25], "b": [0.0, 0.5, 0.5]}

READERS = (
    Reader("tasks", "t.safetensors", TaskSet.load, lambda p: _tasks().save(p)),
    Reader("outcomes", "o.parquet", Outcomes.load, _outcomes),
    Reader(
        "accuracies of tasks",
        "c.parquet",
        Outcomes.load,
        lambda p: AccuracyOutcomes([0.5, 1.0], "digest", 3, True).save(p),
    ),
    Reader("pool", "p.parquet", ImagePool.load, lambda p: _pool().save(p)),
    Reader("attributes", "a.parquet", read_attributes, lambda p: _table().save(p)),
    Reader(
        "attributes as CSV",
        "a.csv",
        read_attributes,
        _csv(("key", "words"), ("a.png", "dog; grass"), ("b.png", "")),
    ),
    Reader("record", "run.json", _read_record, _record),
    Reader("captions", "c.jsonl", _read_captions, _text(json.dumps(_CAPTION) + "\n")),
    Reader(
        "captions, compressed",
        "c.jsonl.gz",
        _read_captions,
        lambda p: p.write_bytes(gzip.compress(json.dumps(_CAPTION).encode())),
    ),
    Reader("captions as CSV", "c.csv", _read_captions, _csv(("key", "caption"), ("a", '"b",\nc'))),
    Reader("captions by number", "c.token", _read_captions, _text("a.png#0\ta dog\na.png#1\tb\n")),
    Reader("vocabulary", "v.txt", read_vocabulary, _text("# words\ndog\nred sofa\n")),
    Reader(
        "images in a table",
        "i.csv",
        lambda p: broken_of(CsvTable(path=p)),  # its images are not there
        _csv(("path", "label", "split", "light"), ("a.png", "cat", "train", "noon")),
    ),
    Reader("split", "s.json", _read_split, _text('{"train": ["a"], "test": ["b"]}')),
    Reader(
        "split, compressed",
        "s.json.xz",
        _read_compressed_split,
        lambda p: p.write_bytes(lzma.compress(b'{"train": ["a"], "test": ["b"]}')),
    ),
    Reader("split as CSV", "s.csv", _read_split, _csv(("class", "split"), ("a", "train"))),
    Reader("declaration", "d.toml", read_declaration, _text(_DECLARATION)),
    Reader("archive", "z.zip", lambda p: read_all(Folder(path=p)), _archive),
    Reader("image", "i.png", _read_pixels, lambda p: p.write_bytes(picture(mode="P"))),
    Reader("image as JPEG", "i.jpg", _read_pixels, lambda p: p.write_bytes(picture(1, "JPEG"))),
    Reader("image as GIF", "i.gif", _read_pixels, lambda p: p.write_bytes(picture(2, "GIF"))),
    Reader("image as WebP", "i.webp", _read_pixels, lambda p: p.write_bytes(picture(3, "WEBP"))),
    Reader("image as BMP", "i.bmp", _read_pixels, lambda p: p.write_bytes(picture(4, "BMP"))),
    Reader("pickle", "x.pkl", _arrays_of("x.pkl"), _pickle),
    Reader("arrays", "x.npz", _arrays_of("x.npz"), _npz),
    Reader("accuracies", "a.pt", _accuracies, lambda p: torch.save(torch.tensor([0.5, 0.25]), p)),
    Reader(
        "accuracies as CSV",
        "a.csv",
        _accuracies,
        _csv(("task", "a"), ("0", "0.5"), ("1", "1.0")),
    ),
    Reader(
        "accuracies as Parquet",
        "a.parquet",
        _accuracies,
        lambda p: pq.write_table(pa.table(_ACCURACIES), p),
    ),
    Reader(
        "columns to rank",
        "r.csv",
        lambda p: read_columns(p, ("a", "b"), row="method"),
        _csv(("method", "a", "b"), ("x", "0.5", "1"), ("y", "0.25", "2")),
    ),
    Reader("configuration", "c.toml", read_config, _text(_CONFIGURATION)),
    Reader(
        "plugin",
        "plugin.py",
        lambda p: Registry().load_file(p),
        _text(
            "from fsframework.interfaces import Statistic\n"
            "class Mine(Statistic):\n"
            "    def per_task(self, outcomes):\n        return outcomes.task_accuracy\n"
        ),
    ),
    Reader("outputs to compare with", "r.npz", _arrays, _reference),
    Reader(
        "weights",
        "w.safetensors",
        load_tensors,
        lambda p: save_tensors(p, {"a": torch.zeros(3)}, {"of": "a test"}),
    ),
    Reader("weights of other libraries", "w.pth", read_weights, _weights),
    Reader("configuration of LibFewShot", "c.yaml", read_libfewshot_config, _text("way_num: 5\n")),
)


def reader_of(name: str) -> Reader:
    """Return a reader by its name."""
    return next(reader for reader in READERS if reader.name == name)
