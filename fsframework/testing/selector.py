"""Checks of word selectors."""

from __future__ import annotations

from fsframework.interfaces.selector import WordSelector
from fsframework.testing._suite import Make, Suite, require

suite = Suite(WordSelector)

_CAPTIONS = (
    "a black dog running through tall grass near two stop signs",
    "",
    "A red car is parked beside the old houses.",
    "?! 42 ...",
    "ein Hund läuft über die Straße",
    "a black dog running through tall grass near two stop signs",
)


@suite.check()
def check_one_set_a_caption(make: Make) -> None:
    """``select`` returns a list with one frozenset per caption."""
    found = make().select(_CAPTIONS)
    require(isinstance(found, list), f"it must be a list, not {type(found).__name__}")
    count = len(_CAPTIONS)
    require(len(found) == count, f"{count} captions must give {count} sets, not {len(found)}")
    for words in found:
        require(
            isinstance(words, frozenset),
            f"the words of a caption must be a frozenset, not {type(words).__name__}",
        )


@suite.check(after=[check_one_set_a_caption])
def check_words(make: Make) -> None:
    """Words are non-empty strings without surrounding spaces."""
    for word in frozenset().union(*make().select(_CAPTIONS)):
        require(isinstance(word, str), f"a word must be a string, not {word!r}")
        require(
            word and word == word.strip(),
            f"a word must not be empty or have surrounding spaces: {word!r}",
        )


@suite.check()
def check_no_captions(make: Make) -> None:
    """No captions give an empty list."""
    found = make().select([])
    require(found == [], f"no captions must give [], not {found!r}")


@suite.check(after=[check_one_set_a_caption])
def check_captions_independent(make: Make) -> None:
    """The words of a caption do not depend on other captions or earlier calls."""
    selector = make()
    together = selector.select(_CAPTIONS)
    for caption, words in zip(_CAPTIONS, together, strict=True):
        [alone] = selector.select([caption])
        require(
            alone == words,
            f"{caption!r} has the words {sorted(alone)} separately, {sorted(words)} in a batch",
        )


@suite.check()
def check_provenance(make: Make) -> None:
    """``provenance`` maps names to strings."""
    found = make().provenance()
    plain = all(isinstance(text, str) for pair in dict(found).items() for text in pair)
    require(plain, f"its keys and values must be strings, not {found!r}")


@suite.check()
def check_notes(make: Make) -> None:
    """``notes`` returns a list of sentences."""
    found = make().notes()
    plain = isinstance(found, list) and all(isinstance(note, str) and note for note in found)
    require(plain, f"it must be a list of non-empty strings, not {found!r}")
