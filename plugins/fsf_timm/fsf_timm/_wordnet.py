"""Hypernyms of ImageNet's labels, from the WordNet of NLTK where its data are installed."""

from __future__ import annotations

from typing import Any

__all__ = ["hypernyms", "load_wordnet"]

_LEAST_DEPTH = 6
"""Links from *entity* to *animal*, *vehicle* is one below; what is above says too little."""


def load_wordnet() -> Any:
    """Return NLTK's reader of WordNet 3.0, whose numbers ImageNet uses; ``None`` without it."""
    try:
        from nltk.corpus import wordnet

        wordnet.ensure_loaded()
    # NLTK is not installed, or its data are missing or incomplete.
    except (ImportError, LookupError, OSError):
        return None
    return wordnet if wordnet.get_version() == "3.0" else None


def hypernyms(wordnet: Any, label: str) -> list[str]:
    """Return the usual words for what is more general than a label, in lower case.

    These are the first lemmas of all hypernyms that WordNet's tagged texts contain, unless they
    are more general than *animal*: *dog* and *animal* of a retriever, but not *chordate*.

    Args:
        wordnet: result of ``load_wordnet``.
        label: number of a noun's synset, such as ``n02099601``.
    """
    synset = wordnet.synset_from_pos_and_offset("n", int(label[1:]))
    found = [
        one.lemmas()[0]
        for one in synset.closure(lambda below: below.hypernyms())
        if one.min_depth() >= _LEAST_DEPTH
    ]
    return sorted({one.name().replace("_", " ").lower() for one in found if one.count()})
