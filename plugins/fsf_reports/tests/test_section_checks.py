"""Each check of sections rejects the one broken component made for it, and nothing else does."""

from collections import Counter
from typing import ClassVar

import pytest

from fsf_reports.interfaces import Section
from fsf_reports.values import Gallery, ImageGroup, TaskBrowser, Text
from fsframework.testing import checks_for, parametrize_with_checks
from tests.misdeclared import misdeclared


class Plain(Section):
    """Labels, tasks and an image."""

    title = "Plain"

    def __init__(self, *, lines: int = 2):
        self.lines = lines

    def blocks(self, runs):
        yield Text(tuple(self.named(run) for run in runs))
        shown = self.shown(runs)
        if shown:
            yield TaskBrowser(shown)
            yield Gallery("one", shown[0], (ImageGroup("first", (0,)),))

    def named(self, run):
        return run.label

    def shown(self, runs):
        return tuple(i for i, run in enumerate(runs) if run.outcomes is not None)


class NoSection:
    """It has the methods but not the interface."""

    title, place = "Plain", 1
    blocks, named, shown = Plain.blocks, Plain.named, Plain.shown


class Positional(Plain):
    """A positional option."""

    def __init__(self, lines: int = 2):
        super().__init__(lines=lines)


class Doubled(Plain):
    """An option that is stored as another value."""

    def __init__(self, *, lines: int = 2):
        super().__init__(lines=2 * lines)


class Silent(Plain):
    pass


class Untitled(Plain):
    """Without a heading."""

    title = " "


class Between(Plain):
    """Half-way between two others."""

    place = 0.5


class Markup(Plain):
    """HTML instead of blocks."""

    def blocks(self, runs):
        yield "<p>text</p>"


class Pointless(Plain):
    """The first run, finished or not."""

    def shown(self, runs):
        return (0,) if super().shown(runs) else ()


class Ascii(Plain):
    """Fails for letters of other alphabets."""

    def named(self, run):
        return run.label.encode("ascii").decode()


class Remembering(Plain):
    """Tells how often it was asked."""

    def __init__(self, *, lines: int = 2):
        super().__init__(lines=lines)
        self.asked = Counter()

    def named(self, run):
        self.asked[run.label] += 1
        return f"{run.label} {self.asked[run.label]}"


class Changing(Plain):
    """Renames the measures of the runs."""

    given: ClassVar[dict[str, str]] = {"acc-gap": "gap"}

    def blocks(self, runs):
        for run in runs:
            run.measures.update(self.given)
        yield Text(tuple(run.label for run in runs))


BROKEN = {
    "check_construction": NoSection,
    "check_options_typed": Positional,
    "check_options_stored": Doubled,
    "check_summary": Silent,
    **misdeclared(Plain),
    "check_title": Untitled,
    "check_place": Between,
    "check_blocks": Markup,
    "check_references": Pointless,
    "check_any_names": Ascii,
    "check_repeatable": Remembering,
    "check_runs_unchanged": Changing,
}


@parametrize_with_checks([Plain])
def test_a_sound_section_passes(make, check):
    check(make)


@pytest.mark.parametrize("name", BROKEN)
def test_only_its_check_rejects(name, failing):
    assert failing(BROKEN[name], "section") == {name}


def test_every_check_has_its_broken_section():
    assert list(BROKEN) == [check.__name__ for check in checks_for("section")]
