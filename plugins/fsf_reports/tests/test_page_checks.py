"""Each check of pages rejects the one broken component made for it, and nothing else does."""

from html import escape
from typing import ClassVar

import pytest

from fsf_reports.interfaces import PageWriter
from fsf_reports.values import Gallery, Listing, TableDeclaration, Text
from fsframework.testing import checks_for, parametrize_with_checks
from tests.misdeclared import misdeclared


class Plain(PageWriter):
    """Everything in paragraphs."""

    def __init__(self, *, wide: bool = False):
        self.wide = wide

    def write(self, page):
        parts = "".join(self.part(part) for part in page.parts)
        return (
            f'<!doctype html><html{self.language()} lang="en"><head>'
            f"<title>{escape(page.title)}</title></head><body><main>{parts}</main></body></html>"
        )

    def language(self):
        return ""

    def part(self, part):
        texts = [part.title, part.problem]
        for block in part.blocks:
            texts += self.texts(block)
        return "".join(f"<p>{self.escaped(text)}</p>" for text in texts)

    def escaped(self, text):
        return escape(text)

    def texts(self, block):
        if isinstance(block, Text):
            return [block.title, *block.paragraphs]
        if isinstance(block, Listing):
            return [block.title, block.text]
        if isinstance(block, Gallery):
            return [block.title, *(group.caption for group in block.groups)]
        if isinstance(block, TableDeclaration):
            values = [q.text() for e in block.entries for q in (e.measured, e.printed) if q]
            return [block.name, *values, *(e.reason for e in block.entries), *block.notes]
        return []


class NoPage:
    """It has the methods but not the interface."""

    write, language, part = Plain.write, Plain.language, Plain.part
    escaped, texts = Plain.escaped, Plain.texts


class Positional(Plain):
    """A positional option."""

    def __init__(self, wide: bool = False):
        super().__init__(wide=wide)


class Negated(Plain):
    """An option that is stored as another value."""

    def __init__(self, *, wide: bool = False):
        super().__init__(wide=not wide)


class Silent(Plain):
    pass


class Fragment(Plain):
    """Only a part of a document."""

    def write(self, page):
        return super().write(page).partition("<body>")[2]


class Forgetful(Plain):
    """Notices are left out."""

    def part(self, part):
        return "" if part.problem else super().part(part)


class Linked(Plain):
    """A script from elsewhere."""

    def language(self):
        return ' data="https://example.org/script.js"'


class Raw(Plain):
    """Names become elements."""

    def escaped(self, text):
        return text.replace("&", "&amp;")


class NeedsParts(Plain):
    """Fails without a section."""

    def write(self, page):
        assert page.parts
        return super().write(page)


class Counting(Plain):
    """Pages are numbered."""

    made: ClassVar[list[int]] = []

    def part(self, part):
        self.made.append(1)
        return f"{super().part(part)}<p>{len(self.made)}</p>"


BROKEN = {
    "check_construction": NoPage,
    "check_options_typed": Positional,
    "check_options_stored": Negated,
    "check_summary": Silent,
    **misdeclared(Plain),
    "check_document": Fragment,
    "check_content": Forgetful,
    "check_no_request": Linked,
    "check_any_names": Raw,
    "check_empty": NeedsParts,
    "check_repeatable": Counting,
}


@parametrize_with_checks([Plain])
def test_a_sound_page_passes(make, check):
    check(make)


@pytest.mark.parametrize("name", BROKEN)
def test_only_its_check_rejects(name, failing):
    assert failing(BROKEN[name], "page") == {name}


def test_every_check_has_its_broken_page():
    assert list(BROKEN) == [check.__name__ for check in checks_for("page")]
