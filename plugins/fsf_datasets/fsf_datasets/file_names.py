"""File names: which are images, and which belong to an operating system or a storage box."""

from __future__ import annotations

import re
import unicodedata

__all__ = [
    "IMAGE_ENDINGS",
    "ending",
    "folded",
    "has_control_character",
    "is_image",
    "is_leftover",
    "is_perhaps_class",
    "is_unread_image",
    "natural",
    "sort_key",
]

IMAGE_ENDINGS = frozenset(
    re.findall(
        r"\.\w+",
        ".png .apng .jpg .jpeg .jpe .jfif .mpo .bmp .dib .webp .gif .ppm .pgm .pbm .pnm .pfm .tif "
        ".tiff .jp2 .j2k .j2c .jpf .jpx .avif",
    )
)
"""Extensions of the image files that are read, compared in lower case."""

_UNREAD_ENDINGS = frozenset(
    re.findall(
        r"\.\w+",
        ".heic .heif .heics .hif .jxl .jxr .wdp .bpg .psd .psb .xcf .kra .ai .eps .svg .svgz .ico "
        ".icns .cur .tga .dds .exr .hdr .pcx .sgi .rgb .ras .xpm .xbm .qoi .fits .fit .dcm .dicom "
        ".nii .czi .lif .nd2 .svs .ndpi .djvu .raw .dng .cr2 .cr3 .crw .nef .nrw .arw .srf .sr2 "
        ".orf .rw2 .raf .pef .srw .x3f .3fr .iiq .erf .mrw .kdc .icloud",
    )
)
"""Extensions of images in formats that are not read."""

_ALTERED_ENDING = re.compile(
    rf"({'|'.join(map(re.escape, sorted(IMAGE_ENDINGS)))})([^\w./][^./]*|_[^./]*|\.\d+|\.|"
    r"\.(part|partial|crdownload|opdownload|download|bak|old|orig|tmp|temp|gz|dvc|enc))$"
)
"""The end of a name such as ``1.jpg_large``, ``1.jpg?w=100``, ``1.jpg.1`` and ``1.jpg.part``."""

_LEFTOVERS = frozenset(
    {
        *("__macosx", "icon\r", "network trash folder", "temporary items"),  # macOS
        *("thumbs.db", "ehthumbs.db", "desktop.ini", "$recycle.bin", "recycler"),  # Windows
        *("system volume information", "found.000", "lost+found"),
        *("@eadir", "@tmp", "@sharebin", "#recycle", "#snapshot"),  # Synology
        *("@recycle", "@recently-snapshot"),  # QNAP
        *("backups.backupdb", "__pycache__"),
    }
)
_SYSTEM_FOLDER = re.compile(
    r"[~#_]|.* |lost|found|backups|.*\.lrdata$|[@$](ea|tmp|share|rec|app|syno|win)|\.(@|git|svn|"
    r"dvc|ipynb|idea|vs|venv|cache|config|local|tmp|temp|trash|thumb|picasa|dropbox|sync|st|spotlight|"
    r"apple|fsevents|document|ds_store|nfs|snap|zfs)"
)
"""Folders of systems and programs, which no class is named as."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NUMBERS = re.compile(r"[0-9]+")


def ending(name: str) -> str:
    """Return the extension of a file name in lower case.

    >>> ending("cat/1.PNG"), ending("a.b/README")
    ('.png', '')
    """
    last = name.rpartition("/")[2]
    before, dot, after = last.rpartition(".")
    return f".{after.lower()}" if before and dot else ""


def is_image(name: str) -> bool:
    """Return whether a name has the extension of an image that is read."""
    return ending(name) in IMAGE_ENDINGS


def is_unread_image(name: str) -> bool:
    """Return whether a name looks like that of an image that is not read.

    >>> [is_unread_image(name) for name in ("1.HEIC", "1.jpg?w=100", "1.png.2", "1.txt", "1.png")]
    [True, True, True, False, False]
    """
    return ending(name) in _UNREAD_ENDINGS or bool(_ALTERED_ENDING.search(name.lower()))


def is_leftover(name: str, *, folder: bool = False) -> bool:
    r"""Return whether a file or folder is hidden, or one that systems leave among the user's.

    Files that iCloud has not downloaded count as the user's.

    >>> [is_leftover(name) for name in (".DS_Store", ".1.jpg.icloud", "~$a.csv", "@1.png")]
    [True, False, True, False]
    >>> [is_leftover(name, folder=True) for name in ("@eaDir", "$Recycle.Bin", "My.lrdata", "cat")]
    [True, True, True, False]
    """
    lower = name.casefold()
    if folder and (lower.startswith(("@", "$")) or lower.endswith(".lrdata")):
        return True
    hidden = name.startswith((".", "~$")) and not (lower.endswith(".icloud") and not folder)
    return hidden or lower in _LEFTOVERS


def is_perhaps_class(name: str) -> bool:
    """Return whether a folder that is left out may be a class of the user all the same.

    >>> [is_perhaps_class(name) for name in (".net", "Recycler", "@home", ".git", "@eaDir")]
    [True, True, True, False, False]
    """
    return name.casefold() == "recycler" or not _SYSTEM_FOLDER.match(name.casefold())


def has_control_character(text: str) -> bool:
    r"""Return whether a text has a character that ends a line, steers a terminal or is half a pair.

    >>> has_control_character("a\nb"), has_control_character("photo 3\u202fPM")
    (True, False)
    """
    return _CONTROL.search(text) is not None


def natural(text: str) -> tuple[str, str]:
    """Return a key that sorts ``cat2`` before ``cat10``; ties are sorted as text.

    >>> sorted(["cat10", "cats", "cat2", "b/1", "b", "cat010"], key=natural)
    ['b', 'b/1', 'cat2', 'cat010', 'cat10', 'cats']
    """
    return sort_key(text), text


def sort_key(text: str) -> str:
    """Return a text with the length of each number before it, so that longer numbers sort later.

    The key is one string per name to save memory in large data sets.
    """
    return _NUMBERS.sub(_with_length, text)


def _with_length(number: re.Match[str]) -> str:
    digits = number[0].lstrip("0")
    return f"\0{chr(len(digits))}{digits}"


def folded(path: str) -> str:
    r"""Return a path that is equal for all spellings of it.

    >>> folded("IM\\A\\1.png") == folded("im/a/1.png")
    True
    """
    plain = unicodedata.normalize("NFC", path).casefold().replace("\\", "/")
    return unicodedata.normalize("NFC", plain)
