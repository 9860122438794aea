"""Text of figures: how wide it is, and where its lines break."""

from __future__ import annotations

import unicodedata

__all__ = ["cut", "line_height", "pieces", "plain", "text_width", "wrapped"]

_WIDTHS = (
    "278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 "
    "556 556 556 278 278 584 584 584 556 1015 667 667 722 722 667 611 778 722 278 500 667 556 833 "
    "722 778 667 778 722 667 611 722 667 944 667 667 611 278 278 278 469 556 333 556 556 500 556 "
    "556 278 556 556 222 222 500 222 833 556 556 556 556 333 500 278 556 500 722 500 500 500 334 "
    "260 334 584"
)
_ASCII = {chr(32 + n): int(width) / 1000 for n, width in enumerate(_WIDTHS.split())}
"""Widths of Helvetica in ems, which Arial and Liberation Sans share."""

_BOLD = 1.12
_OTHER, _WIDE, _SYMBOL = 0.65, 1.05, 1.4
"""Widths in ems of other characters, which other fonts have: letters, ideographs and symbols."""
_BREAK_AFTER = "-_/,;:.|"
_JOINERS = "\u200d\ufe0e\ufe0f"


def plain(text: str) -> str:
    """Return a text on one line, without characters that no file of text may contain.

    >>> plain("two\\n  lines\\x00")
    'two lines'
    """
    clean = "".join(
        "\ufffd" if unicodedata.category(c) == "Cs" else c
        for c in text
        if c.isspace() or unicodedata.category(c) != "Cc"
    )
    return " ".join(clean.split())


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width of a line in points, exact for ASCII."""
    ems = sum(_ASCII[c] if c in _ASCII else _ems(c) for c in text)
    return ems * size * (_BOLD if bold else 1.0)


def _ems(char: str) -> float:
    if unicodedata.combining(char) or char in _JOINERS:
        return 0.0
    if unicodedata.category(char) == "So":
        return _SYMBOL
    return _WIDE if unicodedata.east_asian_width(char) in "WF" else _OTHER


def line_height(size: float) -> float:
    """Return the distance of two lines in points, as Vega sets it."""
    return size + 2


def cut(text: str, room: float, size: float, *, bold: bool = False) -> str:
    """Return as much of both ends of a text as fits in ``room`` points, "…" for what is between.

    What tells labels apart often stands at their end.

    >>> cut("protonet", 60, 8), cut("protonet with a very long name", 60, 8)
    ('protonet', 'protone…g name')
    """
    if text_width(text, size, bold=bold) <= room:
        return text
    half = (room - text_width("…", size, bold=bold)) / 2
    end = _fitting(text, half, size, bold=bold)
    rest = text_width(text[end:], size, bold=bold)
    start = end
    while start < len(text) and (rest > half or _ems(text[start]) == 0.0):
        rest -= text_width(text[start], size, bold=bold)
        start += 1
    return f"{text[:end]}…{text[start:]}"


def _fitting(text: str, room: float, size: float, *, bold: bool) -> int:
    """Return how many characters fit, without parting those that form one."""
    used, end = 0.0, 0
    for place, char in enumerate(text):
        used += text_width(char, size, bold=bold)
        if used > room:
            break
        end = place + 1
    while 0 < end < len(text) and (_ems(text[end]) == 0.0 or text[end - 1] == _JOINERS[0]):
        end -= 1
    return end


def wrapped(
    text: str, room: float, size: float, *, lines: int = 3, bold: bool = False
) -> list[str]:
    """Return a text as lines of at most ``room`` points, the last one cut if there are more.

    >>> wrapped("accuracy of the worst class in percent", 80, 8)
    ['accuracy of the worst', 'class in percent']
    >>> wrapped("accuracy of the worst class in percent", 60, 8, lines=2)
    ['accuracy of the', 'worst cl…percent']
    """
    words = pieces(plain(text))
    found: list[str] = []
    while words and len(found) < lines:
        line = words.pop(0)
        while words and text_width((line + words[0]).rstrip(), size, bold=bold) <= room:
            line += words.pop(0)
        if text_width(line.rstrip(), size, bold=bold) > room:
            end = max(1, _fitting(line, room, size, bold=bold))
            words.insert(0, line[end:])
            line = line[:end]
        found.append(line.rstrip())
    rest = "".join(words).strip()
    if rest:
        found[-1] = cut(f"{found[-1]} {rest}", room, size, bold=bold)
    return found or [""]


def pieces(text: str) -> list[str]:
    """Return the parts between which a line may break; a number keeps its ±.

    >>> pieces("meta-baseline 3.0 ± 1.2")
    ['meta-', 'baseline ', '3.0 ', '± 1.2']
    """
    found, start = [], 0
    for place, char in enumerate(text[:-1]):
        before, after = text[place - 1], text[place + 1]
        decimal = char in ".," and after.isdigit()
        if (char == " " and before != "±") or (
            char in _BREAK_AFTER and after.isalnum() and not decimal
        ):
            found.append(text[start : place + 1])
            start = place + 1
    return [*found, text[start:]] if text else []
