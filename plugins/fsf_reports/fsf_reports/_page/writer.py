"""The writer of pages."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterator
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

import fsframework
from fsf_reports._page._library import figure_library
from fsf_reports._page._pictures import Pictures, images_of_tasks
from fsf_reports._page._tables import html_of_table
from fsf_reports._page._tasks import Packed
from fsf_reports.interfaces import PageWriter, ReportPage, ReportPart
from fsf_reports.values import (
    Block,
    FigureDeclaration,
    Gallery,
    Listing,
    TableDeclaration,
    TaskBrowser,
    Text,
)
from fsframework.errors import FsfError, OptionError, argument

__all__ = ["HtmlPage"]

_MEGABYTE = 1 << 20
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""What no page may contain, and what would steer a terminal that shows the file."""


class HtmlPage(PageWriter):
    """One HTML file with style, script, figures, tasks and images.

    Args:
        image_megabytes: that images may take; those of the tasks with the lowest accuracy come
            first, and the rest are shown by their keys.

    Raises:
        OptionError: the number is negative.
    """

    def __init__(self, *, image_megabytes: float = 4.0) -> None:
        if not image_megabytes >= 0:
            raise OptionError(
                f"{argument('image_megabytes', image_megabytes)}: must not be negative"
            )
        self.image_megabytes = image_megabytes

    def write(self, page: ReportPage) -> str:
        """Return the file."""
        return _Writing(page, int(self.image_megabytes * _MEGABYTE)).page_text()


class _Writing:
    """A page while it is written: what its parts refer to."""

    def __init__(self, page: ReportPage, most_image_bytes: int) -> None:
        self.page = page
        self.packed = Packed()
        self.pictures = Pictures(most_image_bytes)
        self.figures: list[dict[str, Any]] = []
        self.browsed: dict[int, dict[str, Any] | None] = dict.fromkeys(range(len(page.runs)))
        self._count = 0

    def page_text(self) -> str:
        """Return the whole page."""
        runs = self.page.runs
        sections = "\n".join(self._section(part) for part in self.page.parts)
        self._add_task_pictures()
        contents = "\n".join(
            f'<li><a href="#{_identity(part)}" dir="auto">{escape(part.title)}</a></li>'
            for part in self.page.parts
        )
        count = len(runs)
        finished = len(runs.finished)
        under = f"{count} run{'s' * (count != 1)}"
        under += f", {finished} with outcomes" if finished != count else ""
        return Template(_file("page.html")).substitute(
            version=escape(fsframework.__version__),
            title=escape(self.page.title),
            under=escape(under),
            theme=_file("theme.js"),
            css=_file("page.css"),
            contents=contents,
            sections=_CONTROLS.sub("\ufffd", sections),
            payload=_json(self._payload()),
            scripts="\n".join(self._scripts()),
        )

    def _payload(self) -> dict[str, Any]:
        return {
            "figures": self.figures,
            "runs": list(self.browsed.values()),
            "data": self.packed.data,
            "tasks": self.packed.tasks,
            "arrays": self.packed.arrays,
            "pictures": {
                "type": self.pictures.type,
                "ranges": self.pictures.ranges,
                "places": self.pictures.places,
            },
        }

    def _scripts(self) -> Iterator[str]:
        yield f'<script type="text/plain" id="pictures">{self.pictures.text}</script>'
        if self.figures:
            library = base64.b64encode(figure_library()).decode()
            yield f'<script type="text/plain" id="library">{library}</script>'
        yield f"<script>{_inline(_file('page.js'))}</script>"

    def _section(self, part: ReportPart) -> str:
        identity = _identity(part)
        if part.problem:
            body = (
                '<div class="notice"><p dir="auto">This section cannot be shown: '
                f"{escape(part.problem)}</p></div>"
            )
        else:
            body = "\n".join(self._block(block) for block in part.blocks)
        return (
            f'<section id="{identity}" aria-labelledby="{identity}-title">'
            f'<h2 id="{identity}-title" dir="auto">{escape(part.title)}</h2>\n{body}\n</section>'
        )

    def _block(self, block: Block) -> str:
        draws: dict[type, Callable[[Any], str]] = {
            Text: _text,
            Listing: self._listing,
            TableDeclaration: self._table,
            FigureDeclaration: self._figure,
            Gallery: self._gallery,
            TaskBrowser: self._browser,
        }
        return draws[type(block)](block)

    def _next(self, what: str) -> str:
        self._count += 1
        return f"{what}-{self._count}"

    def _table(self, table: TableDeclaration) -> str:
        shown = html_of_table(table, self._next("table"))
        if not table.folded:
            return shown
        return f'<details><summary dir="auto">{escape(table.name)}</summary>{shown}</details>'

    def _figure(self, figure: FigureDeclaration) -> str:
        from fsf_reports._altair import vega_lite

        name = ". ".join(filter(None, (figure.name, figure.title)))
        try:
            # The caption stands above; a title within would be read twice.
            bare = dataclasses.replace(figure, title="", notes=())
            narrow, wide = vega_lite(bare, 1), vega_lite(bare, 2)
        except FsfError as error:
            return f'<div class="notice"><p dir="auto">{escape(f"{name}: {error}")}</p></div>'
        names = [series.name for panel in figure.panels for series in panel.series]
        told = " ".join(filter(None, (figure.title, *figure.notes)))
        self.figures.append({"narrow": narrow, "wide": wide, "series": list(dict.fromkeys(names))})
        return (
            f'<figure class="plot" data-figure="{len(self.figures) - 1}">'
            f'<figcaption dir="auto"><b>{escape(figure.name)}</b> {escape(told)}</figcaption>'
            f'<div class="canvas" role="img" aria-label="{escape(name)}"></div></figure>'
        )

    def _gallery(self, gallery: Gallery) -> str:
        run = self.page.runs[gallery.run]
        if run.data is None:
            return ""
        number = self.packed.data_of(run, words=False)
        groups = []
        for group in gallery.groups:
            self.pictures.add(number, run.data.read, group.images)
            shown = {"data": number, "images": list(group.images), "alt": group.caption}
            groups.append(
                f'<div class="group"><p dir="auto">{escape(group.caption)}</p>'
                f'<ul class="strip" data-strip="{escape(json.dumps(shown))}"></ul></div>'
            )
        return (
            f'<div class="gallery"><p class="title" dir="auto">{escape(gallery.title)}</p>'
            f'<div class="groups">{"".join(groups)}</div></div>'
        )

    def _browser(self, block: TaskBrowser) -> str:
        for number in block.runs:
            if self.browsed[number] is None:
                self.browsed[number] = self.packed.run(self.page.runs[number])
        return f'<div class="tasks" data-browser="{escape(json.dumps(list(block.runs)))}"></div>'

    def _listing(self, block: Listing) -> str:
        text, folder = escape(block.text), self.page.folder
        if block.files and folder is not None:
            text = "\n".join(
                f'<a href="{escape(_address(file, folder))}" download>{line}</a>'
                for file, line in zip(block.files, text.split("\n"), strict=True)
            )
        return (
            f'<div class="listing"><div class="head"><span dir="auto">{escape(block.title)}</span>'
            f'</div><pre tabindex="0" dir="auto"><code>{text}</code></pre></div>'
        )

    def _add_task_pictures(self) -> None:
        runs = [self.page.runs[number] for number, run in self.browsed.items() if run is not None]
        for run, images in images_of_tasks(runs):
            if self.pictures.full:
                return
            assert run.data is not None
            number = self.packed.data_of(run, words=True)
            self.pictures.add(number, run.data.read, images.tolist())


def _text(block: Text) -> str:
    paragraphs = "".join(
        f'<p{" class=lead" if block.weight == "lead" else ""} dir="auto">{escape(text)}</p>'
        for text in block.paragraphs
    )
    title = f'<h3 dir="auto">{escape(block.title)}</h3>' if block.title else ""
    shown = title + paragraphs
    return f'<div class="caution">{shown}</div>' if block.weight == "caution" else shown


def _address(file: Path, folder: Path) -> str:
    """Return the address of a file on a page in a folder: a path that moves with both."""
    return quote(Path(os.path.relpath(file, folder)).as_posix())


def _identity(part: ReportPart) -> str:
    return f"section-{part.name}"


def _file(name: str) -> str:
    return resources.files("fsf_reports._page").joinpath(name).read_text("utf-8")


def _json(value: Any) -> str:
    """Return JSON that cannot end the element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _inline(script: str) -> str:
    """Return a script that cannot end the element it stands in."""
    if "</script" in script.lower() or "<!--" in script:
        return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    return script
