"""Images with their words, as a contact sheet or a page for the browser."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fsf_tools.attributes._drawing import (
    COLOURS,
    FAINT,
    INK,
    LINE,
    PAPER,
    Font,
    cut_to,
    draw_chip,
)
from fsframework.api.data import without_class_words
from fsframework.errors import DataError, OptionError, close_matches
from fsframework.interfaces.dataset import Dataset
from fsframework.values import (
    AttributeTable,
    BoolArray,
    ImagePool,
    IntArray,
    Texts,
    atomic_write,
    normalize,
)

__all__ = ["AttributePage", "PageChoice", "attribute_page"]

_PIXELS = 224
"""Longest side of an image on a page for the browser."""
_MOST_IN_A_PICTURE = 400
_MOST_LINES, _MOST_CAPTION_LINES = 6, 3
_TILE, _GAP, _MARGIN, _COLUMNS = 160, 16, 20, 6
_ASKED, _NAMING = COLOURS[0], COLOURS[1]
_PLAIN_CHIP = "#ececec"


@dataclass(frozen=True)
class PageChoice:
    """Which images are shown.

    Args:
        n: number of images, drawn uniformly without replacement; all if there are fewer.
        class_name: only images of this class.
        word: only images that have this word.
        seed: of the draw, at least 0.

    Raises:
        OptionError: a number is too small.
    """

    n: int = 24
    class_name: str | None = None
    word: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n < 1:
            raise OptionError(f"the number of images must be at least 1, not {self.n}")
        if self.seed < 0:
            raise OptionError(f"seed must be at least 0, not {self.seed}")
        for name in ("class_name", "word"):
            if (text := getattr(self, name)) is not None:
                object.__setattr__(self, name, normalize(text))

    @property
    def described(self) -> str:
        """The conditions, phrased to follow the word *images*."""
        parts = [f"of class {self.class_name!r}"] if self.class_name is not None else []
        parts += [f"with the word {self.word!r}"] if self.word is not None else []
        return " ".join(parts)


@dataclass(frozen=True)
class AttributePage:
    """What was drawn and from how many images.

    Args:
        path: the file that was written.
        shown: number of images on it.
        matching: number of images of the split that match the choice.
        unknown: number of images of the split that the table lacks.
    """

    path: Path
    shown: int
    matching: int
    unknown: int


class _Word(NamedTuple):
    text: str
    asked: bool
    """Whether it is the word that was asked for."""
    naming: bool
    """Whether it names the image's own class."""


class _Tile(NamedTuple):
    image: int
    """Index into the data set."""
    key: str
    class_name: str
    caption: str
    words: list[_Word]

    @property
    def remark(self) -> str:
        """The text shown if there are no words."""
        return "" if self.words else "no words"


def attribute_page(
    dataset: Dataset,
    split: str,
    table: AttributeTable,
    output: Path,
    choice: PageChoice | None = None,
) -> AttributePage:
    """Draw images of a split with their words into a ``.png`` or ``.html`` file.

    Below each image are its class, caption, words and key. The word that was asked for comes
    first; words that name the image's own class are marked. The HTML page
    contains its images and needs no network. Images are shown in the order of the split's pool.

    Args:
        table: words by key; images of the split that it lacks are left out.
        output: the file to write; an existing file is replaced.
        choice: which images are shown; by default 24 of all images.

    Raises:
        OptionError: the file has another suffix, or the class or word is unknown in this split.
        DataError: the table shares no key with the split, no image matches, or an image cannot
            be read.
    """
    choice = choice or PageChoice()
    suffix = output.suffix.lower()
    if suffix not in (".png", ".html"):
        raise OptionError(f"{output} must end in .png or .html")
    pool = dataset.pool(split).with_attributes(table)
    known = Texts.of(table.keys).find(pool.keys) >= 0
    matching = _matching(pool, known, split, choice)
    chosen = matching
    if choice.n < matching.size:
        rng = np.random.default_rng(choice.seed)
        chosen = np.sort(rng.choice(matching, choice.n, replace=False))
    if suffix == ".png" and len(chosen) > _MOST_IN_A_PICTURE:
        raise OptionError(
            f"{len(chosen)} images are too many for one picture, which has room for "
            f"{_MOST_IN_A_PICTURE}; write {output.with_suffix('.html').name}"
        )
    indices = dataset.split_indices(split)
    left = without_class_words(pool)
    tiles = [_tile(pool, left, int(i), int(indices[i]), choice.word) for i in chosen]
    unknown = int((~known).sum())
    page = AttributePage(output, len(chosen), len(matching), unknown)
    heading = _heading(page, split, choice)
    notes = [f"drawn with seed {choice.seed}"] if len(chosen) < len(matching) else []
    if unknown:
        notes.append(f"{unknown:,} images of the split are not in the table of words")
    if suffix == ".png":
        _write_picture(output, dataset, tiles, heading, notes)
    else:
        _write_html(output, dataset, tiles, heading, notes, table)
    return page


def _matching(pool: ImagePool, known: BoolArray, split: str, choice: PageChoice) -> IntArray:
    """Return the images to choose from."""
    table = pool.attributes
    assert table is not None
    fits = known.copy()
    if choice.class_name is not None:
        if choice.class_name not in pool.class_names:
            near = close_matches(choice.class_name, pool.class_names)
            raise OptionError(f"the split {split!r} has no class {choice.class_name!r}{near}")
        fits &= pool.labels == pool.class_names.index(choice.class_name)
    if choice.word is not None:
        if choice.word in table.words:
            having = table.column(table.words.index(choice.word))
        else:
            having = np.zeros(len(pool), bool)
        if not having.any():
            near = close_matches(choice.word, set(table.words) - {choice.word})
            raise OptionError(f"no image of the split {split!r} has the word {choice.word!r}{near}")
        fits &= having
    matching = np.flatnonzero(fits)
    if not matching.size:
        what = " ".join(filter(None, ["no image", choice.described]))
        raise DataError(f"{what} is in the split {split!r}")
    return matching


def _heading(page: AttributePage, split: str, choice: PageChoice) -> str:
    which = " ".join(filter(None, [choice.described, f"in the split {split!r}"]))
    if page.shown < page.matching:
        return f"{page.shown:,} of the {page.matching:,} images {which}"
    return f"{page.matching:,} {'image' if page.matching == 1 else 'images'} {which}"


def _tile(pool: ImagePool, left: ImagePool, image: int, index: int, asked: str | None) -> _Tile:
    """Return an image with its words; ``left`` lacks those that name the image's own class."""
    table, others = pool.attributes, left.attributes
    assert table is not None
    assert others is not None
    class_name = pool.class_names[pool.labels[image]]
    kept = set(others.words_of(image))
    words = [_Word(w, w == asked, w not in kept) for w in table.words_of(image)]
    words.sort(key=lambda w: (not w.asked, not w.naming, w.text))
    caption = table.captions[image] if table.captions is not None else ""
    return _Tile(index, pool.keys[image], class_name, caption, words)


def _legend(tiles: Sequence[_Tile]) -> bool:
    return any(word.naming for tile in tiles for word in tile.words)


# The picture


def _write_picture(
    path: Path, dataset: Dataset, tiles: Sequence[_Tile], heading: str, notes: Sequence[str]
) -> None:
    large, font, small = (ImageFont.load_default(size) for size in (20, 14, 13))
    columns = min(_COLUMNS, max(4, len(tiles)))
    width = 2 * _MARGIN + columns * _TILE + (columns - 1) * _GAP
    rows = [tiles[i : i + columns] for i in range(0, len(tiles), columns)]
    lines = [[_lines(tile, small) for tile in row] for row in rows]
    captions = [[_wrapped(t.caption, small, _TILE, _MOST_CAPTION_LINES) for t in r] for r in rows]
    heights = [
        _TILE + max((2 + len(c) + len(w)) * LINE for c, w in zip(cs, ws, strict=True)) + 33
        for cs, ws in zip(captions, lines, strict=True)
    ]
    remarks = list(notes)
    top = _MARGIN + 34 + (LINE + 8 if remarks or _legend(tiles) else 0)
    canvas = Image.new("RGB", (width, top + sum(heights) + _MARGIN // 2), PAPER)
    draw = ImageDraw.Draw(canvas)
    draw.text((_MARGIN, _MARGIN - 4), cut_to(heading, large, width - 2 * _MARGIN), INK, large)
    x = _MARGIN
    if _legend(tiles):
        draw_chip(draw, (x, _MARGIN + 30), "word", small, _NAMING)
        x += round(small.getlength("word")) + 14
        remarks.insert(0, "names the image's own class")
    draw.text((x, _MARGIN + 30), cut_to("; ".join(remarks), small, width - x), FAINT, small)
    y = top
    for row, row_captions, row_lines, height in zip(rows, captions, lines, heights, strict=True):
        for column, tile in enumerate(row):
            left = _MARGIN + column * (_TILE + _GAP)
            canvas.paste(Image.fromarray(dataset.images([tile.image], _TILE)[0]), (left, y))
            line = y + _TILE + 5
            draw.text((left, line), cut_to(tile.class_name, font, _TILE), INK, font)
            line += LINE + 2
            for text in row_captions[column]:
                draw.text((left, line), text, FAINT, small)
                line += LINE
            line += 2 if row_captions[column] else 0
            for words in row_lines[column]:
                _draw_words(draw, left, line, words, small)
                line += LINE
            if tile.remark:
                draw.text((left, line - LINE), tile.remark, FAINT, small)
            draw.text((left, line + 3), _end_of(tile.key, small, _TILE), FAINT, small)
        y += height
    stream = io.BytesIO()
    canvas.save(stream, format="PNG")
    atomic_write(path, stream.getvalue())


def _lines(tile: _Tile, font: Font) -> list[list[_Word]]:
    """Break an image's words into lines, with the number of words that do not fit."""
    lines: list[list[_Word]] = [[]]
    used = 0
    for place, word in enumerate(tile.words):
        width = _width(word.text, font)
        if lines[-1] and used + width > _TILE:
            if len(lines) == _MOST_LINES:
                _count_the_rest(lines[-1], len(tile.words) - place, font)
                return lines
            lines.append([])
            used = 0
        lines[-1].append(word)
        used += width + 4
    return lines


def _count_the_rest(line: list[_Word], hidden: int, font: Font) -> None:
    """Append the number of hidden words to a line; words that leave no room are hidden too."""
    while True:
        rest = _Word(f"and {hidden} more", False, False)
        if not line or sum(_width(w.text, font) + 4 for w in [*line, rest]) <= _TILE + 4:
            line.append(rest)
            return
        line.pop()
        hidden += 1


def _width(text: str, font: Font) -> int:
    return min(_TILE, round(font.getlength(text)) + 8)


def _draw_words(
    draw: ImageDraw.ImageDraw, left: int, y: int, words: Sequence[_Word], font: Font
) -> None:
    for word in words:
        colour = _ASKED if word.asked else _NAMING if word.naming else _PLAIN_CHIP
        ink = PAPER if word.asked or word.naming else INK
        draw_chip(draw, (left, y), word.text, font, colour, ink, _TILE)
        left += _width(word.text, font) + 4


def _wrapped(text: str, font: Font, width: int, most: int) -> list[str]:
    """Break a text between words into at most ``most`` lines."""
    lines: list[str] = []
    for word in text.split():
        if lines and font.getlength(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        elif len(lines) < most:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
            break
    return [cut_to(line, font, width) for line in lines]


def _end_of(text: str, font: Font, width: int) -> str:
    """Return as much of the end of a text as fits; the end distinguishes keys."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength("…" + text) > width:
        text = text[1:]
    return "…" + text


# The page

_STYLE = f"""
:root {{ color-scheme: light dark; --paper: #fff; --ink: #1c1c1c; --faint: #5c5c5c;
  --chip: #ececec; --line: #dcdcdc; --asked: {_ASKED}; --naming: #9c3f00; }}
@media (prefers-color-scheme: dark) {{ :root {{ --paper: #16181b; --ink: #e8e8e8;
  --faint: #a6a6a6; --chip: #2d3136; --line: #3a3f45; --asked: #1f75b3; --naming: #e07a2f; }} }}
body {{ margin: 0 auto; padding: 2rem 1.5rem; max-width: 84rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.45 system-ui, sans-serif; }}
h1 {{ font-size: 1.4rem; margin: 0 0 .3rem; }}
p {{ margin: 0 0 .3rem; color: var(--faint); }}
main {{ display: grid; gap: 2rem 1.25rem; margin: 1.75rem 0;
  grid-template-columns: repeat(auto-fill, minmax(14rem, 1fr)); }}
figure {{ margin: 0; }}
img {{ display: block; width: 100%; aspect-ratio: 1; object-fit: contain;
  background: var(--chip); border-radius: 6px; }}
h2 {{ font-size: 1rem; margin: .5rem 0 .15rem; overflow-wrap: anywhere; }}
blockquote {{ margin: 0 0 .4rem; font-size: .92rem; }}
ul {{ display: flex; flex-wrap: wrap; gap: .3rem; margin: 0 0 .4rem; padding: 0; }}
li {{ list-style: none; padding: .05rem .5rem; border-radius: 1rem; background: var(--chip);
  font-size: .88rem; border: 2px solid transparent; overflow-wrap: anywhere; }}
li.asked {{ background: var(--asked); color: #fff; }}
li.naming {{ border-color: var(--naming); }}
code {{ font-size: .78rem; color: var(--faint); overflow-wrap: anywhere; }}
details {{ border-top: 1px solid var(--line); padding-top: .75rem; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem;
  font-size: .88rem; }}
dt {{ color: var(--faint); }}
dd {{ margin: 0; overflow-wrap: anywhere; }}
"""


def _write_html(
    path: Path,
    dataset: Dataset,
    tiles: Sequence[_Tile],
    heading: str,
    notes: Sequence[str],
    table: AttributeTable,
) -> None:
    title = escape(heading)
    remarks = [escape(note[0].upper() + note[1:] + ".") for note in notes]
    if _legend(tiles):
        remarks.append("Words with a border name the image's own class.")
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title>",
        f"<style>{_STYLE}</style>",
        f"<h1>{title}</h1>",
        *(f"<p>{remark}</p>" for remark in remarks),
        "<main>",
        *(line for tile in tiles for line in _figure(dataset, tile)),
        "</main>",
    ]
    if table.provenance:
        lines += ["<details>", "<summary>Where the words come from</summary>", "<dl>"]
        lines += [
            f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>"
            for name, value in sorted(table.provenance.items())
        ]
        lines += ["</dl>", "</details>"]
    atomic_write(path, "\n".join([*lines, "</html>", ""]))


def _figure(dataset: Dataset, tile: _Tile) -> Iterator[str]:
    source = _data_uri(_shown(dataset, tile.image))
    yield "<figure>"
    yield f'<img src="{source}" alt="{escape(tile.caption or tile.key)}">'
    yield f"<figcaption><h2>{escape(tile.class_name)}</h2>"
    if tile.caption:
        yield f"<blockquote>{escape(tile.caption)}</blockquote>"
    if tile.words:
        yield "<ul>"
        for word in tile.words:
            kinds = [*(["asked"] if word.asked else []), *(["naming"] if word.naming else [])]
            marked = f' class="{" ".join(kinds)}"' if kinds else ""
            yield f"<li{marked}>{escape(word.text)}</li>"
        yield "</ul>"
    else:
        yield f"<p>{tile.remark}</p>"
    yield f"<code>{escape(tile.key)}</code></figcaption>"
    yield "</figure>"


def _shown(dataset: Dataset, index: int) -> Image.Image:
    """Return an image in its original proportions, no larger than the page needs."""
    if dataset.native_size is not None:
        # Images of such data sets are square, and some are rendered at any requested size.
        return Image.fromarray(dataset.images([index], _PIXELS)[0])
    image = Image.fromarray(dataset.image(index))
    image.thumbnail((_PIXELS, _PIXELS))
    return image


def _data_uri(image: Image.Image) -> str:
    encoded = []
    for kind in ("png", "jpeg"):
        stream = io.BytesIO()
        image.save(stream, format=kind, **({"quality": 90} if kind == "jpeg" else {}))
        encoded.append((len(stream.getvalue()), kind, stream.getvalue()))
    _, kind, data = min(encoded)
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
