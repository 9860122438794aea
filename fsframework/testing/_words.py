"""What holds for words, of whatever they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fsframework.errors import FsfError
from fsframework.testing._suite import require

__all__ = ["ToldExactly", "require_one_spelling", "require_same_words", "require_words"]


def require_words(sets: Iterable[frozenset[str]]) -> None:
    """Require non-empty strings that can stand in a list, one line each."""
    for word in frozenset().union(*sets):
        require(isinstance(word, str), f"a word must be a string, not {word!r}")
        require(
            word and word == word.strip(),
            f"a word must not be empty or have surrounding spaces: {word!r}",
        )
        require(
            word.isprintable() and ";" not in word,
            f"a word must have no semicolon, which separates words, or line break: {word!r}",
        )


def require_one_spelling(sets: Iterable[frozenset[str]]) -> None:
    """Require that no two words differ in case, hyphens or spaces only."""
    spelt: dict[str, str] = {}
    for word in sorted(frozenset().union(*sets)):
        folded = word.casefold().replace("-", " ").replace("_", " ")
        other = spelt.setdefault(folded, word)
        require(other == word, f"{other!r} and {word!r} are one word in two spellings")


class ToldExactly:
    """Requires of each option that ``provenance`` tells of all its values, or of none.

    Names are not looked at: ``auto`` may be one of the others.
    """

    def __init__(self) -> None:
        self._same: dict[str, bool] = {}

    def note(self, option: str, value: object, *, same: bool) -> None:
        """Take down whether provenance stays the same with another value of an option."""
        require(
            isinstance(value, str) or self._same.setdefault(option, same) == same,
            f"provenance tells of some values of the option {option!r} as of others",
        )


def require_same_words(
    option: str, expected: list[frozenset[str]], words: Callable[[], list[frozenset[str]]]
) -> None:
    """Require that an option which ``provenance`` does not tell of changes no words."""
    try:
        found = words()
    except FsfError:
        return  # the toys are not for this value
    require(
        found == expected,
        f"the option {option!r} changes words, but provenance is the same for its values",
    )
