"""A task as a picture, in the manner of FewSTAB's Figure 3."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fsframework._files import atomic_path
from fsframework.interfaces.dataset import Dataset
from fsframework.values import ImagePool, TaskSet

__all__ = ["COLOURS", "FAINT", "INK", "PAPER", "cut_to", "draw_chip", "draw_task"]

COLOURS = ("#0072b2", "#d55e00", "#007a5a", "#a8478a", "#8a6d00", "#3f7fbf", "#7a3b00", "#4d4d4d")
"""One a way, repeated where there are more; dark enough to carry white text, and told apart by
the colour-blind (after Okabe & Ito 2008)."""

INK, FAINT, PAPER = "#222222", "#767676", "#ffffff"
"""Text, text of less weight, and ground."""

_RELAXED = "#b00020"
_IMAGE, _GAP, _LABEL, _MARGIN, _LINE = 112, 10, 150, 16, 17
_MOST_LINES = 6


def draw_task(
    task: TaskSet,
    pool: ImagePool,
    dataset: Dataset,
    split: str,
    path: Path,
    *,
    n_query: int = 5,
    n_support: int = 5,
) -> None:
    """Draw one task into a PNG file.

    A row a class: its name and word, its support images, then its first queries. Below each
    image stand its words; those tied to a class of the task are set on that class' colour.

    Args:
        task: a set of one task.
        split: the split whose pool the task's indices refer to.
        n_query: query images drawn a class; ``n_support`` likewise.
    """
    shown = [
        np.concatenate([task.support[0, w, :n_support], task.query[0, w, :n_query]])
        for w in range(task.n_way)
    ]
    n_support = min(n_support, task.n_shot)
    columns = len(shown[0])
    indices = dataset.split_indices(split)
    pixels = dataset.images(indices[np.concatenate(shown)], _IMAGE)
    owner = {int(a): w for w, a in enumerate(task.attribute[0]) if a >= 0}
    chips = [[_chips(task, pool, int(i), owner) for i in row] for row in shown]
    font, small = ImageFont.load_default(15), ImageFont.load_default(13)
    heights = [max(len(cell) for cell in row) * _LINE + _IMAGE + 3 * _GAP for row in chips]
    top = _MARGIN + 2 * _LINE
    split_gap = 3 * _GAP
    width = 2 * _MARGIN + _LABEL + columns * (_IMAGE + _GAP) + split_gap
    canvas = Image.new("RGB", (width, top + sum(heights) + _MARGIN), PAPER)
    draw = ImageDraw.Draw(canvas)
    left = [
        _MARGIN + _LABEL + c * (_IMAGE + _GAP) + (split_gap if c >= n_support else 0)
        for c in range(columns)
    ]
    draw.text((left[0], _MARGIN), "support", INK, font)
    more = f" (first {columns - n_support} of {task.n_query} a class)"
    if columns > n_support:
        draw.text((left[n_support], _MARGIN), "query" + more, INK, font)
    y = top
    for way, row in enumerate(chips):
        colour = COLOURS[way % len(COLOURS)]
        draw.rectangle((_MARGIN, y, _MARGIN + 5, y + _IMAGE), fill=colour)
        name = pool.class_names[task.classes[0, way]]
        _fitted(draw, (_MARGIN + 14, y + 4), name, font, _LABEL - 20)
        attribute = int(task.attribute[0, way])
        if attribute >= 0:
            draw_chip(draw, (_MARGIN + 14, y + 30), task.words[attribute], small, colour)
        if task.relaxed[0, way]:
            draw.text((_MARGIN + 14, y + 56), "queries relaxed", _RELAXED, small)
        for column, cell in enumerate(row):
            image = Image.fromarray(pixels[way * columns + column])
            canvas.paste(image, (left[column], y))
            line = y + _IMAGE + 4
            for word, word_owner in cell:
                if word_owner is None:
                    _fitted(draw, (left[column] + 4, line), word, small, _IMAGE - 6, FAINT)
                else:
                    marked = COLOURS[word_owner % len(COLOURS)]
                    draw_chip(draw, (left[column], line), word, small, marked)
                line += _LINE
        y += heights[way]
    with atomic_path(path) as temporary:
        canvas.save(temporary, format="PNG")


def _chips(
    task: TaskSet, pool: ImagePool, image: int, owner: dict[int, int]
) -> list[tuple[str, int | None]]:
    """Return an image's words, those tied to a way first, with that way."""
    if pool.attributes is None:
        return []
    ways = {task.words[a]: w for a, w in owner.items()}
    words = sorted(pool.attributes.words_of(image), key=lambda word: (word not in ways, word))
    cells: list[tuple[str, int | None]] = [(word, ways.get(word)) for word in words]
    if len(cells) > _MOST_LINES:
        hidden = len(cells) - _MOST_LINES + 1
        cells = [*cells[: _MOST_LINES - 1], (f"and {hidden} more", None)]
    return cells


def draw_chip(
    draw: ImageDraw.ImageDraw,
    place: tuple[int, int],
    text: str,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    colour: str,
    ink: str = "#ffffff",
    most: int = _IMAGE,
) -> None:
    """Draw a word on a rounded ground; ``most`` pixels wide, or what is too long is cut off."""
    text = cut_to(text, font, most - 8)
    x, y = place
    width = round(font.getlength(text))
    draw.rounded_rectangle((x, y, x + width + 8, y + _LINE - 2), 4, fill=colour)
    draw.text((x + 4, y), text, ink, font)


def _fitted(
    draw: ImageDraw.ImageDraw,
    place: tuple[int, int],
    text: str,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    width: int,
    colour: str = INK,
) -> None:
    draw.text(place, cut_to(text, font, width), colour, font)


def cut_to(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    """Return as much of a text as ``width`` pixels hold, with an ellipsis where it is cut."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
