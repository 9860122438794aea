"""English phrases that are not about things: complex prepositions and phrasal quantifiers.

In "on top of a cliff" nothing is a top, and in "a lot of people" nothing is a lot.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["in_preposition", "is_quantifier"]

# Quirk, Greenbaum, Leech and Svartvik 1985, A Comprehensive Grammar of the English Language,
# sections 9.10 (two words) and 9.11 (three and more): those with a noun or an adjective. Left out
# are forms with an article that captions use literally, such as "in the light of" and "on the
# grounds of". The last two lines are from STREUSLE (Schneider et al. 2018) and from the relation
# "fixed" of the treebank UD English EWT.
_PREPOSITIONS = """
    next to, near to, close to, due to, contrary to, opposite to, previous to, prior to,
    subsequent to, preliminary to, preparatory to, thanks to, exclusive of, irrespective of,
    void of, devoid of,
    in aid of, in back of, in behalf of, in case of, in charge of, in consequence of, in face of,
    in favor of, in favour of, in front of, in light of, in lieu of, in need of, in place of,
    in process of, in the process of, in quest of, in respect of, in search of, in spite of,
    in view of, in accordance with, in common with, in comparison with, in compliance with,
    in conformity with, in contact with, in line with, in regard to, in addition to,
    in relation to, in exchange for, in return for, by dint of, by means of, by virtue of,
    by way of, on account of, on behalf of, on grounds of, on pain of, on the part of,
    on the strength of, on top of, at variance with, at the expense of, at the hands of,
    for sake of, for the sake of, for want of, with reference to, with regard to, with respect to,
    with the exception of,
    in the middle of, in the midst of, in terms of,
    such as, more than, less than, of course, in order to
"""

# Quirk et al. 1985, sections 5.25 (phrasal quantifiers) and 5.5-5.9 (partitive nouns): of the
# latter only those that do not say what the things look like, as "flock" and "slice" do.
_QUANTIFIERS = """
    lot, lots, plenty, number, numbers, amount, amounts, quantity, quantities, deal, majority,
    couple, pair, pairs, bunch, group, groups, variety, series, dozen, dozens, hundreds, thousands,
    kind, kinds, sort, sorts, type, types
"""


def _listed(text: str) -> list[str]:
    return re.split(r",\s*", text.strip())


def _by_longest_word(phrases: list[str]) -> dict[str, list[tuple[list[str], list[str]]]]:
    """Return the words before and after the longest word of each phrase, by that word."""
    found: dict[str, list[tuple[list[str], list[str]]]] = {}
    for phrase in phrases:
        words = phrase.split()
        place = words.index(max(words, key=len))
        found.setdefault(words[place], []).append((words[:place], words[place + 1 :]))
    return found


_AROUND = _by_longest_word(_listed(_PREPOSITIONS))
_COUNTING = frozenset(_listed(_QUANTIFIERS))


_NEGATIONS = {"no", "not", "n't", "n’t", "without", "neither", "nor"}
_COMPARING = {"far", "just", "long", "merely", "only", "so", "too", "very"}


def in_preposition(words: Sequence[str], place: int) -> bool:
    """Return whether a noun or an adjective is a part of a complex preposition.

    Args:
        words: of a text, in lower case; ``place`` that of the noun or adjective.

    >>> in_preposition(["on", "top", "of", "a", "cliff"], 1), in_preposition(["the", "top"], 1)
    (True, False)
    """
    return any(
        words[max(place - len(before), 0) : place] == before
        and words[place + 1 : place + 1 + len(after)] == after
        for before, after in _AROUND.get(words[place], ())
    )


def is_negation(words: Sequence[str], place: int) -> bool:
    """Return whether a word denies the noun phrase after it.

    Not in a name after an article ("a no parking sign"), nor where it only compares ("not far").

    Args:
        words: of a text, in lower case; ``place`` that of the word.

    >>> is_negation(["no", "dog"], 0), is_negation(["a", "no", "parking", "sign"], 1)
    (True, False)
    """
    return (
        words[place] in _NEGATIONS
        and words[max(place - 1, 0)] not in ("a", "an", "the")
        and not _COMPARING.issuperset(words[place + 1 : place + 2] or ["."])
    )


def is_quantifier(words: Sequence[str], place: int) -> bool:
    """Return whether a noun only says how many things there are, or that they are of a kind.

    Args:
        words: of a text, in lower case; ``place`` that of the noun.

    >>> is_quantifier(["a", "group", "of", "dogs"], 1), is_quantifier(["the", "group"], 1)
    (True, False)
    """
    return words[place] in _COUNTING and words[place + 1 : place + 2] == ["of"]
