"""The images that tasks are drawn from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypedDict

import numpy as np

from fsframework._digest import digest_of
from fsframework._tables import data_frame
from fsframework.errors import DataError, naming
from fsframework.values._arrays import IntArray, frozen, named, read_only
from fsframework.values._formats import parquet_header, text_column, write_parquet
from fsframework.values._texts import Texts
from fsframework.values.attributes import AttributeTable

__all__ = ["ImagePool", "ImageRecord"]


@dataclass(frozen=True)
class ImageRecord:
    """What is known of an image without its pixels.

    Args:
        key: the image's key in the pool.
        metadata: the image's entry in each metadata column.
    """

    key: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ImagePool:
    """The images that tasks are drawn from: keys, labels, metadata, attributes if any; no pixels.

    Args:
        keys: one unique string per image.
        labels: int ``(n,)``, index into ``class_names``.
        class_names: unique; every class has at least one image.
        metadata: columns of one string per image.
        attributes: a table of the same keys in the same order.
        labelled: whether the classes of the images are known; otherwise all images have one class,
            which only stands for the lack of labels.

    Raises:
        DataError: lengths, ranges or uniqueness do not hold.

    >>> pool = ImagePool(("a", "b", "c"), np.array([0, 1, 0]), ("cat", "dog"))
    >>> pool.members(0).tolist(), pool.class_sizes.tolist()
    ([0, 2], [2, 1])
    """

    keys: Sequence[str]
    labels: IntArray
    class_names: tuple[str, ...]
    metadata: Mapping[str, Sequence[str]] = field(default_factory=dict)
    attributes: AttributeTable | None = None
    labelled: bool = True

    def __repr__(self) -> str:
        words = "no words" if self.attributes is None else f"{len(self.attributes.words):,} words"
        classes = f"{len(self.class_names):,} classes" if self.labelled else "no labels"
        return f"<ImagePool: {len(self.keys):,} images, {classes}, {words}>"

    def to_pandas(self) -> Any:
        """Return a pandas ``DataFrame``: a row per image, with key, class, metadata and words."""
        classes = np.array(self.class_names, dtype=object)[self.labels]
        more: dict[str, Any] = {name: [*column] for name, column in self.metadata.items()}
        if self.attributes is not None:
            more["words"] = self.attributes.words_of_all()
        return data_frame({"key": [*self.keys], "class": classes, **more})

    def __post_init__(self) -> None:
        keys = Texts.of(self.keys)
        object.__setattr__(self, "keys", keys)
        names = Texts(self.class_names)
        object.__setattr__(self, "class_names", tuple(names))
        object.__setattr__(self, "labels", frozen(self.labels, np.int64, "labels", 1))
        headers = Texts(self.metadata)
        columns = dict(zip(headers, map(Texts.of, self.metadata.values()), strict=True))
        object.__setattr__(self, "metadata", MappingProxyType(columns))
        count = len(self.keys)
        if self.labels.size != count:
            raise DataError(f"{self.labels.size} labels for {count} images")
        unique = {"image key": keys, "class": names, "metadata column": headers}
        for what, texts in unique.items():
            if texts.repeated.size:
                raise DataError(f"the {what} {texts.name_repeat()} appears twice")
        if count and not (self.labels.min() >= 0 and self.labels.max() < len(self.class_names)):
            raise DataError(
                f"labels must be in 0..{len(self.class_names) - 1}, "
                f"not {self.labels.min()}..{self.labels.max()}"
            )
        empty = [self.class_names[i] for i in np.flatnonzero(self.class_sizes == 0)]
        if empty:
            raise DataError(f"no image belongs to the class {named(empty)}")
        for name, values in columns.items():
            if len(values) != count:
                raise DataError(f"metadata {name!r} has {len(values)} entries for {count} images")
        if self.attributes is not None and self.attributes.keys != self.keys:
            raise DataError("the attribute table's keys are not the pool's; use with_attributes")

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def n_classes(self) -> int:
        """Number of classes, 0 without labels."""
        return len(self.class_names) if self.labelled else 0

    @cached_property
    def class_sizes(self) -> IntArray:
        """Images per class, int64 ``(n_classes,)``."""
        return read_only(np.bincount(self.labels, minlength=len(self.class_names)))

    @cached_property
    def _grouped(self) -> tuple[IntArray, IntArray]:
        order = read_only(np.argsort(self.labels, kind="stable"))
        return order, np.concatenate([[0], np.cumsum(self.class_sizes)])

    def members(self, label: int) -> IntArray:
        """Return the indices of one class's images, ascending."""
        order, starts = self._grouped
        return order[starts[label] : starts[label + 1]]

    @cached_property
    def key_digest(self) -> str:
        """Digest of the image keys in order: what indices into this pool refer to."""
        return digest_of("keys", self.keys)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of keys, labels, class names and metadata (attributes have their own)."""
        columns = sorted(self.metadata.items())
        flat = Texts([Texts.of(texts).array for name, own in columns for texts in ((name,), own)])
        known = () if self.labelled else ("no labels",)
        return digest_of("pool", self.keys, self.labels, self.class_names, flat, *known)

    def with_attributes(self, table: AttributeTable) -> ImagePool:
        """Return this pool with the table, reordered to match.

        Raises:
            DataError: none of the table's keys belongs to an image of the pool.
        """
        # Equal keys are the usual case, and compared much faster than they are looked up.
        same = not len(self) or table.keys == self.keys
        if not same and (Texts.of(table.keys).find(self.keys) < 0).all():
            raise DataError(
                f"none of the attribute table's {len(table):,} keys belongs to an image; "
                + _mend(table.keys, self.keys)
            )
        return dataclasses.replace(self, attributes=table.aligned(self.keys))

    def save(self, path: str | Path) -> None:
        """Write Parquet: ``key``, ``label`` and a column ``meta:NAME`` per metadata column."""
        import pyarrow as pa

        texts = {"key": self.keys} | {f"meta:{name}": own for name, own in self.metadata.items()}
        columns = {name: Texts.of(own).array.cast(pa.string()) for name, own in texts.items()}
        columns["label"] = pa.array(self.labels)
        header = {
            "what": "an image pool",
            "class_names": list(self.class_names),
            "labelled": self.labelled,
        }
        write_parquet(Path(path), columns, header)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what ``save`` wrote; attributes are saved separately.

        Raises:
            DataError: the file is not an image pool or is inconsistent.
        """
        path = Path(path)
        table, header = parquet_header(path, _Header, "an image pool")
        named = [name for name in table.column_names if name.startswith("meta:")]
        columns = {name: text_column(table, name, path) for name in ("key", *named)}
        if "label" not in table.column_names:
            raise DataError(f"{path}: has no column 'label'; it has {table.column_names}")
        with naming(path):
            return cls(
                columns.pop("key"),
                table["label"].to_numpy(),
                header["class_names"],
                {name.removeprefix("meta:"): column for name, column in columns.items()},
                labelled=header["labelled"],
            )


class _Header(TypedDict):
    """The header of a pool's file."""

    class_names: tuple[str, ...]
    labelled: bool


def _mend(keys: Sequence[str], images: Sequence[str]) -> str:
    """Return how keys must change to be those of images that have other folders before them."""
    of_name = {key.rpartition("/")[2]: key for key in images}
    for key in keys:
        image = of_name.get(key.rpartition("/")[2], "")
        if image and key.endswith(f"/{image}"):
            return f"remove {key.removesuffix(image)!r} from the keys: {image!r}, not {key!r}"
        if image.endswith(f"/{key}"):
            return f"add the folders of the images to the keys: {image!r}, not {key!r}"
    return (
        f"it has {named(keys)}, the images are {named(images)} (of a folder, the path relative to "
        "the folder of the data set)"
    )
