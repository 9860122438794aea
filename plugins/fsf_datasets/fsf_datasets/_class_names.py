"""Matching the names of a user's folders with the published classes of a data set."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

__all__ = ["ClassNames"]

_NUMBER = re.compile(r"(\d+)[._ -]+(?=\S)")
_WHOLE = re.compile(r"(\d{1,1000})")
_LEADING = re.compile(r"(\d{1,1000})\.")  # as Meta-Dataset writes it
_SYNSET = re.compile(r"(n\d{8})(?!\d)")


class ClassNames:
    """Finds the published class that a written name means.

    Names match by, in this order: the same text; the same synset (``n02085620-Chihuahua`` for
    ``n02085620``); the same letters and digits, ignoring case and separators; the same without a
    leading number (``190.Red_cockaded_Woodpecker``); only that number. A form that two classes
    share matches neither.

    >>> names = ClassNames(["190.Red_cockaded_Woodpecker", "F-16A/B", "747-100", "747-200"])
    >>> names("red cockaded woodpecker"), names("00190"), names("F-16A_B"), names("747")
    ('190.Red_cockaded_Woodpecker', '190.Red_cockaded_Woodpecker', 'F-16A/B', None)
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._known: list[dict[str, str | None]] = []
        for form in _FORMS:
            found: dict[str, str | None] = {}
            for name in self.names:
                if key := form(unicodedata.normalize("NFC", name)):
                    found[key] = name if found.get(key, name) == name else None
            self._known.append(found)
        self._seen: dict[str, str | None] = {}

    def __call__(self, written: str) -> str | None:
        """Return the class, or ``None`` unless exactly one class matches."""
        if written not in self._seen:
            self._seen[written] = self._find(unicodedata.normalize("NFC", written))
        return self._seen[written]

    def _find(self, written: str) -> str | None:
        for form, known in zip(_FORMS, self._known, strict=True):
            if (name := known.get(form(written))) is not None:
                return name
        return None


def _synset(text: str) -> str:
    found = _SYNSET.match(text)
    return found[1] if found else ""


def _loose(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())


def _unnumbered(text: str) -> str:
    return _loose(_NUMBER.sub("", text, count=1) if _NUMBER.match(text) else text)


def _number(text: str) -> str:
    found = _WHOLE.fullmatch(text) or _LEADING.match(text)
    return str(int(found[1])) if found else ""


_FORMS: tuple[Callable[[str], str], ...] = (str, _synset, _loose, _unnumbered, _number)
