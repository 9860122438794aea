"""A task as a picture, like FewSTAB's Figure 3."""

from __future__ import annotations

import io

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
from fsframework.interfaces.dataset import Dataset
from fsframework.values import ImagePool, TaskSet

__all__ = ["task_picture"]

_RELAXED = "#b00020"
_IMAGE, _GAP, _LABEL, _MARGIN = 112, 10, 150, 16
_MOST_LINES = 6


def task_picture(
    task: TaskSet,
    dataset: Dataset,
    pool: ImagePool,
    split: str = "test",
    *,
    n_query: int = 5,
    n_support: int = 5,
) -> bytes:
    """Draw one task as a PNG.

    One row per class: its name and word, its support images, then its first queries. Below each
    image are its words; a word tied to a class of the task has that class's colour.

    Args:
        task: a set of one task.
        dataset: of the images.
        pool: those that the task was drawn from, with their words.
        split: of the pool.
        n_query: query images drawn per class; ``n_support`` likewise.
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
    heights = [max(len(cell) for cell in row) * LINE + _IMAGE + 3 * _GAP for row in chips]
    top = _MARGIN + 2 * LINE
    split_gap = 3 * _GAP
    width = 2 * _MARGIN + _LABEL + columns * (_IMAGE + _GAP) + split_gap
    canvas = Image.new("RGB", (width, top + sum(heights) + _MARGIN), PAPER)
    draw = ImageDraw.Draw(canvas)
    left = [
        _MARGIN + _LABEL + c * (_IMAGE + _GAP) + (split_gap if c >= n_support else 0)
        for c in range(columns)
    ]
    draw.text((left[0], _MARGIN), "support", INK, font)
    n_shown = columns - n_support
    more = f" (first {n_shown} of {task.n_query} per class)" if n_shown < task.n_query else ""
    if n_shown:
        draw.text((left[n_support], _MARGIN), f"queries{more}", INK, font)
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
            canvas.paste(Image.fromarray(pixels[way * columns + column]), (left[column], y))
            line = y + _IMAGE + 4
            for word, word_owner in cell:
                if word_owner is None:
                    _fitted(draw, (left[column] + 4, line), word, small, _IMAGE - 6, FAINT)
                else:
                    marked = COLOURS[word_owner % len(COLOURS)]
                    draw_chip(draw, (left[column], line), word, small, marked)
                line += LINE
        y += heights[way]
    stream = io.BytesIO()
    canvas.save(stream, format="PNG")
    return stream.getvalue()


def _chips(
    task: TaskSet, pool: ImagePool, image: int, owner: dict[int, int]
) -> list[tuple[str, int | None]]:
    """Return an image's words with the way that each is tied to, tied words first."""
    if pool.attributes is None:
        return []
    ways = {task.words[a]: w for a, w in owner.items()}
    words = sorted(pool.attributes.words_of(image), key=lambda word: (word not in ways, word))
    cells: list[tuple[str, int | None]] = [(word, ways.get(word)) for word in words]
    if len(cells) > _MOST_LINES:
        hidden = len(cells) - _MOST_LINES + 1
        cells = [*cells[: _MOST_LINES - 1], (f"and {hidden} more", None)]
    return cells


def _fitted(
    draw: ImageDraw.ImageDraw,
    place: tuple[int, int],
    text: str,
    font: Font,
    width: int,
    colour: str = INK,
) -> None:
    draw.text(place, cut_to(text, font, width), colour, font)
