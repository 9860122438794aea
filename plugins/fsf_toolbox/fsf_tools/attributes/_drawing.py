"""Colours and drawing helpers for pages and pictures."""

from __future__ import annotations

from PIL import ImageDraw, ImageFont

__all__ = ["COLOURS", "FAINT", "INK", "LINE", "PAPER", "Font", "cut_to", "draw_chip"]

COLOURS = ("#0072b2", "#d55e00", "#007a5a", "#a8478a", "#8a6d00", "#3f7fbf", "#7a3b00", "#4d4d4d")
"""One per way, repeated if there are more ways; dark enough for white text, and distinguishable
by colour-blind readers (after Okabe & Ito 2008)."""

INK, FAINT, PAPER = "#222222", "#767676", "#ffffff"
"""Text, secondary text and background."""

LINE = 17
"""Height of a line of small text in pixels."""

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def draw_chip(
    draw: ImageDraw.ImageDraw,
    place: tuple[int, int],
    text: str,
    font: Font,
    colour: str,
    ink: str = "#ffffff",
    most: int = 112,
) -> None:
    """Draw a word on a rounded background at most ``most`` pixels wide; a longer word is cut."""
    text = cut_to(text, font, most - 8)
    x, y = place
    width = round(font.getlength(text))
    draw.rounded_rectangle((x, y, x + width + 8, y + LINE - 2), 4, fill=colour)
    draw.text((x + 4, y), text, ink, font)


def cut_to(text: str, font: Font, width: int) -> str:
    """Return as much of a text as fits in ``width`` pixels, with an ellipsis if it is cut."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
