"""How to add a run to a folder of results, and where the outcomes are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from fsf_reports.interfaces import ReportedRuns, Section
from fsf_reports.values import Block, Listing, Text
from fsframework.values import read_file

__all__ = ["Submission"]

_FILE, _MOST_BYTES = "SUBMIT.md", 1 << 20


class Submission(Section):
    """Text of ``SUBMIT.md`` beside the runs, which ``fsf results add`` begins, and their files."""

    title: ClassVar[str] = "How to submit"
    place: ClassVar[int] = 920

    def blocks(self, runs: ReportedRuns) -> Iterator[Block]:
        """Return the text and the files of outcomes; nothing where the runs are no collection."""
        folders = {run.folder.parent for run in runs}
        file = next(iter(folders)) / _FILE
        if len(folders) > 1 or not file.is_file() or file.is_symlink():
            return
        try:
            text = read_file(file, _MOST_BYTES).decode("utf-8", "replace")
        except OSError as error:
            yield Text((f"{_FILE}: {error.strerror}",))
            return
        for part in text.split("\n\n"):
            if part.startswith("    "):
                yield Listing("", "\n".join(line.strip() for line in part.splitlines()), "shell")
            elif part.strip():
                yield Text((part.strip("# \n"),))
        yield Text(
            (
                "Predictions of every query, as Parquet files beside this page's runs "
                "(fsframework.load_run(FOLDER).outcomes reads and checks them):",
            ),
            title="Outcomes",
        )
        files = [
            run.folder / f"outcomes-{arm}.parquet"
            for run in runs.finished
            for arm in run.arms or ()
        ]
        listed = "\n".join(f"{file.parent.name}/{file.name}" for file in files)
        yield Listing("Files", listed, files=tuple(files))
