"""Captions as models and people write them, brought into the form of ordinary sentences."""

from __future__ import annotations

import html
import itertools
import re
import unicodedata

__all__ = ["clean_caption"]

_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,31});")
_ANSWER = re.compile(
    r"^.*(?:\bassistant\s*:|<\|?assistant\|?>|<\|im_start\|>\s*assistant\b)",
    re.IGNORECASE | re.DOTALL,
)
_ROLE = re.compile(
    r"^\s*(?:answer|bot|caption|description|gpt|human|image caption|model|output|response|system"
    r"|user)\s*:",
    re.IGNORECASE | re.MULTILINE,
)
_TOKEN = re.compile(
    r"<\|[^<>|]{1,40}\|>|<{1,2}/?[^<>\s]{1,40}>{1,2}|\[/?[A-Z_]{2,12}\d*\]|[\u0120\u010a\u2581]"
)
_PIECE = re.compile(r"\s+##(?=\w)")
_SPACES = re.compile(r"[^\S\n]+")
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_SMALL = {
    "a", "an", "and", "at", "by", "for", "from", "in", "into", "is", "near", "next", "of", "on",
    "or", "the", "to", "with",
}  # fmt: skip
_ARTICLES = {"a", "an", "one", "some", "two", "three"}


def clean_caption(text: str) -> str:
    """Return a caption without what programs added, in lower case if it shouts or is a title.

    Entities of HTML become characters, and tokens of models (``<|endoftext|>``, ``[SEP]``,
    ``<image>``) and the role before an answer (``assistant:``) are removed. The text is in Unicode
    NFC without lone surrogates, which spaCy cannot read.

    >>> clean_caption("<s> assistant: A DOG &amp; A CAT [SEP]")
    'a dog & a cat'
    >>> clean_caption("Dog On A Wooden Bench"), clean_caption("Golden Gate Bridge in California")
    ('dog on a wooden bench', 'Golden Gate Bridge in California')
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode("utf-8"))
    if "&" in text:
        text = _ENTITY.sub(lambda found: html.unescape(found[0]), text.replace("&amp;", "&"))
    if ":" in text or "assistant" in text:
        text = _ROLE.sub(" ", _ANSWER.sub(" ", text))
    cleaned = _PIECE.sub("", _TOKEN.sub(" ", text))
    text = text if cleaned == text else _SPACES.sub(" ", cleaned).strip()
    return text.lower() if text.isupper() or _is_title(text) else text


def _is_title(text: str) -> bool:
    """Return whether words have capitals that are no names: of small words, or after an article."""
    words = _WORD.findall(text)
    if len(words) < 3 or any(word[0].islower() and word not in _SMALL for word in words):
        return False
    small = any(word[0].isupper() and word.lower() in _SMALL for word in words[1:])
    return small or any(
        first.lower() in _ARTICLES and second[:1].isupper() and second[1:].islower()
        for first, second in itertools.pairwise(words)
    )
