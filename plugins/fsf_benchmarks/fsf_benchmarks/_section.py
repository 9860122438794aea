"""Printed values beside measured ones, where a publication has the same cell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import fsframework as fsf
from fsf_benchmarks._beside import printed_of_runs
from fsf_benchmarks.interfaces import PrintedValue
from fsf_reports.interfaces import ReportedRun, ReportedRuns, Section
from fsf_reports.values import Block, Entry, Quantity, TableDeclaration, Text
from fsframework.errors import RecordError

__all__ = ["PrintedValues"]


class PrintedValues(Section):
    """What publications print for the same method, data and tasks, of every installed benchmark."""

    title: ClassVar[str] = "Printed values"
    place: ClassVar[int] = 700

    def blocks(self, runs: ReportedRuns) -> Iterator[Block]:
        """Return a table per publication, of the runs for which it prints something."""
        entries = dict[str, list[Entry]]()
        notes = dict[str, dict[str, None]]()
        for run, values in _printed(runs):
            for value in values:
                entries.setdefault(value.source, []).append(_entry(run, value))
                if value.apart:
                    said = f"{run.label}, {value.table}: {value.apart}"
                    notes.setdefault(value.source, {})[said] = None
        if entries:
            yield Text(
                (
                    "A difference may come from the training, the data or the tasks: only the "
                    "method, the data set and the shape of the tasks are the same.",
                )
            )
        for source, own in entries.items():
            yield TableDeclaration(
                source,
                "Printed values beside those measured here.",
                ("method", "table"),
                tuple(own),
                tuple(notes.get(source, ())),
                source=source,
            )


def _printed(runs: ReportedRuns) -> Iterator[tuple[ReportedRun, tuple[PrintedValue, ...]]]:
    """Yield each finished run whose record can be read with its printed values."""
    opened = []
    for run in runs.finished:
        try:
            opened.append((run, fsf.load_run(run.folder)))
        except RecordError:
            continue
    shown = [run for run, _ in opened]
    yield from zip(shown, printed_of_runs(one for _, one in opened), strict=True)


def _entry(run: ReportedRun, value: PrintedValue) -> Entry:
    measured = Quantity.of(run.estimates[value.measure])
    about = {"run": run.folder.name, **value.to_json()}
    row = (run.label, value.table)
    return Entry(row, run.measures[value.measure], measured, printed=value.value, about=about)
