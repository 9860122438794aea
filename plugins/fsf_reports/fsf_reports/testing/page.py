"""Checks of what writes a report as one page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from fsf_reports.interfaces import PageWriter, ReportPage, ReportPart
from fsf_reports.testing.toys import toy_figure, toy_runs
from fsf_reports.values import (
    Block,
    Entry,
    Gallery,
    ImageGroup,
    Listing,
    Quantity,
    TableDeclaration,
    TaskBrowser,
    Text,
)
from fsframework.testing import Make, Suite, require

suite = Suite(PageWriter)

_NAMES = ("<script>alert(1)</script>", '"quoted" & $x_1$ {a} #', "שלום 🐕", "long " * 60)
_LOADS = {"src", "href", "srcset", "data", "action", "poster"}


class _Reader(HTMLParser):
    """Collects visible texts, and what a browser would load."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []
        self._within: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag in ("script", "style", "title"):
            self._within.append(tag)
        for name, value in attrs:
            if name in _LOADS and value and not value.startswith(("data:", "#")):
                self.loads.append(value)

    def handle_endtag(self, tag: str) -> None:
        if self._within and self._within[-1] == tag:
            self._within.pop()

    def handle_data(self, data: str) -> None:
        if not self._within:
            self.texts.append(data)


def _read(text: str) -> _Reader:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return reader


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def _page(names: tuple[str, ...] = ("first", "second")) -> ReportPage:
    """Return a page with two blocks of every kind."""
    first, second = names[:2]
    again = _blocks((f"{first} again", f"{second} again"))
    parts = (
        ReportPart("shown", f"Shown {first}", (*_blocks(names), *again)),
        ReportPart("failed", f"Failed {first}", problem=f"Because of {second}"),
    )
    return ReportPage(f"Report on {first}", parts, toy_runs(2, names=names))


def _blocks(names: tuple[str, ...]) -> tuple[Block, ...]:
    first, second = names[:2]
    entries = (
        Entry((first,), second, Quantity.around(50.0, 2.0), printed=Quantity(51.0), mark="best"),
        Entry((second,), second, None, f"no value of {first}"),
    )
    table = TableDeclaration(f"Table of {first}", second, (first,), entries, (f"Note on {second}",))
    return (
        Text((f"Text of {first}",), "lead", f"Title of {first}"),
        table,
        toy_figure("whiskers", names=names),
        Gallery(f"Gallery of {first}", 0, (ImageGroup(f"Group of {second}", (0, 1)),)),
        TaskBrowser((0, 1)),
        Listing(f"Listing of {first}", f"{second}\n{first}", "shell"),
    )


@suite.check()
def check_document(make: Make) -> None:
    """``write`` returns an HTML document with a language, a title and a main part."""
    text = make().write(_page())
    require(isinstance(text, str), f"it must be a text, not {type(text).__name__}")
    require(text.lstrip().lower().startswith("<!doctype html>"), "it must begin with the doctype")
    require(re.search(r"<html[^>]* lang=", text), "the document must state its language")
    require("<title>" in text and "<main" in text, "it must have a title and a main part")


@suite.check(after=[check_document])
def check_content(make: Make) -> None:
    """Every text, name, value, note and notice is in the document."""
    shown = _squeezed(" ".join(_read(make().write(_page())).texts))
    for wanted in (
        "Shown first", "Text of first", "Title of first", "Table of first", "50.00 ± 2.00", "51.00",
        "no value of first", "Note on second", "Gallery of first", "Group of second",
        "Listing of first", "Failed first", "Because of second", "Text of first again",
        "no value of first again", "Note on second again", "Group of second again",
    ):  # fmt: skip
        require(wanted in shown, f"the page does not show {wanted!r}")


@suite.check(after=[check_document])
def check_no_request(make: Make) -> None:
    """The page loads nothing from elsewhere."""
    loads = _read(make().write(_page())).loads
    require(not loads, f"the page loads {', '.join(loads[:3])}")


@suite.check(after=[check_content])
def check_any_names(make: Make) -> None:
    """Names are shown as text, whatever characters they contain."""
    usual = _read(make().write(_page()))
    for name in _NAMES:
        found = _read(make().write(_page((name, f"other {name}"))))
        require(found.tags == usual.tags, f"the name {name[:30]!r} changes the page's markup")
        wanted = _squeezed(f"Text of {name}").strip()
        require(wanted in _squeezed(" ".join(found.texts)), f"the page does not show {name[:30]!r}")


@suite.check(after=[check_document])
def check_empty(make: Make) -> None:
    """A page of unfinished runs, or without sections, is written too."""
    runs = toy_runs(1, finished=False)
    for page in (ReportPage("Nothing", (), runs), ReportPage("", (), runs[:0])):
        require(make().write(page), "it must write a page that has nothing to show")


@suite.check(after=[check_document])
def check_repeatable(make: Make) -> None:
    """The same report gives the same file."""
    used = make()
    first = used.write(_page())
    require(first == used.write(_page()), "a second call writes another file")
    require(first == make().write(_page()), "another instance writes another file")


@suite.answers(after=[check_repeatable])
def _answers(make: Make) -> dict[str, str]:
    return {"the page": make().write(_page())}
