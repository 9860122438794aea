"""Declarations of data sets: their parts, and reading them from a file."""

from __future__ import annotations

import difflib
import lzma
import re
import reprlib
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from fsf_datasets._patterns import compiled
from fsf_datasets._splits import split_name
from fsframework.interfaces import About, DataError
from fsframework.values import parse_json, parse_toml, read_file

__all__ = ["Declaration", "Layout", "Pixels", "Split", "placeholders", "read_declaration"]

Kind = Literal["folders", "tables", "pickles", "cifar-100"]
SPLITS = ("train", "val", "test")
WHOLE = "all"
"""The name for counts of a whole data set whose splits are not published."""

_MOST_BYTES = 1 << 26
_MOST_UNPACKED = 1 << 28
"""Sizes of a declaration and of a decompressed file of a split."""

_MISSING: Any = object()


@dataclass(frozen=True)
class Pixels:
    """Treatment of each image before it is returned.

    Args:
        size: height and width in pixels to resize to; ``None`` keeps the size.
        interpolation: name of the resampling filter.
        invert: whether to swap black and white.
    """

    size: int | None = None
    interpolation: str = "bilinear"
    invert: bool = False


@dataclass(frozen=True)
class Layout:
    """One possible layout of the files of a data set; ``kind`` decides which options apply.

    Args:
        name: name of the layout.
        kind: one of the four kinds.
        levels: names of the folders above an image, the last one directly above it
            (``folders``).
        class_: template of the class, with levels in braces (``folders``), or columns and groups
            (``tables``, where an empty one means that ``label`` names the class).
        within: the folder below which images count, if it exists (``folders``).
        skip: patterns of paths that are not images of the data set, such as masks (``folders``).
        merged: whether files of one class with the same name are one image, shown in several
            folders; its words are the contexts of all (``folders``).
        lists: for each column its values, and patterns of the text files that list the images
            with this value (``folders``).
        pattern: a regular expression with named groups, searched in each file's path (``folders``)
            or in each row, its cells joined by commas (``tables``).
        columns: templates of metadata columns, with levels, groups and the tables' columns in
            braces.
        tables: names of the tables (``tables``).
        image: the column with the image's file name (``tables``).
        label: the column with the class; ``None`` if each class has its own column, with the value
            1 for the images of that class (``tables``).
        join: further tables, each with the names of its columns after the image's (``tables``).
        values: for each column the names that its cells stand for (``tables``).
        word_cells: the cell that makes a column's name a word of the image (``tables``).
        files: for each split its file, or its files of images and of labels (``pickles``).
        ignore_others: whether images of other classes are not reported, because the published
            files contain some (``folders`` and ``tables``).
    """

    name: str
    kind: Kind
    levels: tuple[str, ...] = ("class",)
    class_: str = "{class}"
    within: str | None = None
    skip: tuple[str, ...] = ()
    merged: bool = False
    lists: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    pattern: re.Pattern[str] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[str, ...] = ()
    image: str = "filename"
    label: str | None = "label"
    join: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    word_cells: str | None = None
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignore_others: bool = False

    @property
    def needed(self) -> list[str]:
        """The columns that a table must have (``tables``)."""
        templates = [self.class_, *self.columns.values()]
        named = dict.fromkeys(name for one in templates for name in placeholders(one))
        elsewhere = {name for names in self.join.values() for name in names}
        elsewhere |= set(self.pattern.groupindex if self.pattern else ())
        label = [self.label] if self.label and not self.class_ else []
        return [self.image, *label, *(name for name in named if name not in elsewhere)]


@dataclass(frozen=True)
class Split:
    """A split of the classes into train, val and test, as published or drawn.

    Args:
        name: name of the split.
        source: who published it, or how it was made.
        inline: the classes of each split, with the number of images where it is published.
        file: the file with the classes of each split, instead of ``inline``.
        draw: numbers of classes for train, val and test, to draw from the classes that exist.
        seed: seed of that draw.
        rotations: degrees by which images are rotated; each rotation of a class is a new class.
        stated: numbers of classes and images of each split, if ``members`` do not give them.
        class_: the metadata column that names the class, instead of the layout's class.
        where: the images that belong to the split, by the value of metadata columns.
        contexts: published number of images in each context.
    """

    name: str
    source: str
    inline: Mapping[str, Mapping[str, int | None]] | None = None
    file: Path | None = None
    draw: tuple[int, int, int] | None = None
    seed: int = 0
    rotations: tuple[int, ...] = ()
    stated: Mapping[str, tuple[int, int]] | None = None
    class_: str | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    contexts: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def _read(self) -> tuple[Mapping[str, Mapping[str, int | None]], Mapping[str, frozenset[str]]]:
        if self.file is None:
            return self.inline or {}, {}
        return _read_split_file(self.file)

    @property
    def members(self) -> Mapping[str, Mapping[str, int | None]]:
        """The classes of each split, with their number of images where it is known."""
        return self._read[0]

    @property
    def files(self) -> Mapping[str, frozenset[str]]:
        """The file names of each class's images, if the split selects images."""
        return self._read[1]

    @property
    def counts(self) -> Mapping[str, tuple[int, int]]:
        """Published numbers of classes and images of each split, including rotations."""
        if self.stated is not None:
            return self.stated
        turns = len(self.rotations) or 1
        return {
            split: (turns * len(classes), turns * sum(n or 0 for n in classes.values()))
            for split, classes in self.members.items()
        }


@dataclass(frozen=True)
class Declaration:
    """The declaration of a data set.

    Args:
        file: the TOML file.
        name: name of the data set in lower-case kebab.
        summary: description in one sentence.
        notes: further sentences that a user should know.
        title: the authors' name of the data set; ``licence``, ``source``, ``citation`` and
            ``images_from`` are those of ``About``.
        native_size: usual height and width of the images in pixels.
        pixels: treatment of the images.
        layouts: possible layouts; the one that finds most images is used.
        splits: splits by name, the default first.
    """

    file: Path
    name: str
    summary: str
    notes: tuple[str, ...]
    title: str
    licence: str
    source: str
    citation: str
    images_from: tuple[str, ...]
    native_size: int | None
    pixels: Pixels
    layouts: tuple[Layout, ...]
    splits: Mapping[str, Split]

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Every class that a split names, without duplicates; empty if splits are drawn.

        Those of splits that name the class by a column are not among them.
        """
        usual = (split for split in self.splits.values() if split.class_ is None)
        found = (c for split in usual for names in split.members.values() for c in names)
        return tuple(dict.fromkeys(found))

    def about(self, split: str | None = None) -> About:
        """Return the published facts, with the counts of a split, by default of the first one."""
        chosen = self.splits.get(split) if split else next(iter(self.splits.values()), None)
        return About(
            title=self.title,
            licence=self.licence,
            source=self.source,
            citation=self.citation,
            counts=dict(chosen.counts) if chosen else {},
            layouts={layout.name: self.picture(layout) for layout in self.layouts},
            images_from=self.images_from,
            summary=self.summary,
            notes=(*self.notes, *_published_contexts(chosen)),
            splits={name: dict(split.counts) for name, split in self.splits.items()},
        )

    def picture(self, layout: Layout) -> str:
        """Return the tree of files that a layout expects."""
        if layout.kind == "folders":
            folders = [f"{level.upper()}/" for level in layout.levels]
            if layout.within:
                folders.insert(0, f"{layout.within}/")
            lines = [(name, "") for name in [*folders, "*.jpg, *.png, ..."]]
            text = "\n".join(_branch(depth, name) for depth, (name, _) in enumerate(lines))
            example = self._example()
            return f"PATH/\n{text}" + (f"\n(example of a class: {example})" if example else "")
        if layout.kind == "tables":
            one_hot = "" if layout.label else ", one per class with the value 1"
            columns = f"   columns: {', '.join(layout.needed)}{one_hot}"
            rows = [f"├── {table}{columns}" for table in layout.tables]
            rows += [f"├── {table}   {', '.join(names)}" for table, names in layout.join.items()]
            if layout.class_:
                return "\n".join(["PATH/", *rows, "└── the images, in any folders"])
            return "\n".join(["PATH/", *rows, "└── images/", "    └── *.jpg, *.png, ..."])
        if layout.kind == "pickles":
            names = [name for group in layout.files.values() for name in group]
            return "\n".join(["PATH/", *(f"├── {n}" for n in names[:-1]), f"└── {names[-1]}"])
        return (
            "PATH/                        PATH/\n"
            "├── train.bin            or  ├── train\n"
            "├── test.bin                 ├── test\n"
            "└── fine_label_names.txt     └── meta"
        )

    def _example(self) -> str:
        split = next(iter(self.splits.values()), None)
        if split is None or split.draw is not None:
            return ""
        return next(iter(self.classes), "")


def _published_contexts(split: Split | None) -> list[str]:
    if split is None or not split.contexts:
        return []
    counts = ", ".join(f"{name} {count:,}" for name, count in split.contexts.items())
    return [f"Published images of each context: {counts}."]


def _branch(depth: int, name: str) -> str:
    return "    " * depth + "└── " + name


def placeholders(template: str) -> list[str]:
    """Return the names in braces.

    >>> placeholders("{alphabet}/{character}")
    ['alphabet', 'character']
    """
    return [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]


# --- reading ---------------------------------------------------------------------------------


class _Table:
    """A table of the file whose keys are taken one by one; keys left over are unknown."""

    def __init__(self, raw: Mapping[str, Any], file: Path, where: str = "") -> None:
        self.raw, self.file, self.where = dict(raw), file, where
        self.known: list[str] = []

    def fail(self, key: str, rule: str) -> DataError:
        """Return the error for a key."""
        return DataError(f"{self.file}: {self.where}{key} {rule}")

    def take(self, key: str, what: str, default: Any = _MISSING) -> Any:
        """Return the value of a key, of the type that ``what`` names.

        Raises:
            DataError: the key is missing and has no default, or its value has another type.
        """
        self.known.append(key)
        if key not in self.raw:
            if default is _MISSING:
                raise self.fail(key, f"is missing; it must be {what}")
            return default
        value = self.raw.pop(key)
        if not _TYPES[what](value):
            raise self.fail(key, f"must be {what}, not {reprlib.repr(value)}")
        return value

    def tables(self, key: str) -> Iterator[tuple[str, _Table]]:
        """Yield the named tables within a table."""
        for name, inner in self.take(key, "a table", {}).items():
            if not isinstance(inner, dict):
                raise self.fail(f"{key}.{name}", f"must be a table, not {reprlib.repr(inner)}")
            yield name, _Table(inner, self.file, f"{self.where}{key}.{name}: ")

    def finish(self) -> None:
        """Raise an error if a key is left over."""
        for key in self.raw:
            near = difflib.get_close_matches(key, self.known, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise self.fail(key, f"is unknown{hint}; known: {', '.join(self.known)}")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) and v for v in value)


def _count_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(_is_int(v) and v >= 0 for v in value)


_TYPES: dict[str, Any] = {
    "a string": lambda v: isinstance(v, str) and bool(v.strip()),
    "a name of lower-case letters, digits and single hyphens": lambda v: (
        isinstance(v, str) and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", v)
    ),
    "true or false": lambda v: isinstance(v, bool),
    "an integer of at least 1": lambda v: _is_int(v) and v >= 1,
    "an integer of at least 0": lambda v: _is_int(v) and v >= 0,
    "a list of strings": _texts,
    "a non-empty list of strings": lambda v: _texts(v) and bool(v),
    "a table": lambda v: isinstance(v, dict),
    "a table of strings": lambda v: isinstance(v, dict) and _texts([*v.values()]),
    "a table of numbers of images": lambda v: (
        isinstance(v, dict) and all(_is_int(n) and n >= 0 for n in v.values())
    ),
    "a list of tables": lambda v: (
        isinstance(v, list) and bool(v) and all(isinstance(t, dict) for t in v)
    ),
    "three numbers of classes, for train, val and test": lambda v: (
        isinstance(v, list) and len(v) == 3 and all(_is_int(n) and n >= 0 for n in v) and sum(v) > 0
    ),
    "a list of 0, 90, 180 and 270": lambda v: (
        isinstance(v, list)
        and bool(v)
        and all(_is_int(n) and n in (0, 90, 180, 270) for n in v)
        and len(set(v)) == len(v)
    ),
    "folders, tables, pickles or cifar-100": lambda v: (
        v in ("folders", "tables", "pickles", "cifar-100")
    ),
    "nearest, box, bilinear, hamming, bicubic or lanczos": lambda v: (
        v in ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
    ),
    "a list of classes or a table of their numbers of images": lambda v: (
        _texts(v) or (isinstance(v, dict) and all(_is_int(n) and n >= 0 for n in v.values()))
    ),
}


def read_declaration(file: Path) -> Declaration:
    """Read the declaration of a data set.

    Raises:
        DataError: the file is missing or not TOML, or a key is unknown, missing or of the wrong
            type; the message names file and key.
    """
    try:
        raw = parse_toml(read_file(file, _MOST_BYTES))
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise DataError(f"{file}: not TOML ({error})") from None
    table = _Table(raw, file)
    name = table.take("name", "a name of lower-case letters, digits and single hyphens")
    title = table.take("title", "a string")
    found = Declaration(
        file=file,
        name=name,
        summary=table.take("summary", "a string", f"{title}."),
        notes=tuple(table.take("notes", "a list of strings", [])),
        title=title,
        licence=table.take("licence", "a string", "unknown"),
        source=table.take("source", "a string", "unknown"),
        citation=table.take("citation", "a string", "unknown"),
        images_from=tuple(table.take("images_from", "a list of strings", [])),
        native_size=table.take("native_size", "an integer of at least 1", None),
        pixels=_pixels(_Table(table.take("pixels", "a table", {}), file, "pixels.")),
        layouts=_layouts(table),
        splits={n: _split(n, inner) for n, inner in table.tables("splits")},
    )
    table.finish()
    return found


def _pixels(table: _Table) -> Pixels:
    found = Pixels(
        table.take("size", "an integer of at least 1", None),
        table.take("interpolation", "nearest, box, bilinear, hamming, bicubic or lanczos", "box"),
        table.take("invert", "true or false", False),
    )
    table.finish()
    return found


def _layouts(table: _Table) -> tuple[Layout, ...]:
    raw = table.take("layouts", "a list of tables", [{"kind": "folders"}])
    found = [
        _layout(_Table(inner, table.file, f"layouts {number}: "))
        for number, inner in enumerate(raw, start=1)
    ]
    names = [layout.name for layout in found]
    for name in names:
        if names.count(name) > 1:
            raise table.fail("layouts", f"has {name!r} twice; give each layout another name")
    return tuple(found)


def _layout(table: _Table) -> Layout:
    kind: Kind = table.take("kind", "folders, tables, pickles or cifar-100")
    options: dict[str, Any] = {"kind": kind, "name": table.take("name", "a string", kind)}
    if kind == "folders":
        options |= _folders(table)
    elif kind == "tables":
        options |= _tables(table)
    elif kind == "pickles":
        files = table.take("files", "a table")
        for split, names in files.items():
            if split not in SPLITS or not _texts(names) or len(names) not in (1, 2):
                rule = "must be one file, or a file of images and one of labels, for train, val or"
                raise table.fail(f"files.{split}", f"{rule} test, not {reprlib.repr(names)}")
        if not files:
            raise table.fail("files", "must name a file for train, val or test")
        options["files"] = {split: tuple(names) for split, names in files.items()}
    if kind in ("folders", "tables"):
        options["ignore_others"] = table.take("ignore_others", "true or false", False)
    table.finish()
    return Layout(**options)


def _folders(table: _Table) -> dict[str, Any]:
    levels = tuple(table.take("levels", "a non-empty list of strings", ["class"]))
    class_ = table.take("class", "a string", "{class}")
    lists = {name: _strings(inner) for name, inner in table.tables("lists")}
    expression, columns = _columns(table, [*levels, *lists])
    _demand_template(table, "class", class_, levels)
    if not placeholders(class_):
        raise table.fail("class", f"must contain a level in braces, not {class_!r}")
    groups = list(expression.groupindex) if expression else []
    # A level, group or list without a column of its name becomes a column.
    own = [n for n in (*levels, *groups, *lists) if n not in ("class", "_") and n not in columns]
    merged = table.take("merged", "true or false", False)
    if merged and "context" not in {*own, *columns}:
        raise table.fail("merged", "needs a level or group called context")
    return {
        "levels": levels,
        "class_": class_,
        "within": table.take("within", "a string", None),
        "skip": tuple(table.take("skip", "a list of strings", [])),
        "merged": merged,
        "lists": lists,
        "pattern": expression,
        "columns": {**{name: f"{{{name}}}" for name in own}, **columns},
    }


def _tables(table: _Table) -> dict[str, Any]:
    one_hot = table.take("one_hot", "true or false", False)
    label = table.take("label", "a string", "label")
    class_ = table.take("class", "a string", "")
    values = {name: _strings(inner) for name, inner in table.tables("values")}
    expression, columns = _columns(table, None)
    _demand_template(table, "class", class_, None)
    join = table.take("join", "a table", {})
    for file, names in join.items():
        if not _texts(names) or not names:
            raise table.fail(f"join.{file}", "must be a list of the names of its columns")
    return {
        "tables": tuple(table.take("tables", "a non-empty list of strings")),
        "image": table.take("image", "a string", "filename"),
        "label": None if one_hot else label,
        "class_": class_,
        "join": {file: tuple(names) for file, names in join.items()},
        "values": values,
        "word_cells": table.take("word_cells", "a string", None),
        "pattern": expression,
        "columns": columns,
    }


def _columns(
    table: _Table, known: Sequence[str] | None
) -> tuple[re.Pattern[str] | None, dict[str, str]]:
    """Return the pattern and the templates of metadata columns.

    Args:
        table: the layout.
        known: the names that a template may use besides the groups of the pattern; ``None`` for
            any, because only the user's files tell them.
    """
    pattern = table.take("pattern", "a string", None)
    columns = table.take("columns", "a table", {})
    expression = None
    if pattern is not None:
        try:
            expression = compiled(pattern)
        except ValueError as error:
            raise table.fail("pattern", f"must be a regular expression: {error}") from None
    groups = list(expression.groupindex) if expression else []
    for name, template in columns.items():
        every = None if known is None else [*known, *groups]
        _demand_template(table, f"columns.{name}", template, every)
    return expression, columns


def _strings(table: _Table) -> dict[str, str]:
    return {key: table.take(key, "a string") for key in list(table.raw)}


def _demand_template(table: _Table, key: str, template: Any, known: Sequence[str] | None) -> None:
    try:
        names = placeholders(template)
        # A width, such as {class:>1000000000}, could make a text of any size; dots and brackets
        # would look into the value.
        plain = all(not form and not how for *_, form, how in string.Formatter().parse(template))
        plain = plain and not any(set(name) & set(".[") for name in names)
    except (TypeError, ValueError):
        plain = False
    if not plain:
        raise table.fail(key, f"must be a string with names in braces, not {template!r}") from None
    for name in names:
        if known is not None and name not in known:
            raise table.fail(key, f"contains {{{name}}}; allowed in braces: {', '.join(known)}")


def _split(name: str, table: _Table) -> Split:
    what = "a list of classes or a table of their numbers of images"
    inline = {split: table.take(split, what, None) for split in SPLITS}
    file = table.take("file", "a string", None)
    draw = table.take("draw", "three numbers of classes, for train, val and test", None)
    given = {split: _numbers(raw) for split, raw in inline.items() if raw is not None}
    if bool(given) + (file is not None) + (draw is not None) != 1:
        rule = "must have exactly one of: classes under train, val and test; file; draw"
        raise DataError(f"{table.file}: splits.{name} {rule}")
    stated = table.take("counts", "a table", None)
    for split, pair in (stated or {}).items():
        if split not in (*SPLITS, WHOLE) or not _count_pair(pair):
            rule = "must be [classes, images] for train, val, test or all"
            raise table.fail(f"counts.{split}", f"{rule}, not {reprlib.repr(pair)}")
    found = Split(
        name=name,
        source=table.take("source", "a string", "unknown"),
        inline=given or None,
        file=None if file is None else table.file.parent / file,
        draw=None if draw is None else cast(tuple[int, int, int], tuple(draw)),
        seed=table.take("seed", "an integer of at least 0", 0),
        rotations=tuple(table.take("rotations", "a list of 0, 90, 180 and 270", [])),
        stated=None if stated is None else {s: (pair[0], pair[1]) for s, pair in stated.items()},
        class_=table.take("class", "a string", None),
        where=table.take("where", "a table of strings", {}),
        contexts=table.take("contexts", "a table of numbers of images", {}),
    )
    table.finish()
    _demand_disjoint(found.inline or {}, f"{table.file}: splits.{name}")
    return found


def _decompressed(content: bytes) -> bytes:
    """Return the content of an .xz file, within a limit."""
    reader = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_UNPACKED)
    found = reader.decompress(content, _MOST_UNPACKED)
    if not reader.eof:
        raise ValueError(f"it is incomplete, or larger than {_MOST_UNPACKED:,} bytes")
    return found


def _numbers(raw: Any) -> dict[str, int | None]:
    return dict(raw) if isinstance(raw, dict) else dict.fromkeys(raw)


def _demand_disjoint(members: Mapping[str, Mapping[str, Any]], where: str) -> None:
    seen: dict[str, str] = {}
    for split, classes in members.items():
        for name in classes:
            if seen.setdefault(name, split) != split:
                raise DataError(
                    f"{where}: the class {name!r} is in {seen[name]!r} and {split!r}; each class "
                    "must be in one split"
                )


def _read_split_file(
    file: Path,
) -> tuple[dict[str, dict[str, int | None]], dict[str, frozenset[str]]]:
    """Read ``{"train": [class, ...], ...}`` from JSON or xz-compressed JSON.

    A split may be a table of the classes' numbers of images instead; ``files`` names the images of
    each class if the split selects images.
    """
    try:
        content = read_file(file)
        raw = parse_json(_decompressed(content) if file.suffix == ".xz" else content)
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from None
    except (ValueError, EOFError, lzma.LZMAError) as error:
        raise DataError(f"{file}: not JSON ({error})") from None
    files = raw.pop("files", {}) if isinstance(raw, dict) else {}
    what = "a list of classes or a table of their numbers of images"
    if not isinstance(raw, dict) or not all(_TYPES[what](v) for v in raw.values()):
        raise DataError(f'{file}: must contain {{"train": [class, ...], ...}}')
    members = {split_name(split): _numbers(v) for split, v in raw.items() if v}
    unknown = [split for split in members if split not in SPLITS]
    if unknown:
        raise DataError(f"{file}: must contain only train, val and test, not {unknown[0]!r}")
    if not isinstance(files, dict) or not all(_texts(names) for names in files.values()):
        raise DataError(f'{file}: files must contain {{"class": [file, ...], ...}}')
    _demand_disjoint(members, str(file))
    chosen = {name: frozenset(names) for name, names in files.items()}
    for classes in members.values():
        for name in classes:
            if name in chosen:
                classes[name] = len(chosen[name])
    return members, chosen
