"""What a model had seen before, and what that means for accuracies on these data.

The classes of a few-shot task must be new to the model. If its weights were pretrained on data that
contain the classes under test, they are not, and every table must say so. The same holds for
published data that are not as published.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from fsframework._reading import check_file, read_toml
from fsframework.errors import RecordError
from fsframework.records import RECORD_NAME, DataRecord, RunRecord, TrainedOn

if TYPE_CHECKING:
    from fsframework.components.resolution import Component
    from fsframework.engine.stages import Stage
    from fsframework.interfaces.backbone import Backbone
    from fsframework.interfaces.dataset import Dataset

__all__ = [
    "SplitCounts",
    "data_problems",
    "facts_of",
    "seen_by",
    "similar_class_names",
    "size_of",
    "split_counts",
    "under_test",
]


@dataclass(frozen=True)
class _Content:
    """What is known about a data set; ``known_data.toml`` says what each field means."""

    contains: tuple[str, ...] = ()
    similar_to: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    part_of: tuple[str, ...] = ()


@functools.cache
def _facts() -> tuple[Mapping[str, _Content], Mapping[str, str]]:
    """Return what is known about data by their names, and names by their other spellings."""
    raw = read_toml(Path(__file__).parent / "known_data.toml")
    return msgspec.convert(raw["data"], dict[str, _Content]), raw["spellings"]


_MOST_CLASSES = 1000
"""Records list the training classes of a data set if they are no more."""

_NOT_NEW = "the classes under test are not new to these weights"
_PERHAPS_NOT_NEW = "the classes under test may not be new to these weights"


@dataclass(frozen=True)
class UnderTest:
    """The data under test.

    Args:
        name: as readers know them.
        sources: lower-case names of the data themselves, the plugin's or the title that a file
            declares, and of those they were taken from.
        published: whether anything is published about them.
        rendered: whether a program makes the images, so that no weights can have seen them.
        options: name and options, without the path of the data, which is ``place``.
        classes: under test; ``training_classes`` those of the split ``train``.
        problems: of the data; of published data, how they differ.
    """

    name: str
    sources: tuple[str, ...]
    published: bool
    rendered: bool
    options: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""
    classes: tuple[str, ...] = ()
    training_classes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def data_name(component: Component) -> str:
    """Return what a user knows a data set by: the name it was added as, or its folder's or file's.

    >>> from fsframework.components.resolution import resolve_component
    >>> from fsframework.components.registry import Registry
    >>> data_name(resolve_component(Registry(), "dataset", "folder:./birds"))
    'birds'
    """
    given = component.options.get(component.cls.argument)
    if component.added_as or component.cls.declared_by is not None or not isinstance(given, Path):
        return component.added_as or component.name
    return given.absolute().stem or component.name


def under_test(component: Component, dataset: Dataset, split: str = "test") -> UnderTest:
    """Describe the data under test; ``dataset`` is whole, with all its images."""
    about, options, place = dataset.about, component.to_json(), ""
    target = component.cls.argument
    given = component.options.get(target)
    if isinstance(given, Path):
        del options[target]
        place = str(given.absolute())
    published = about is not None and component.cls.declared_by is not None
    known = about.title if about is not None and published else component.name
    sources = (_spelt(known), *map(_spelt, about.images_from if about else ()))
    return UnderTest(
        known if published else data_name(component),
        tuple(dict.fromkeys(sources)),
        about is not None,
        dataset.rendered,
        options,
        place,
        tuple(dataset.splits.get(split, ())),
        () if "train" in dataset.unlabelled else tuple(dataset.splits.get("train", ())),
        (*data_problems(dataset), *([] if published else similar_class_names(dataset))),
    )


_WHOLE = "all"
"""Key of the published counts of a whole data set, where those of its splits are not published."""


@dataclass(frozen=True)
class SplitCounts:
    """Classes and images of a split, as found and as published.

    ``published`` is ``None`` if nothing is published; 0 images mean that only the number of
    classes is.
    """

    name: str
    classes: int
    images: int
    published: tuple[int, int] | None = None

    @property
    def as_published(self) -> bool:
        """Whether the counts are those published, or none are."""
        classes, images = self.published or (self.classes, 0)
        return classes == self.classes and images in (0, self.images)


def split_counts(dataset: Dataset) -> tuple[SplitCounts, ...]:
    """Count every split of a data set, including those published but absent.

    Classes without an image do not count.
    """
    sizes = np.bincount(dataset.labels, minlength=len(dataset.class_names))
    by_name = dict(zip(dataset.class_names, sizes.tolist(), strict=True))
    published = {} if dataset.about is None else dataset.about.counts
    found = []
    for split in dict.fromkeys([*dataset.splits, *published]):
        whole = split == _WHOLE and split not in dataset.splits
        names = dataset.class_names if whole else dataset.splits.get(split, ())
        held = [by_name.get(name, 0) for name in names]
        classes, images = sum(size > 0 for size in held), sum(held)
        found.append(SplitCounts(split, classes, images, published.get(split)))
    return tuple(found)


def data_problems(dataset: Dataset) -> list[str]:
    """Return what is wrong with data that can be used, one sentence per problem.

    These are the problems that the data set itself reports; if it reports none, its counts are
    compared with those published.
    """
    own = dataset.problems()
    if own or dataset.about is None:
        return own
    return [
        f"split {split.name}: {split.classes:,} classes and {split.images:,} images, published are "
        f"{split.published[0]:,}"
        + (f" and {split.published[1]:,}" if split.published[1] else " classes")
        for split in split_counts(dataset)
        if not split.as_published and split.published is not None
    ]


def similar_class_names(dataset: Dataset) -> list[str]:
    """Return a sentence if class names differ only in case, spaces or invisible characters."""
    groups: dict[str, list[str]] = {}
    for name in dataset.class_names:
        plain = "".join(c for c in name if not c.isspace() and unicodedata.category(c) != "Cf")
        groups.setdefault(unicodedata.normalize("NFKC", plain).casefold(), []).append(name)
    alike = [" and ".join(map(ascii, names)) for names in groups.values() if len(names) > 1]
    more = f" and {len(alike) - 3} more" if len(alike) > 3 else ""
    what = "classes whose names differ only in letter case, spaces or invisible characters"
    return [f"{what}: {'; '.join(alike[:3])}{more}"] if alike else []


def _lineage_of(
    backbone: Backbone, sources: Sequence[Path], teachers: Sequence[Path] = ()
) -> DataRecord:
    """Return the data that weights had seen before a run, themselves or through a teacher.

    Args:
        sources: run folders or files that weights are taken from.
        teachers: run folders whose models teach in a stage of training.
    """
    pretrained, unknown = list(_names(backbone.pretrained_on)), list[str]()
    trained: list[TrainedOn] = []
    weights_from = dict(backbone.provenance())
    for source in (*sources, *teachers):
        folder = source if source.is_dir() else source.parent
        try:
            record = RunRecord.load(folder) if (folder / RECORD_NAME).exists() else None
        except RecordError:
            record = None
        told = facts_of(source) if record is None else record
        if told is None or (data := told.data) is None:
            unknown.append(str(source))
            continue
        if record is not None and record.status == "imported" and not data.name:
            unknown.append(folder.name)
        pretrained += data.pretrained_on
        trained += data.trained_on
        unknown += data.unknown_weights
        if source in sources:
            weights_from = weights_from or dict(data.weights_from)
    return DataRecord(
        pretrained_on=tuple(dict.fromkeys(pretrained)),
        trained_on=_distinct(trained),
        unknown_weights=tuple(dict.fromkeys(unknown)),
        weights_from=weights_from,
    )


def _distinct(trained: Sequence[TrainedOn]) -> tuple[TrainedOn, ...]:
    return tuple(one for i, one in enumerate(trained) if one not in trained[:i])


def _contamination(tested: UnderTest, lineage: DataRecord) -> tuple[str, ...]:
    """Return a sentence on each way in which the classes under test may not be new."""
    if tested.rendered:  # equal names are equal classes only where all options are equal
        trained = [one for one in lineage.trained_on if one.options == tested.options]
        return tuple(_of_training(tested, trained))
    return (
        *_of_pretraining(tested, lineage.pretrained_on),
        *_of_training(tested, lineage.trained_on),
        *(
            f"possible contamination: what the weights of {file} were trained on is not known: "
            f"{_PERHAPS_NOT_NEW}"
            for file in lineage.unknown_weights
        ),
    )


def _of_pretraining(tested: UnderTest, names: Sequence[str]) -> Iterator[str]:
    for name, source in itertools.product(names, tested.sources):
        if source in (name, *_content(name).contains):
            held = "" if source == name else f", which contains {source}"
            taken = "the data under test"
            if source != tested.sources[0]:
                taken = f"from which the classes of {tested.name} are taken"
            yield (
                f"contamination: the backbone was pretrained on {name}{held}, {taken}: {_NOT_NEW}"
            )
            return
    if why := next(filter(None, (_possibly(tested, name) for name in names)), ""):
        yield f"possible contamination: the backbone was pretrained on {why}: {_PERHAPS_NOT_NEW}"


def _content(name: str) -> _Content:
    return _facts()[0].get(name, _Content())


def _possibly(tested: UnderTest, name: str) -> str:
    """Return why data of a pretraining may contain classes under test; empty if they cannot."""
    named = "unknown data (pretrained_on of the backbone says which)"
    called = named if name == "unknown" else name
    if not tested.published:
        note = "this does not concern photographs that you took yourself"
        return f"{called}, which may contain classes of these data ({note})"
    own = _content(name)
    shared = {one for held in (name, *own.contains) for one in _content(held).shares}
    wholes = {one for whole in own.part_of for one in (whole, *_content(whole).contains)}
    for source in tested.sources:
        if source in own.similar_to:
            return f"{called}, selected for similarity to images of {source}"
        if source in shared:
            return f"{called}, which shares images with {source}"
        if source in wholes:
            return f"{called}, a part of {own.part_of[0]}, as the classes of {tested.name} are"
    if name in _facts()[0]:
        return ""
    like = "" if name == "unknown" else f", which may contain images like those of {tested.name}"
    return called + like


def _of_training(tested: UnderTest, trained: Sequence[TrainedOn]) -> Iterator[str]:
    for one in trained:
        name, options = one.name, one.options
        # The folder of a published data set may have any name.
        same_plugin = tested.published and _spelt(str(options.get("name"))) == tested.sources[0]
        same_name = name == tested.name or same_plugin
        sources = {_spelt(name), *map(_spelt, one.images_from)}
        shared = [source for source in tested.sources if source in sources]
        if same_name and not tested.published and one.place not in ("", tested.place):
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
                    f"possible contamination: the weights were trained on {name!r} with other "
                    f"options than these ({changed}), whose training "
                    f"classes may be among those under test: {_PERHAPS_NOT_NEW}"
                )
        else:
            yield (
                f"possible contamination: the weights were trained on {name!r}, which has images "
                f"or classes of {shared[0]!r} in common with {tested.name!r}: {_PERHAPS_NOT_NEW}"
            )


def _changed(options: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    keys = sorted(k for k in {*options, *own} if options.get(k) != own.get(k))
    return ", ".join(f"{k}={options.get(k)}" for k in keys)


def _data_cautions(tested: UnderTest) -> tuple[str, ...]:
    """Return a sentence if the data have problems or are not as published, else nothing.

    >>> print(*_data_cautions(UnderTest("cub", (), True, False, problems=("no 'crow'", "x", "y"))))
    cub is not as published: no 'crow' (and 2 more problems; see fsf data check)
    """
    if not tested.problems:
        return ()
    more = len(tested.problems) - 1
    rest = f" (and {more} more problem{'s' if more > 1 else ''}; see fsf data check)"
    name = f"{tested.name} is not as published" if tested.published else tested.name
    return (f"{name}: {tested.problems[0]}{rest if more else ''}",)


def seen_by(
    tested: UnderTest, backbone: Backbone, stages: Sequence[Stage], *, trains: bool
) -> tuple[DataRecord, tuple[str, ...]]:
    """Return what a model had seen, and sentences to print under every table of the run.

    Args:
        tested: the data under test.
        backbone: as built.
        stages: of the training, which may take weights from elsewhere.
        trains: whether the run trains its model on the split ``train``.
    """
    seen = _lineage_of(
        backbone,
        [stage.init_from for stage in stages if stage.init_from is not None],
        [stage.teacher for stage in stages if stage.teacher is not None],
    )
    cautions = _contamination(tested, seen) + _data_cautions(tested)
    if trains:
        listed = tested.training_classes if len(tested.training_classes) <= _MOST_CLASSES else ()
        own = TrainedOn(tested.name, dict(tested.options), tested.place, tested.sources[1:], listed)
        seen = dataclasses.replace(seen, trained_on=_distinct((*seen.trained_on, own)))
    return dataclasses.replace(seen, name=tested.name), cautions


def _names(joined: str | None) -> tuple[str, ...]:
    """Return the names of data joined by ``+``.

    >>> _names("laion-2b+imagenet-1k"), _names(None)
    (('laion-2b', 'imagenet-1k'), ())
    """
    parts = (joined or "").split("+")
    return tuple(dict.fromkeys(_spelt(part.strip()) for part in parts if part.strip()))


def _spelt(name: str) -> str:
    return _facts()[1].get(name.lower(), name.lower())


class _Name(msgspec.Struct):
    name: str = ""


class WeightsFacts(msgspec.Struct):
    """What is known of weights in a file.

    Args:
        what: ``weights``.
        backbone: that they are for.
        data: what they have seen, and at which size; ``None`` if the file does not say.
    """

    what: str = ""
    backbone: _Name = msgspec.field(default_factory=_Name)
    data: DataRecord | None = None


def facts_of(file: Path) -> WeightsFacts | None:
    """Return what a file of weights says of itself, ``None`` if it says nothing.

    A file that cannot be read says nothing here: whoever loads its weights reports that.
    """
    from safetensors import SafetensorError, safe_open

    try:
        check_file(file)
        with safe_open(file, framework="numpy") as opened:
            raw = (opened.metadata() or {}).get("fsframework", "")
        found = msgspec.json.decode(raw, type=WeightsFacts)
    except (OSError, SafetensorError, ValueError, RecursionError, msgspec.MsgspecError):
        return None
    return found if found.what == "weights" else None


def size_of(source: Path) -> int | None:
    """Return the size of the images that weights were trained on, ``None`` if it is not known.

    Args:
        source: a run folder, or a file of weights.
    """
    if source.is_dir():
        if not (source / RECORD_NAME).is_file():
            return None
        return RunRecord.load(source).seen_size
    facts = facts_of(source)
    return None if facts is None or facts.data is None else facts.data.image_size
