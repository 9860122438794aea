"""Checks of word selectors."""

from __future__ import annotations

import functools
from typing import Any

from fsframework.interfaces.selector import WordSelector
from fsframework.testing._suite import Make, Suite, check_options_stored, require, variants
from fsframework.testing._words import (
    ToldExactly,
    require_one_spelling,
    require_same_words,
    require_words,
)

suite = Suite(WordSelector)

_COLOURS, _THINGS = ("black", "red", "green"), ("ball", "dog", "tree", "car")
_PLACES = "grass", "snow", "table"
_CAPTIONS = (
    "a black dog running through tall grass near two stop signs",
    "",
    "A red car is parked beside the old houses.",
    "?! 42 ...",
    "ein Hund läuft über die Straße",
    "a black dog running through tall grass near two stop signs",
    "green trees grow beside tall houses",
    "two people ride brown horses along the beach",
    *(f"a {a} {b} on the {c}" for a in _COLOURS for b in _THINGS for c in _PLACES),
)


@suite.check()
def check_one_set_a_caption(make: Make) -> None:
    """``select`` returns a list with one frozenset per caption, the same again each time."""
    found = make().select(_CAPTIONS)
    require(isinstance(found, list), f"it must be a list, not {type(found).__name__}")
    count = len(_CAPTIONS)
    require(len(found) == count, f"{count} captions must give {count} sets, not {len(found)}")
    for words in found:
        require(
            isinstance(words, frozenset),
            f"the words of a caption must be a frozenset, not {type(words).__name__}",
        )
    for caption, words, again in zip(_CAPTIONS, found, make().select(_CAPTIONS), strict=True):
        require(
            words == again,
            f"{caption!r} has the words {sorted(words)}, a second time {sorted(again)}",
        )


@suite.check(after=[check_one_set_a_caption])
def check_words(make: Make) -> None:
    """Words are non-empty strings without surrounding spaces, semicolons or line breaks."""
    require_words(make().select(_CAPTIONS))


@suite.check(after=[check_words])
def check_spelling(make: Make) -> None:
    """No two words differ in case only; a capital, white space and a period change nothing."""
    selector = make()
    plain = [caption for caption in _CAPTIONS if caption.islower() and caption.isascii()]
    expected = selector.select(plain)
    require_one_spelling(expected)
    for what, respelt in (
        ("a capital at the beginning", str.capitalize),
        ("white space around it", lambda caption: f" {caption}\n"),
        ("a period", lambda caption: f"{caption}."),
        ("two spaces and tabs", lambda caption: caption.replace(" ", "  ").replace("  a", "\ta")),
    ):
        found = selector.select([respelt(caption) for caption in plain])
        for caption, before, after in zip(plain, expected, found, strict=True):
            require(
                before == after,
                f"{what} changes the words of {caption!r} from {sorted(before)} to {sorted(after)}",
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
    backwards = selector.select(_CAPTIONS[::-1])[::-1]
    require(backwards == together, "in reverse order, captions have other words")
    alike = [place for place, caption in enumerate(_CAPTIONS) if "dog" in caption] * 4
    found = selector.select([_CAPTIONS[place] for place in alike])
    same = found == [together[place] for place in alike]
    require(same, "among captions that share words, captions have other words")
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


@suite.check(after=[check_provenance, check_one_set_a_caption, check_options_stored])
def check_options_told(make: Make) -> None:
    """``provenance`` differs where an option changes the words, and tells options exactly."""
    selector = make()
    expected, told = selector.select(_CAPTIONS), dict(selector.provenance())
    exact = ToldExactly()
    for option, other in variants(make):
        same = dict(other.provenance()) == told
        exact.note(option, getattr(other, option), same=same)
        if same:
            require_same_words(option, expected, functools.partial(other.select, _CAPTIONS))


@suite.check()
def check_notes(make: Make) -> None:
    """``notes`` returns a list of sentences."""
    found = make().notes()
    plain = isinstance(found, list) and all(isinstance(note, str) and note for note in found)
    require(plain, f"it must be a list of non-empty strings, not {found!r}")


@suite.answers(after=[check_captions_independent])
def _answers(make: Make) -> dict[str, Any]:
    selector = make()
    words = [sorted(one) for one in selector.select(_CAPTIONS)]
    return {"the words": words, "provenance": dict(selector.provenance())}
