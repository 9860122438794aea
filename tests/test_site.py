"""The site: its pages refer to each other, none is forgotten, and Sphinx builds them."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

import click
import pytest

from fsframework.api.components import Registry
from fsframework.cli.groups import InstalledEntry
from fsframework.cli.main import cli

ROOT = Path(__file__).parents[1]
PICTURES = (".png", ".svg")
FENCE = re.compile(r"^(```+|:::+)(.*?)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
HEADING = re.compile("^#+ (.+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def pages() -> Iterator[dict[str, str]]:
    """The text of every page of the site, written and generated, by its path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        import sitepages

        written, made = sitepages.written(), sitepages.generated()
        assert not set(written) & set(made)
        yield {**written, **made}


def test_links_lead_somewhere(pages: dict[str, str]) -> None:
    docs = ROOT / "docs"
    images = {str(path.relative_to(docs)) for path in docs.rglob("*") if path.suffix in PICTURES}
    lost = [
        (name, target)
        for name, text in pages.items()
        for target in re.findall(r"\]\((?!\w+:)([^)#\s]+)[)#]", FENCE.sub("", text))
        if beside(name, target) not in pages.keys() | images
    ]
    assert lost == []


def test_links_name_headings_that_exist(pages: dict[str, str]) -> None:
    headings = {name: set(map(anchor, HEADING.findall(text))) for name, text in pages.items()}
    lost = [
        (name, target, heading)
        for name, text in pages.items()
        for target, heading in re.findall(r"\]\((?!\w+:)([^)#\s]*)#([^)\s]+)\)", text)
        if heading not in headings[beside(name, target) if target else name]
    ]
    assert lost == []


def test_every_page_is_in_one_list(pages: dict[str, str]) -> None:
    listed = [
        beside(name, line.removesuffix(".md") + ".md")
        for name, text in pages.items()
        for _, kind, body in FENCE.findall(text)
        for line in body.splitlines()
        if kind == "{toctree}" and line and not line.startswith(":")
    ]
    assert sorted(listed) == sorted(pages.keys() - {"index.md"})


def test_every_page_has_a_title(pages: dict[str, str]) -> None:
    assert [name for name, text in pages.items() if not re.search("^# .", text, re.MULTILINE)] == []


def test_every_plugin_has_a_page_and_every_kind_is_explained(pages: dict[str, str]) -> None:
    registry = Registry()
    for plugin in registry.plugins():
        if plugin.kind != "command" and plugin.distribution.startswith("fsf-"):
            assert f"catalogue/{plugin.kind}s/{plugin.name}.md" in pages
    for kind in registry.kinds:
        assert f"{{rules}} {kind}" in pages[f"extend/{kind}.md"]


def test_every_command_has_a_call_whose_types_are_stated(pages: dict[str, str]) -> None:
    from sitepages import calls

    def names(command: click.Command, words: tuple[str, ...]) -> Iterator[str]:
        command = command.load() if isinstance(command, InstalledEntry) else command
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield " ".join(words)
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                below = command.get_command(click.Context(command), name)
                assert below is not None
                yield from names(below, (*words, name))

    assert {*calls.CALLS, *calls.NOT_CALLS} == set(names(cli, ()))
    for name in {name for found in calls.CALLS.values() for name in found}:
        assert f"`{name}`" in pages["reference/python/commands.md"]
        call = inspect.unwrap(calls.public(name))
        arguments = [name for name in inspect.signature(call).parameters if name != "self"]
        assert {*arguments, "return"} <= set(inspect.get_annotations(call)), name


def test_printed_and_reached_values_are_on_the_page_of_a_method(pages: dict[str, str]) -> None:
    page = pages["catalogue/methods/protonet.md"]
    assert "| 57.60 ± 0.38 | 21.96 ± 0.58 | 14.03 ± 0.49 |" in page  # FewSTAB, Tables S7 and 3
    assert "](../../results/methods.md)" in page


@pytest.mark.slow
@pytest.mark.skipif(find_spec("sphinx") is None, reason="needs docs/requirements.txt")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "docs" / "build"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Prototypical Networks" in (tmp_path / "catalogue/methods/protonet.html").read_text()


def anchor(heading: str) -> str:
    """Return what the address of a heading ends with, as GitHub and MyST make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


def beside(page: str, target: str) -> str:
    """Return the path in the site of what a page refers to."""
    parts: list[str] = []
    for part in (PurePosixPath(page).parent / target).parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)
