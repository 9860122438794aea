"""Files of the published FewSTAB code: its pickles of attributes and its task files."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fsframework.errors import DataError, OptionError, naming
from fsframework.interfaces import Dataset
from fsframework.values import AttributeTable, Texts, check_file, normalize, open_file, text_lines

__all__ = ["fewstab_attributes", "fewstab_tasks", "find_images", "image_order"]

_PART_OF_SPEECH = re.compile(r":(?:noun|adj)$")
_HEADER = re.compile(r"(?:image|file|img)?[ _.-]*(?:name|path|file|image|img|id|key)s?", re.I)


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
    with naming(path):
        places = find_images(list(rows), keys)
    origin = {"file": path.name, "detector": "FewSTAB's extract_attributes.py"}
    return AttributeTable.from_words(keys.take(places), rows.values(), origin)


def find_images(names: Sequence[str], keys: Sequence[str]) -> np.ndarray[Any, Any]:
    """Return int64 ``(n,)``: the image of each key or file name.

    A name without a folder is a file name. One root may be missing from all keys, or all names.

    Raises:
        DataError: no image has a name, or several have it.
    """
    images = Texts.of(keys)
    places = images.find(names)
    if (places >= 0).all():
        return places
    names = [normalize(name) for name in names]
    first = names[int(np.argmin(places))]
    roots = {first[: i + 1] for i, letter in enumerate(first) if letter == "/"}
    missing = {key[: -len(first)] for key in images if key.endswith(f"/{first}")}
    moved = [[name[len(root) :] for name in names] for root in roots
             if all(name.startswith(root) for name in names)]  # fmt: skip
    moved += [[root + name for name in names] for root in missing]
    fitting = [found for found in map(images.find, moved) if (found >= 0).all()]
    if len(fitting) == 1:
        return fitting[0]
    files: dict[str, int] = {}
    for place, key in enumerate(images):
        name = key.rpartition("/")[2]
        files[name] = -2 if name in files else place
    for i in np.flatnonzero(places < 0):
        places[i] = -2 if fitting else files.get(names[i], -1)
        if places[i] < 0:
            why = "no image of the data is" if places[i] == -1 else "several images of the data are"
            raise DataError(f"{why} called {names[i]!r}; the first is {images[0]!r}")
    return places


def image_order(path: Path) -> list[str]:
    """Return the file names in the first column of a list of images, in its order.

    It is the list that indices of FewSTAB's tasks refer to: LibFewShot's ``test.csv`` with a
    header, or FewSTAB's captions without one. A header is a word such as ``filename``, or the only
    name without a suffix.

    Raises:
        DataError: the file cannot be read, or has no rows.
    """
    try:
        names = [line[0].strip() for line in csv.reader(text_lines(open_file(path))) if line]
    except (OSError, ValueError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read as CSV ({reason})") from None
    has_suffix = [bool(Path(name).suffix) for name in names]
    if names and (_HEADER.fullmatch(names[0]) or (not has_suffix[0] and all(has_suffix[1:]))):
        names = names[1:]
    if not names:
        raise DataError(f"{path}: names no image in its first column")
    return names


def fewstab_tasks(
    path: Path, images: Path | None, shot: int | None, queries: int | None
) -> Iterator[Mapping[str, Any]]:
    """Yield the tasks of a ``spurious_test_*.pt`` file as the lines of ``export_jsonl``.

    Args:
        path: a list of pairs: indices ``(way, shot + query)``, and the attributes of the ways.
        images: the list that the indices refer to, see ``image_order``.
        shot: number of support images per class, which come first; or
        queries: number of queries per class; what is not given is the rest.

    Raises:
        DataError: the file is something else, or an index is not in the list.
        OptionError: there is no list, or ``shot`` and ``queries`` do not add up.
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
        for t, (indices, ((*attributes,), *_)) in enumerate(tasks):
            rows = np.asarray(indices)
            n_images = rows.shape[1]
            support = shot or n_images - (queries or n_images)
            if not 0 < support < n_images or support + (queries or n_images - support) != n_images:
                raise OptionError(
                    f"{path}, task {t}: {n_images} images per class are not --shot {shot} and "
                    f"--queries {queries}; give one of them, or both if they add up"
                )
            if (wrong := rows[(rows < 0) | (rows >= len(names))]).size:
                known = f"{images} has {len(names):,}, from 0 on"
                raise DataError(f"{path}, task {t}: refers to image {wrong[0]:,}, but {known}")
            yield {
                "arm": "biased",
                "attributes": [_PART_OF_SPEECH.sub("", str(text)) for text in attributes],
                "support": [[names[i] for i in row[:support]] for row in rows],
                "query": [[names[i] for i in row[support:]] for row in rows],
            }
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (DataError, OptionError):
        raise
    except Exception as error:  # the reader of a damaged file fails in as many ways as damages
        reason = str(error).partition("\n")[0][:120] or type(error).__name__
        fault = f"not a task file of FewSTAB ({reason})"
        if re.search(r"GLOBAL|reduce|Can only", str(error)):
            fault = "contains more than arrays, and reading it could run code"
        raise DataError(f"{path}: {fault}") from None
