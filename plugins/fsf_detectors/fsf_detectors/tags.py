"""Words from lists of tags, as models write them."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping, Sequence

from fsf_detectors._captions import clean_caption
from fsframework.interfaces import WordSelector, check_at_least

__all__ = ["TagSelector"]

_BETWEEN = re.compile(r"[,;\n\r|\u3001\uff0c]+")
_NUMBER = re.compile(r"^\s*(?:[-*\u2022]|\d+\s*[.):])\s*")
_AROUND = " \t\"'`*_[](){}<>.!?:-\u2022\u2013\u2014\u201c\u201d\u2018\u2019\u3002"

_DENYING = {"n/a", "no", "none", "not", "without"}


class TagSelector(WordSelector):
    """Takes the items of a list as words.

    Items are separated by commas, semicolons, vertical bars or line ends. Bullets, numbers of
    items, quotation marks, brackets, emphasis and final punctuation are removed, as is everything
    up to a colon ("Tags: dog"). Words are in lower case and NFC-normalised. An item without a
    letter, or of more than ``most_words`` words, is not a tag: models add sentences. Nor is one
    that begins with *no*, *not*, *none* or *without*.

    Args:
        most_words: number of words that a tag may have.

    Raises:
        OptionError: an option is outside its range.

    >>> [sorted(words) for words in TagSelector().select(["Tags: Dog, green grass.", "1. cat"])]
    [['dog', 'green grass'], ['cat']]
    """

    def __init__(self, *, most_words: int = 3) -> None:
        check_at_least(1, most_words=most_words)
        self.most_words = most_words

    def select(self, captions: Sequence[str]) -> list[frozenset[str]]:
        """Return the tags in each text."""
        return [frozenset(self._tags(caption)) for caption in captions]

    def provenance(self) -> Mapping[str, str]:
        """Return the selector, its version and its option."""
        version = importlib.metadata.version("fsf-detectors")
        return {
            "selector": "tags",
            "rules": f"fsf-detectors {version}",
            "most_words": str(self.most_words),
        }

    def _tags(self, text: str) -> list[str]:
        items = _BETWEEN.split(clean_caption(text).lower())
        tags = [_cleaned(item) for item in items]
        return [
            tag
            for tag in tags
            if any(map(str.isalpha, tag))
            and len(tag.split()) <= self.most_words
            and tag.split()[0] not in _DENYING
        ]


def _cleaned(item: str) -> str:
    rest = _NUMBER.sub("", item).strip(_AROUND).rpartition(":")[2]
    shown = "".join(one if one.isprintable() else " " for one in rest)
    return " ".join(shown.strip(_AROUND).split())
