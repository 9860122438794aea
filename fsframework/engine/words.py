"""The words of images: read from a file or a metadata column, or detected, less unwanted ones."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fsframework.engine.detection import Detection
from fsframework.engine.options import WordChoice
from fsframework.engine.progress import Reporter
from fsframework.errors import DataError, OptionError, argument, close_matches, naming
from fsframework.values import AttributeTable, ImagePool, Texts, normalize, read_csv

__all__ = [
    "pool_with_attributes",
    "read_attributes",
    "without_class_words",
    "without_dropped_words",
    "words_in_classes",
]

_NEARLY_ALL = 0.8
"""Share of the classes from which on a word that most of their images have is noted."""
_COLUMN = "column:"
_WORDNET_ID = re.compile(r"(?<![^\W_])n\d{8}(?![^\W_])")
_POSSESSIVE = re.compile(r"['’]s\b", re.IGNORECASE)
_LETTERS = re.compile(r"[^\W\d_]+")
_STOP_WORDS = frozenset(
    {"a", "an", "and", "at", "by", "for", "in", "of", "on", "or", "the", "to", "with"}
)
_IRREGULAR = {
    "children": "child", "feet": "foot", "geese": "goose", "lice": "louse", "men": "man",
    "mice": "mouse", "oxen": "ox", "teeth": "tooth", "women": "woman",
}  # fmt: skip


def pool_with_attributes(
    pool: ImagePool, words: WordChoice, reporter: Reporter, detection: Detection | None = None
) -> tuple[ImagePool, tuple[str, ...]]:
    """Return a split's pool with its attributes, less those that are to be dropped.

    Args:
        words: file or column they are read from, and which are dropped.
        detection: detects them, if they are not read.

    Returns:
        The pool, and what a user should know about its words.

    Raises:
        DataError: there are no attributes; the message says where they can come from.
    """
    if detection is None:
        table, source = _found(pool, words.attributes)
    else:
        table, source = detection.table(), f"detector {detection.component.name}"
        if detection.failed:
            # Training and evaluation would stop at them; they are not images without words.
            n_failed, (_, reason) = len(detection.failed), detection.failed[0]
            raise DataError(
                f"{n_failed} {'image' if n_failed == 1 else 'images'} cannot be read: {reason}; "
                "repair or remove them (fsf data check lists all)"
            )
    if split := table.provenance.get("split"):
        source += f", a table of the split {split}"
    absent = int((Texts.of(table.keys).find(pool.keys) < 0).sum())
    with naming(source):
        pool = pool.with_attributes(table)
    _demand_words(pool, f"no image has any attribute (source: {source})")
    known = {word.lower() for word in table.words}
    for word in sorted({word for word in words.drop_words if _plain(word) not in known}):
        reporter.note(f"no image has the word {word!r} that is to be dropped")
    pool = without_dropped_words(pool, words)
    _demand_words(pool, "no image has any attribute left; drop fewer words")
    notes = tuple(_notes(pool, absent, source))
    for note in notes:
        reporter.note(note)
    return pool, notes if detection is None else (*detection.notes, *notes)


def _notes(pool: ImagePool, absent: int, source: str) -> Iterator[str]:
    """Yield what a reader must know of the words of images.

    Args:
        absent: number of images that are not in the source of the words.
    """
    table, of_images = _table_of(pool), f"of the {len(pool):,} images"
    if reading := table.provenance.get("reading"):
        yield f"{source}: {reading}"
    wordless = int((table.words_per_image() == 0).sum()) - absent
    lacking = [f"{absent:,} {of_images} are not in {source}"] if absent else []
    lacking += [f"{wordless:,} {of_images} have no words"] if wordless else []
    if lacking:
        yield f"{' and '.join(lacking)}; an image without words counts as lacking every word"
    if named := _named_classes(pool):
        yield (
            f"in {len(named)} of the {len(pool.class_names)} classes, such as {named[0]!r}, most "
            "images with words have one that names the class; "
            f"{argument('drop_class_words', True)} removes such words"
        )
    if common := words_in_classes(pool):
        first, n = next(iter(common.items()))
        yield (
            f"most images of {n} of the {len(pool.class_names)} classes have {first!r}: a word "
            "that nearly all classes share is not a spurious attribute; "
            f"{argument('drop_words_in_classes', _NEARLY_ALL)} removes {', '.join(common)}"
        )


def _named_classes(pool: ImagePool) -> list[str]:
    """Return the classes that a word names in most of their images that have words."""
    have = _table_of(pool).words_per_image()
    named = have > _table_of(without_class_words(pool)).words_per_image()
    # Counts by class: twice the named images less those with words.
    surplus = np.bincount(pool.labels, 2 * named - (have > 0), len(pool.class_names))
    return [pool.class_names[i] for i in np.flatnonzero(surplus > 0)]


def _demand_words(pool: ImagePool, otherwise: str) -> None:
    if pool.attributes is None or not pool.attributes.indices.size:
        raise DataError(otherwise)


def _found(pool: ImagePool, source: str | None) -> tuple[AttributeTable, str]:
    """Return the table of a source, and the source; by default the column ``words``."""
    columns = f" (columns of this data set: {', '.join(sorted(pool.metadata)) or 'none'})"
    if source is None:
        if "words" not in pool.metadata:
            raise DataError(
                "this data set has no attributes; detect them with "
                f"{argument('detector', 'appearance')} (which downloads nothing) or another "
                f"detector, give a file with {argument('attributes', 'FILE.csv')}, FILE.parquet or "
                f"column:NAME{columns}, or do without: {argument('sampler', 'random')}"
            )
        source = f"{_COLUMN}words"
    if not source.startswith(_COLUMN):
        return read_attributes(source), source
    name = normalize(source.removeprefix(_COLUMN))
    if name not in pool.metadata:
        near = close_matches(name, pool.metadata)
        raise DataError(f"{argument('attributes', source)}: no such column{near}{columns}")
    with naming(argument("attributes", source)):
        cells = [Texts.of(pool.metadata[name]).array]
        return AttributeTable.from_cells(pool.keys, cells, {"source": source}), source


def read_attributes(path: str | Path) -> AttributeTable:
    """Read a table of words from a CSV or Parquet file.

    Raises:
        DataError: the file, a column or a row is wrong; the message names it.
        OptionError: the file's ending is none of a known format.
    """
    path = Path(path)
    readers = {".csv": _read_csv, ".parquet": AttributeTable.load}
    if (reader := readers.get(path.suffix.lower())) is None:
        raise OptionError(
            f"{argument('attributes', str(path))}: must end in {' or '.join(readers)}, or be "
            f"{_COLUMN}NAME; {_elsewhere(path)}"
        )
    return reader(path)


def _elsewhere(path: Path) -> str:
    """Return which command reads a file that is no table of words."""
    if path.suffix.lower() in (".pickle", ".pkl"):
        return f"a pickle of FewSTAB: fsf attributes import {path} words.parquet"
    return _captions(path)


def _captions(path: Path) -> str:
    return f"for captions use {argument('detector', f'captions-file:{path}')}"


def _read_csv(path: Path) -> AttributeTable:
    """Read the columns ``key`` and ``words``; the words of a cell are separated by ``;``."""

    def demand_header(names: list[str]) -> None:
        if not {"key", "words"} <= {*names} or len({*names}) < len(names):
            hint = f"; {_captions(path)}" if "caption" in ",".join(names) else ""
            raise DataError(
                f"{path}: row 1 must name the columns key and words, separated by commas, and each "
                f"column once, but names {', '.join(names)[:200] or 'none'}{hint}"
            )

    columns, rows, wrong = read_csv(path, demand_header)
    keys = Texts([columns.pop("key")])
    for place in keys.repeated[:1]:
        wrong[rows[place]] = f"repeats the key {keys.name_repeat()}"
    if (nameless := keys.array.index("").as_py()) >= 0:
        wrong[rows[nameless]] = "has no key"
    if wrong:
        raise DataError(
            f"{path}: row {min(wrong)} {wrong[min(wrong)]}; columns are separated by commas, "
            "several words of an image by ';'"
        )
    chunks = columns.pop("words").chunks
    cells = (chunks.pop(0) for _ in range(len(chunks)))  # each is released once it is read
    with naming(path):
        return AttributeTable.from_cells(keys, cells, {"file": path.name})


def without_dropped_words(pool: ImagePool, words: WordChoice) -> ImagePool:
    """Return the pool without the words that are to be dropped, and without those of no image.

    Words that are listed but that the pool lacks are ignored, so that one list serves many tables.
    The pool itself is returned if every word stays.

    >>> pool = ImagePool(("a", "b"), np.array([0, 1]), ("wren", "gull"))
    >>> words = AttributeTable.from_words(pool.keys, [{"dog", "grass"}, {"grass", "sky"}])
    >>> pool = pool.with_attributes(words)
    >>> without_dropped_words(pool, WordChoice(min_count=2)).attributes.words
    ('grass',)
    """
    if words.drop_class_words:
        pool = without_class_words(pool)
    table = pool.attributes
    if table is None or not words.drops:
        return pool
    drop = set(map(_plain, words.drop_words))
    if words.drop_words_in_classes is not None:
        drop |= {*map(_plain, words_in_classes(pool, words.drop_words_in_classes))}
    keep = np.bincount(table.indices, minlength=len(table.words)) >= words.min_count
    keep &= np.array([word.lower() not in drop for word in table.words], dtype=bool)
    if keep.all():
        return pool
    left = table.without(np.flatnonzero(~keep[table.indices]))
    left = dataclasses.replace(
        left,
        words=tuple(itertools.compress(table.words, keep)),
        indices=(np.cumsum(keep, dtype=np.int32) - 1)[left.indices],
    )
    return dataclasses.replace(pool, attributes=left)


def without_class_words(pool: ImagePool) -> ImagePool:
    """Return the pool without the words that name an image's own class, see ``class_words``.

    Images of other classes keep the word. The vocabulary stays; ``without_dropped_words`` drops the
    words that no image has any more. The pool itself is returned if there is nothing to remove.

    Raises:
        DataError: the pool has no attributes.

    >>> pool = ImagePool(("a", "b"), np.array([0, 1]), ("dog", "cat"))
    >>> words = AttributeTable.from_words(pool.keys, [{"dogs", "cat"}, {"dogs"}])
    >>> left = without_class_words(pool.with_attributes(words)).attributes
    >>> left.words_of(0), left.words_of(1)
    (('cat',), ('dogs',))
    """
    table = _table_of(pool)
    tokens = [_tokens(word) for word in table.words]
    having: dict[str, list[int]] = {}
    for index, own in enumerate(tokens):
        for form in {form for token in own for form in _singulars(token)}:
            having.setdefault(form, []).append(index)
    naming: list[tuple[int, int]] = []  # pairs of a class and a word that names it
    for label, class_name in enumerate(pool.class_names):
        names = class_words(class_name)
        near = {index for name in names for index in having.get(name, ())}
        naming += [(label, index) for index in near if _names(tokens[index], names)]
    labels, words = np.array(naming, np.int64).reshape(-1, 2).T
    pairs = np.flatnonzero(np.isin(np.arange(len(table.words)), words)[table.indices])
    codes = pool.labels[table.images_of(pairs)] * len(table.words) + table.indices[pairs]
    left = table.without(pairs[np.isin(codes, labels * len(table.words) + words)])
    return pool if left is table else dataclasses.replace(pool, attributes=left)


def words_in_classes(pool: ImagePool, share: float = _NEARLY_ALL) -> dict[str, int]:
    """Return the words that most images of at least a share of the classes have.

    Such a word says what all classes are (``bird`` of captions of birds) or what all images show,
    and not what surrounds the objects of one class.

    Returns:
        The number of these classes by word, the most first.

    Raises:
        DataError: the pool has no attributes.

    >>> pool = ImagePool(tuple("abcd"), np.array([0, 0, 1, 1]), ("wren", "gull"))
    >>> words = [{"bird", "twig"}, {"bird"}, {"bird", "sea"}, {"bird", "twig"}]
    >>> words_in_classes(pool.with_attributes(AttributeTable.from_words(pool.keys, words)))
    {'bird': 2}
    """
    table = _table_of(pool)
    classes = np.zeros(len(table.words), np.int64)
    for members in map(pool.members, range(len(pool.class_names))):
        images = np.bincount(table.csr(members)[1], minlength=len(table.words))
        classes += 2 * images > members.size
    most_first = np.argsort(-classes, kind="stable")
    found = most_first[classes[most_first] >= max(1.0, share * len(pool.class_names))]
    return {table.words[word]: int(classes[word]) for word in found}


def _plain(word: str) -> str:
    """Return a word in the form in which words are compared."""
    return normalize(word.strip()).lower()


def _table_of(pool: ImagePool) -> AttributeTable:
    if pool.attributes is None:
        raise DataError("these images have no attributes; give a detector or an attribute table")
    return pool.attributes


def class_words(class_name: str) -> frozenset[str]:
    """Return the words that name a class, in lower case: its tokens and, if several, the compound.

    A token is a run of letters; ``GoldenRetriever`` has two. Left out are digits, WordNet
    identifiers (``n02099601``), the possessive *s* and words such as *of*, *the* and *and*. Each
    token counts by itself: *golden* names the golden retriever. A plural comes with every singular
    it may belong to.

    >>> sorted(class_words("001.Black_footed_Albatross"))
    ['albatross', 'black', 'black footed albatross', 'footed']
    >>> sorted(class_words("n02099601 dogs"))
    ['dog', 'dogs']
    """
    tokens = _tokens(class_name)
    return frozenset().union([" ".join(tokens)] if tokens else [], *map(_singulars, tokens))


def _names(tokens: Sequence[str], names: frozenset[str]) -> bool:
    return bool(tokens) and all(not names.isdisjoint(_singulars(token)) for token in tokens)


def _tokens(text: str) -> list[str]:
    text = _POSSESSIVE.sub("", _WORDNET_ID.sub(" ", text))
    tokens = [token for run in _LETTERS.findall(text) for token in _uncamelled(run)]
    return [token for token in tokens if token not in _STOP_WORDS]


def _uncamelled(run: str) -> list[str]:
    """Split letters before each capital that follows a lower-case letter."""
    starts = [0, *(i for i in range(1, len(run)) if run[i].isupper() and run[i - 1].islower())]
    return [run[start:end].lower() for start, end in itertools.pairwise([*starts, len(run)])]


@functools.lru_cache(maxsize=1 << 16)
def _singulars(token: str) -> frozenset[str]:
    """Return a token and what it may be the plural of.

    *axes* may be the plural of *axe* or of *ax*, so both are given.
    """
    forms = {token}
    if token in _IRREGULAR:
        forms.add(_IRREGULAR[token])
    elif len(token) > 3 and token.endswith("s") and not token.endswith(("ss", "us", "is")):
        forms.add(token[:-1])
        if token.endswith("ies") and len(token) > 4:
            forms.add(token[:-3] + "y")
        if token.endswith("ves"):
            forms |= {f"{token[:-3]}f", f"{token[:-3]}fe"}
        if token.endswith(("ses", "xes", "zes", "ches", "shes", "oes")):
            forms.add(token[:-2])
    return frozenset(forms)
