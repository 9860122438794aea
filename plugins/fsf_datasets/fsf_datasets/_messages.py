"""Numbers, names and reasons as the messages of this package print them."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["counted", "first_few", "is_image_start", "kind_of", "quoted", "reason"]


_MOST_SHOWN = 500


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "image"), counted(1200, "image"), counted(2, "class")
    ('1 image', '1,200 images', '2 classes')
    """
    plural = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def first_few(texts: Sequence[str], most: int = 3, joint: str = ", ") -> str:
    """Return the first texts and the number of the others.

    >>> first_few(["row 2", "row 3", "row 7", "row 9"])
    'row 2, row 3, row 7 and 1 more'
    """
    left = len(texts) - most
    shown = (t if len(t) <= _MOST_SHOWN else f"{t[:_MOST_SHOWN]}..." for t in texts[:most])
    return joint.join(shown) + (f" and {left:,} more" if left > 0 else "")


_KINDS = {
    b"version https://git-lfs": "a pointer of Git LFS; run git lfs pull",
    b"/annex/objects/": "a pointer of git-annex; run git annex get",
    b"PK\3\4": "an Excel workbook or another archive",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "compressed by gzip",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"II*\0", b"MM\0*")


def is_image_start(head: bytes) -> bool:
    """Return whether the first bytes of a file are those of a usual image."""
    return head.startswith(_IMAGES) or head[4:8] == b"ftyp"


def kind_of(head: bytes) -> str:
    """Return what a file is by its first bytes, for messages; empty if unknown.

    >>> kind_of(b"<!doctype html>"), kind_of(b"PAR1"), kind_of(b"path,label")
    ('HTML or SVG text', 'a Parquet file', '')
    """
    if not head.strip(b"\0"):
        return "empty, or filled with zeros"
    if head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<"):
        return "HTML or SVG text"
    if is_image_start(head):
        return "a damaged image, or a kind of TIFF, HEIC or another format that is not read"
    return next((kind for start, kind in _KINDS.items() if head.startswith(start)), "")


def quoted(names: Sequence[str]) -> str:
    """Return the first names in quotes and the number of the others.

    >>> quoted(["cat", "dog"])
    "'cat', 'dog'"
    """
    return first_few([repr(name) for name in names])


def reason(error: BaseException) -> str:
    """Return the message of an error without its number or the object that was read.

    >>> reason(OSError("cannot identify image file <_io.BytesIO object at 0x7f>"))
    'cannot identify image file'
    >>> reason(FileNotFoundError(2, "No such file or directory", "a.png"))
    'No such file or directory'
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = re.sub(r"\s*<_?io\.[^>]*>", "", str(error)).strip()
    return text or type(error).__name__
