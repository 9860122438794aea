"""Captions as models and people write them, brought into the form of ordinary sentences."""

from __future__ import annotations

import html
import itertools
import re

from fsframework.values import normalize

__all__ = ["clean_caption"]

_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,31});")
_ANSWER = re.compile(
    r"^(?:.*(?:(?:^|[.?!>\]\n])\s*assistant\s*:|<\|?assistant\|?>|<\|im_start\|>\s*assistant\b)"
    r"|\s*(?:human|user)\s*:.*\bassistant\s*:)",
    re.IGNORECASE | re.DOTALL,
)
_THOUGHT = re.compile(r"(?:<(think\w*|reasoning)>.*?|^.*)</(?:think\w*|reasoning)>", re.I | re.S)
_HEADING = re.compile(
    r"\*\*[^*\n:]{1,40}(?::\*\*|\*\*\s*:)|```\w*"
    r"|(?<=[{,])\s*\"[^\"\n]{1,40}\"\s*:|^\s*[*_]{1,2}[^*_\n:]{1,40}:[*_]{1,2}",
    re.MULTILINE,
)
"""Headings and fences of Markdown, and keys of JSON."""
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1f\x7f\xad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_GLUED = re.compile(r"(?<=\w)[;|](?=\w)")
_SHOUTED = re.compile(r"\b(an?|the)\s+([A-Z]{3,})\b", re.IGNORECASE)
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
    ``<image>``) and the role before an answer (``assistant:``) are removed, as are
    headings, fences and thoughts. The text is in Unicode
    NFC without lone surrogates, which spaCy cannot read.

    >>> clean_caption("<s> assistant: A DOG &amp; A CAT [SEP]")
    'a dog & a cat'
    >>> clean_caption("Dog On A Wooden Bench"), clean_caption("Golden Gate Bridge in California")
    ('dog on a wooden bench', 'Golden Gate Bridge in California')
    """
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    text = _INVISIBLE.sub("", normalize(text))
    if "&" in text:
        text = _ENTITY.sub(lambda found: html.unescape(found[0]), text.replace("&amp;", "&"))
    if "</" in text:
        text = _THOUGHT.sub(" ", text)
    if ":" in text or "assistant" in text:
        text = _ROLE.sub(" ", _ANSWER.sub(" ", text))
    cleaned = _PIECE.sub("", _TOKEN.sub(" ", text))
    if "*" in text or "`" in text or "{" in text:
        cleaned = _HEADING.sub(" ", cleaned)
    cleaned = _GLUED.sub(" ; ", cleaned)
    text = text if cleaned == text else _SPACES.sub(" ", cleaned).strip()
    return text.lower() if text.isupper() or _is_title(text) or _shouts(text) else text


def _shouts(text: str) -> bool:
    """Return whether two or more words after articles are in capitals: "a DOG on the GRASS"."""
    shouted = [word for _, word in _SHOUTED.findall(text) if word.isupper()]
    return len(shouted) > 1 and any(set("AEIOUY") & {*word} for word in shouted)


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
