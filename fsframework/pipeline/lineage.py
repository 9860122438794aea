"""What a model had seen before, and what that means for accuracies on these data.

The classes of a few-shot task must be new to the model. If its weights were pretrained on data that
contain the classes under test, they are not, and every table must say so. The same holds for
published data that are not as published.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsframework.components.resolution import Component
from fsframework.errors import RecordError
from fsframework.interfaces.backbone import Backbone
from fsframework.interfaces.dataset import Dataset
from fsframework.pipeline.published_counts import data_problems
from fsframework.records import RECORD_NAME, DataRecord, RunRecord, TrainedOn

__all__ = [
    "Seen",
    "contamination",
    "incompleteness",
    "lineage_of",
    "seen_by",
    "under_test",
]

_CONTAINS: Mapping[str, tuple[str, ...]] = {
    # 21k and 22k are two names of the whole of ImageNet; 1k is the challenge's part of it.
    "imagenet-21k": ("imagenet-22k", "imagenet-1k"),
    "imagenet-22k": ("imagenet-21k", "imagenet-1k"),
    # Oquab et al. 2023, "DINOv2", appendix A, Table 15: it contains ImageNet-22k unchanged.
    "lvd-142m": ("imagenet-22k", "imagenet-21k", "imagenet-1k"),
}
"""Data known to contain other data."""

_GATHERED_BY: Mapping[str, tuple[str, ...]] = {
    # The same table: web images were selected for their similarity to those of these sets.
    "lvd-142m": (
        *("caltech-101", "cub-200-2011", "dtd", "fgvc-aircraft", "flowers-102", "food-101"),
        *("oxford-pets", "stanford-cars", "sun397", "voc2007"),
    ),
}
"""Data selected for their similarity to other data."""

_OVERLAPS: Mapping[str, tuple[str, ...]] = {
    # The home page of CUB-200-2011 warns that some of its images are in ImageNet.
    "imagenet-1k": ("cub-200-2011",),
}
"""Data known to share images with other data."""

_PARTS: Mapping[str, tuple[str, ...]] = {"imagenet-12k": ("imagenet-22k", "imagenet-21k")}
"""Data that are a part of other data, with classes that are not known here."""

_KNOWN = frozenset(
    {
        *("imagenet-1k", "places365", "cifar-10", "cifar-100", "omniglot", "planted"),
        *("miniimagenet", "tieredimagenet", "cub-200-2011"),
        *_CONTAINS,
        *_PARTS,
    }
)
"""Data whose content is known; that of all others, such as data from the web, is not."""

_SPELLINGS: Mapping[str, str] = {
    "cub": "cub-200-2011",
    "aircraft": "fgvc-aircraft",
    "vgg-flower": "flowers-102",
    "vgg-flowers": "flowers-102",
    "cars": "stanford-cars",
    "dogs": "stanford-dogs",
    "mini-imagenet": "miniimagenet",
    "tiered-imagenet": "tieredimagenet",
    "cifar100": "cifar-100",
    "mscoco": "coco",
}

_MOST_CLASSES = 1000
_NOT_NEW = "the accuracies are not few-shot on new classes"
_PERHAPS_NOT_NEW = "the accuracies may not be few-shot on new classes"


@dataclass(frozen=True)
class _UnderTest:
    """The data under test.

    Args:
        name: as readers know them.
        sources: lower-case names of the data themselves and of those they were taken from.
        published: whether anything is published about them.
        rendered: whether a program makes the images, so that no weights can have seen them.
        options: name and options, without the path of the data, which is ``place``.
        classes: under test.
    """

    name: str
    sources: tuple[str, ...]
    published: bool
    rendered: bool
    options: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Seen:
    """The data that the weights under test had seen.

    Args:
        data: for the record.
        cautions: sentences to print under every table of the run.
    """

    data: DataRecord
    cautions: tuple[str, ...]


def under_test(component: Component, dataset: Dataset, split: str = "test") -> _UnderTest:
    """Describe the data under test."""
    about = dataset.about
    target = component.cls.argument
    raw, place = component.to_json(), ""
    given = component.options.get(target)
    if isinstance(given, Path):
        del raw[target]
        place = str(given.absolute())
    name = component.name
    if about is not None and component.cls.declared_by is not None:
        name = about.title
    sources = (_spelt(name), *map(_spelt, about.images_from if about else ()))
    return _UnderTest(
        name, tuple(dict.fromkeys(sources)), about is not None, dataset.rendered,
        raw, place, tuple(dataset.splits.get(split, ())),
    )  # fmt: skip


def lineage_of(backbone: Backbone, sources: Iterable[Path]) -> DataRecord:
    """Return the data that weights had seen before a run.

    Args:
        sources: run folders or files that weights are taken from.
    """
    pretrained, unknown = list(_names(backbone.pretrained_on)), list[str]()
    trained: list[TrainedOn] = []
    weights_from = dict(backbone.provenance())
    for source in sources:
        folder = source if source.is_dir() else source.parent
        try:
            record = RunRecord.load(folder) if (folder / RECORD_NAME).exists() else None
        except RecordError:
            record = None
        if record is None:
            unknown.append(str(source))
            continue
        if record.status == "imported" and not record.data.name:
            unknown.append(folder.name)
        pretrained += record.data.pretrained_on
        trained += record.data.trained_on
        unknown += record.data.unknown_weights
        weights_from = weights_from or dict(record.data.weights_from)
    return DataRecord(
        pretrained_on=tuple(dict.fromkeys(pretrained)),
        trained_on=tuple(one for i, one in enumerate(trained) if one not in trained[:i]),
        unknown_weights=tuple(dict.fromkeys(unknown)),
        weights_from=weights_from,
    )


def contamination(tested: _UnderTest, lineage: DataRecord) -> tuple[str, ...]:
    """Return a sentence on each way in which the classes under test may not be new."""
    if tested.rendered:
        return ()
    return (
        *_of_pretraining(tested, lineage.pretrained_on),
        *_of_training(tested, lineage.trained_on),
        *(
            f"possible contamination: what the weights of {file} were trained on is not known: "
            f"{_PERHAPS_NOT_NEW}"
            for file in lineage.unknown_weights
        ),
    )


def _of_pretraining(tested: _UnderTest, names: Sequence[str]) -> Iterator[str]:
    if not names:
        return
    for name in names:
        for source in tested.sources:
            if source == name or source in _CONTAINS.get(name, ()):
                held = "" if source == name else f", which contains {source}"
                taken = "the data under test"
                if source != tested.sources[0]:
                    taken = f"from which the classes of {tested.name} are taken"
                yield (
                    f"contamination: the backbone was pretrained on {name}{held}, {taken}: "
                    f"{_NOT_NEW}"
                )
                return
    for name in names:
        why = _possibly(tested, name)
        if why:
            yield (
                f"possible contamination: the backbone was pretrained on {why}: {_PERHAPS_NOT_NEW}"
            )
            return


def _possibly(tested: _UnderTest, name: str) -> str:
    """Return why data of a pretraining may contain classes under test; empty if they cannot."""
    called = "unknown data" if name == "unknown" else name
    if not tested.published:
        return f"{called}, which may contain classes of these data"
    for source in tested.sources:
        if source in _GATHERED_BY.get(name, ()):
            return f"{called}, selected for similarity to images of {source}"
        inner = (name, *_CONTAINS.get(name, ()))
        if any(source in _OVERLAPS.get(one, ()) for one in inner):
            return f"{called}, which shares images with {source}"
        if any(source in (whole, *_CONTAINS.get(whole, ())) for whole in _PARTS.get(name, ())):
            return f"{called}, a part of {_PARTS[name][0]}, as the classes of {tested.name} are"
    if name not in _KNOWN:
        holds = "" if name == "unknown" else ", which may contain images like those"
        return f"{called}{holds} of {tested.name}" if holds else called
    return ""


def _of_training(tested: _UnderTest, trained: Sequence[TrainedOn]) -> Iterator[str]:
    for one in trained:
        name, options = one.name, one.options
        same_name = name == tested.name
        sources = {_spelt(name), *map(_spelt, one.images_from)}
        shared = [source for source in tested.sources if source in sources]
        if same_name and not tested.published and one.place != tested.place:
            continue  # other images, read in the same way
        if not (same_name or (shared and tested.published)):
            continue
        known = one.classes
        if both := [c for c in tested.classes if c in set(known)]:
            some = ", ".join(both[:3]) + (", ..." if len(both) > 3 else "")
            yield (
                f"contamination: the weights were trained on {len(both)} of the "
                f"{len(tested.classes)} classes under test, in {name} ({some}): {_NOT_NEW}"
            )
        elif same_name:
            if (changed := _changed(options, tested.options)) and not known:
                yield (
                    f"possible contamination: the weights were trained on {name} with other "
                    f"options than these ({changed}), whose training "
                    f"classes may be among those under test: {_PERHAPS_NOT_NEW}"
                )
        else:
            yield (
                f"possible contamination: the weights were trained on {name}, which has images "
                f"or classes of {shared[0]} in common with {tested.name}: {_PERHAPS_NOT_NEW}"
            )


def _few(classes: Sequence[str]) -> tuple[str, ...]:
    """Return the names, or none if there are too many to store in every record."""
    return tuple(classes) if len(classes) <= _MOST_CLASSES else ()


def _changed(options: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    keys = sorted(k for k in {*options, *own} if options.get(k) != own.get(k))
    return ", ".join(f"{k}={options.get(k)}" for k in keys)


def incompleteness(name: str, problems: Sequence[str]) -> tuple[str, ...]:
    """Return a sentence if published data are not as published, else nothing.

    >>> print(*incompleteness("cub", ["no class 'crow'", "x", "y"]))
    cub is not as published: no class 'crow' (and 2 more problems; see fsf data check)
    """
    if not problems:
        return ()
    more = len(problems) - 1
    rest = f" (and {more} more problem{'s' if more > 1 else ''}; see fsf data check)"
    return (f"{name} is not as published: {problems[0]}{rest if more else ''}",)


def seen_by(
    component: Component,
    dataset: Dataset,
    split: str,
    backbone: Backbone,
    sources: Iterable[Path],
    *,
    trains: bool,
) -> Seen:
    """Return what a model had seen, and what a reader must know about that.

    Args:
        component: the data set under test; ``dataset`` whole, with all its images.
        split: under test.
        backbone: as built.
        sources: run folders or files that weights are taken from.
        trains: whether the run trains its model on the split ``train``.
    """
    tested = under_test(component, dataset, split)
    lineage = lineage_of(backbone, sources)
    cautions = contamination(tested, lineage)
    if dataset.about is not None:
        cautions += incompleteness(tested.name, data_problems(dataset))
    own = TrainedOn(
        tested.name,
        dict(tested.options),
        tested.place,
        tested.sources[1:],
        _few(dataset.splits.get("train", ())),
    )
    trained = lineage.trained_on
    if trains and own not in trained:
        trained = (*trained, own)
    return Seen(dataclasses.replace(lineage, name=tested.name, trained_on=trained), cautions)


def _names(joined: str | None) -> tuple[str, ...]:
    """Return the names of data joined by ``+``.

    >>> _names("laion-2b+imagenet-1k"), _names(None)
    (('laion-2b', 'imagenet-1k'), ())
    """
    parts = (joined or "").split("+")
    return tuple(dict.fromkeys(_spelt(part.strip()) for part in parts if part.strip()))


def _spelt(name: str) -> str:
    return _SPELLINGS.get(name.lower(), name.lower())
