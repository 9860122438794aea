"""Each check of selectors rejects the one broken component made for it, and nothing else does."""

import re

import pytest

from fsframework.interfaces import WordSelector
from fsframework.testing import checks_for, parametrize_with_checks
from tests.misdeclared import hashed, misdeclared


class Long(WordSelector):
    """Words of a minimum length."""

    def __init__(self, *, least: int = 4):
        self.least = least

    def select(self, captions):
        return [self.words(caption) for caption in captions]

    def provenance(self):
        return {"least": str(self.least)}

    def words(self, caption):
        return frozenset(w for w in re.findall(r"[a-z]+", caption.lower()) if len(w) >= self.least)


class NoSelector:
    """It has the methods but not the interface."""

    def select(self, captions):
        return [frozenset() for _ in captions]


class Positional(Long):
    """A positional option."""

    def __init__(self, least: int = 4):
        super().__init__(least=least)


class Doubled(Long):
    """An option that is stored as another value."""

    def __init__(self, *, least: int = 4):
        super().__init__(least=2 * least)


class Silent(Long):
    pass


class Lists(Long):
    """Words in lists."""

    def words(self, caption):
        return sorted(super().words(caption))


class Blank(Long):
    """The empty word where there is no other."""

    def words(self, caption):
        return super().words(caption) or frozenset({""})


class NeedsCaptions(Long):
    """The first caption is looked at before all others."""

    def select(self, captions):
        self.words(captions[0])
        return super().select(captions)


class Common(Long):
    """Only words that two captions have."""

    def select(self, captions):
        found = super().select(captions)
        return [
            frozenset(w for w in words if len(found) < 2 or sum(w in other for other in found) > 1)
            for words in found
        ]


class Numbers(Long):
    """Provenance that is not strings."""

    def provenance(self):
        return {"least": self.least}


class Cased(Long):
    """A capital makes another word."""

    def words(self, caption):
        return frozenset(w for w in re.findall(r"[a-zA-Z]+", caption) if len(w) >= self.least)


class Untold(Long):
    """Its provenance does not tell of an option."""

    def provenance(self):
        return {}


class Hashed(Long):
    """The words depend on the hashes of the process."""

    def words(self, caption):
        return frozenset(f"{word}{hashed()}" for word in super().words(caption))


class OneNote(Long):
    """A note that is no list of notes."""

    def notes(self):
        return "words of four letters"


BROKEN = {
    "check_construction": NoSelector,
    "check_options_typed": Positional,
    "check_options_stored": Doubled,
    "check_summary": Silent,
    **misdeclared(Long),
    "check_one_set_a_caption": Lists,
    "check_words": Blank,
    "check_spelling": Cased,
    "check_no_captions": NeedsCaptions,
    "check_captions_independent": Common,
    "check_provenance": Numbers,
    "check_options_told": Untold,
    "check_notes": OneNote,
    "check_fresh_process": Hashed,
}


@parametrize_with_checks([Long])
def test_a_sound_selector_passes(make, check):
    check(make)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", BROKEN)
def test_only_its_check_rejects(name, failing):
    assert failing(BROKEN[name], "selector") == {name}


def test_every_check_has_its_broken_selector():
    assert list(BROKEN) == [check.__name__ for check in checks_for("selector")]
