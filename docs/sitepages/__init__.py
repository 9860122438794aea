"""The pages of the site: those of ``docs/``, some of the repository's, and the generated ones."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from fsf_tools.new_plugin import template_of
from sitepages import catalogue, commands, options, python, tutorials

__all__ = ["SHOWN", "rewritten", "write_pages", "written"]

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent

SHOWN: Mapping[str, str] = {
    "CONTRIBUTING.md": "extend/contributing.md",
    "CHANGELOG.md": "reference/changelog.md",
    "benchmarks/README.md": "results/scripts.md",
    **{
        str(readme.relative_to(ROOT)): f"catalogue/packages/{readme.parent.name}.md"
        for readme in sorted(ROOT.glob("plugins/*/README.md"))
    },
}
"""Pages of the site by the file of the repository, for files outside ``docs/``."""

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")
_TEMPLATE = re.compile(r"^```\{template\} (\w+)$", re.MULTILINE)
_FENCE = re.compile(r"^(```+).*?^\1", re.MULTILINE | re.DOTALL)


def written() -> dict[str, str]:
    """Return the text of each page that was written by hand, by its path in the site."""
    found = {}
    for path in sorted(DOCS.rglob("*.md")):
        found[str(path.relative_to(DOCS))] = rewritten(path)
    for name, page in SHOWN.items():
        found[page] = rewritten(ROOT / name)
    return found


def generated() -> dict[str, str]:
    """Return the text of each page that is made from code, by its path in the site."""
    parts = (catalogue.pages(), commands.pages(), python.pages(), tutorials.pages())
    pages = {"reference/options.md": options.page()}
    for part in parts:
        pages.update(part)
    return pages


def rewritten(path: Path) -> str:
    """Return the text of a page, with its links to other files of the repository as in the site."""
    place = page_of(path)
    assert place is not None, path

    def link(match: re.Match[str]) -> str:
        label, name, anchor = match.groups()
        target = Path(os.path.normpath(path.parent / name))
        page = page_of(target)
        if page is None:  # a file that the site does not show, such as a list of words
            return label if target.exists() else match[0]
        return f"[{label}]({os.path.relpath(page, Path(place).parent)}{anchor or ''})"

    text, parts, end = with_templates(path.read_text(encoding="utf-8")), [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(link, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(link, text[end:])])


def with_templates(text: str) -> str:
    """Return a page with the code of new plugins, which it names as ``{template} KIND``."""

    def shown(found: re.Match[str]) -> str:
        written = "This is what `fsf plugins new` writes; around it is a package with tests."
        return f"{written}\n\n```python\n{template_of(found[1]).rstrip()}"

    return _TEMPLATE.sub(shown, text)


def page_of(path: Path) -> str | None:
    """Return the path in the site of a file of the repository, ``None`` if it is not shown."""
    if path.is_relative_to(DOCS):
        return str(path.relative_to(DOCS))
    name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""
    return SHOWN.get(name) or SHOWN.get(f"{name}/README.md")


def write_pages(folder: Path) -> None:
    """Write every page, and the images, to a folder for Sphinx."""
    skipped = shutil.ignore_patterns("sitepages", "conf.py", "*.md", "build", "requirements.txt")
    shutil.copytree(DOCS, folder, ignore=skipped)
    for name, text in {**generated(), **written()}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # An interval stays on one line.
        path.write_text(text.replace(" ± ", "\u00a0±\u00a0"), encoding="utf-8")
