"""Files of the published FewSTAB code: its pickles of attributes and its task files."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fsframework.errors import DataError, OptionError
from fsframework.interfaces import Dataset
from fsframework.values import AttributeTable, Texts, check_file, normalize, open_file, text_lines

__all__ = ["fewstab_attributes", "fewstab_tasks", "find_images", "image_order"]

_PART_OF_SPEECH = re.compile(r":(?:noun|adj)$")
_QUERIES = 15
"""Queries of a class in all published tasks."""


def fewstab_attributes(path: Path, dataset: Dataset) -> AttributeTable:
    """Read a pickle that ``extract_attributes.py`` of FewSTAB wrote, without executing it.

    It has for each class a matrix of images and attributes, the attributes (``dog:noun``,
    ``black:adj``) and the file names. A noun and an adjective of the same letters become one word.

    Args:
        path: such as ``test_vit-gpt2_attribute_embeds.pickle``.
        dataset: whose images have these file names.

    Raises:
        DataError: the file is something else, or no image has such a name.
    """
    from fsf_datasets import read_pickle

    rows: dict[str, list[str]] = {}
    try:
        with open_file(path) as file:

            def read(start: int, size: int) -> bytes:
                file.seek(start)
                return file.read(size)

            classes = read_pickle(file, str(path), leave=True)
            for matrix, attributes, names, *_ in classes.values():
                words = np.array([_PART_OF_SPEECH.sub("", text) for text in attributes], object)
                present = matrix.numpy(read) != 0
                for name, own in zip(names, present, strict=True):
                    rows[name] = words[own].tolist()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise DataError(
            f"{path}: not a pickle of FewSTAB's attributes, which has a matrix, attributes and "
            f"file names for each class ({error})"
        ) from None
    keys = Texts.of(dataset.keys)
    places = find_images(list(rows), keys, path)
    origin = {"file": path.name, "detector": "FewSTAB's extract_attributes.py"}
    return AttributeTable.from_words(keys.take(places), rows.values(), origin)


def find_images(names: Sequence[str], keys: Sequence[str], source: Path) -> np.ndarray[Any, Any]:
    """Return int64 ``(n,)``: the image of each key or file name.

    Raises:
        DataError: no image has a name, or several have it.
    """
    images = Texts.of(keys)
    places = images.find(names)
    if (places >= 0).all():
        return places
    files: dict[str, int] = {}
    for place, key in enumerate(images):
        name = key.rpartition("/")[2]
        files[name] = -2 if name in files else place
    found = [files.get(normalize(name).rpartition("/")[2], -1) for name in names]
    for name, place in zip(names, found, strict=True):
        if place < 0:
            why = "no image of the data is" if place == -1 else "several images of the data are"
            raise DataError(f"{source}: {why} called {name!r}; the images are {images[0]!r}, ...")
    return np.array(found, np.int64)


def image_order(path: Path) -> list[str]:
    """Return the file names in the first column of a list of images, in its order.

    It is the list that indices of FewSTAB's tasks refer to: LibFewShot's ``test.csv`` with a
    header, or FewSTAB's captions without one.

    Raises:
        DataError: the file cannot be read, or has no rows.
    """
    try:
        names = [line[0].strip() for line in csv.reader(text_lines(open_file(path))) if line]
    except (OSError, ValueError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read as CSV ({reason})") from None
    names = names[1:] if names and "." not in names[0] else names
    if not names:
        raise DataError(f"{path}: names no image in its first column")
    return names


def fewstab_tasks(path: Path, images: Path | None, shot: int | None) -> Iterator[Mapping[str, Any]]:
    """Yield the tasks of a ``spurious_test_*.pt`` file as the lines of ``export_jsonl``.

    Args:
        path: a list of pairs: indices ``(way, shot + query)``, and the attributes of the ways.
        images: the list that the indices refer to, see ``image_order``.
        shot: number of support images per class; by default all but 15.

    Raises:
        DataError: the file is something else, or an index is not in the list.
        OptionError: there is no list.
    """
    import torch
    from torch.serialization import safe_globals

    if images is None:
        raise OptionError(
            f"{path}: its tasks are indices into a list of images; name it with --images, such as "
            "LibFewShot's test.csv or FewSTAB's test_vit-gpt2_captions.csv"
        )
    names = image_order(images)
    reconstruct = np._core.multiarray._reconstruct  # type: ignore[attr-defined]
    earlier = reconstruct, "numpy.core.multiarray._reconstruct"  # NumPy 1
    numpy = [reconstruct, earlier, np.ndarray, np.dtype, type(np.dtype("U1"))]
    try:
        check_file(path)
        with open_file(path) as file, safe_globals(numpy):
            tasks = torch.load(file, weights_only=True, map_location="cpu")
        for indices, ((*attributes,), *_) in tasks:
            rows = indices.tolist()
            support = len(rows[0]) - _QUERIES if shot is None else shot
            yield {
                "arm": "biased",
                "attributes": [_PART_OF_SPEECH.sub("", str(text)) for text in attributes],
                "support": [[names[i] for i in row[:support]] for row in rows],
                "query": [[names[i] for i in row[support:]] for row in rows],
            }
    except IndexError:
        most = max(itertools.chain.from_iterable(rows))
        raise DataError(
            f"{path}: refers to image {most:,}, but {images} has {len(names):,}"
        ) from None
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except DataError:
        raise
    except Exception as error:  # the reader of a damaged file fails in as many ways as damages
        reason = str(error).partition("\n")[0][:120] or type(error).__name__
        raise DataError(f"{path}: not a task file of FewSTAB ({reason})") from None
