"""A page writer, which makes a file of the parts of a report.

Try it: fsf report runs --writer my-page
"""

from collections.abc import Iterator
from html import escape

from fsf_reports.interfaces import PageWriter, ReportPage, ReportPart
from fsf_reports.values import Gallery, Listing, TableDeclaration, Text


class MyPage(PageWriter):
    """Texts and numbers, without figures, images or scripts."""

    def write(self, page: ReportPage) -> str:
        """Return the file. All that a report contains is text: names may hold ``<script>``."""
        lines = [text for part in page.parts for text in texts(part)]
        body = "".join(f"<p>{escape(text)}</p>" for text in lines if text)
        title = f"<title>{escape(page.title)}</title>"
        return f'<!doctype html><html lang="en"><head>{title}</head><main>{body}</main></html>'


def texts(part: ReportPart) -> Iterator[str]:
    """Yield what a part says; add the kinds of blocks that you show."""
    yield from (part.title, part.problem)
    for block in part.blocks:
        if isinstance(block, Text):
            yield from (block.title, *block.paragraphs)
        elif isinstance(block, Listing):
            yield from (block.title, block.text)
        elif isinstance(block, Gallery):
            yield from (block.title, *(group.caption for group in block.groups))
        elif isinstance(block, TableDeclaration):
            for entry in block.entries:
                numbers = [q.text() for q in (entry.measured, entry.printed) if q]
                yield " ".join([block.name, *entry.row, entry.column, *numbers, entry.reason])
            yield from block.notes
