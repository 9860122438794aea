"""Reports: runs, what sections say about them, and the page that shows it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from fsf_reports.interfaces import (
    PageWriter,
    ReportedData,
    ReportedRun,
    ReportedRuns,
    ReportPage,
    ReportPart,
    Section,
)
from fsf_statistics import PathNames, labelled
from fsframework.api.components import component
from fsframework.api.imports import RunRecord
from fsframework.api.run_pixels import RunImages
from fsframework.api.running import Run, Runs, load_run, load_runs, runs
from fsframework.api.session import Session, open_session
from fsframework.errors import (
    DataError,
    FsfError,
    OptionError,
    RecordError,
    argument,
    close_matches,
)
from fsframework.interfaces import checked, contained
from fsframework.statistics.facts import facts_of
from fsframework.statistics.results import MethodResult
from fsframework.values import IntArray, UInt8Array, atomic_write

__all__ = ["Report", "Reportable", "opened_runs", "report"]

Reportable = Run | MethodResult | str | Path
"""What can be reported on: a run, runs over seeds, a folder or name of runs, a run with a label."""

_WRITER = "html"
_HEIGHT = 720


@dataclass(frozen=True, repr=False)
class Report:
    """A report on runs; shows itself in a notebook.

    Args:
        page: what its sections gave.
        writer: of the page.
    """

    page: ReportPage
    writer: PageWriter = field(compare=False)

    @property
    def problems(self) -> Mapping[str, str]:
        """Why a section shows a notice in place of its content, by the section's name."""
        return {part.name: part.problem for part in self.page.parts if part.problem}

    @cached_property
    def html(self) -> str:
        """The page: one file that needs nothing else.

        Raises:
            FsfError: it cannot be written, for example because a package is missing.
        """
        with contained():
            return self.writer.write(self.page)

    def save(self, path: str | Path) -> Path:
        """Write the page, whole or not at all, and return its path.

        Raises:
            OptionError: the file's name does not end in ``.html``.
            FsfError: the file system refuses.
        """
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise OptionError(f"{argument('output', str(path))}: must end in .html")
        with contained():
            content = self.writer.write(dataclasses.replace(self.page, folder=path.parent))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, content)
        except OSError as error:
            raise FsfError(f"{path}: cannot be written ({error.strerror or error})") from error
        return path

    def __repr__(self) -> str:
        parts = ", ".join(part.title for part in self.page.parts)
        return f"<Report on {len(self.page.runs)} runs: {parts}>"

    def _repr_html_(self) -> str:
        """Return the page in a frame, so that neither its style nor its script meets others."""
        return (
            f'<iframe title="{escape(self.page.title)}" sandbox="allow-scripts allow-downloads" '
            f'allow="clipboard-write" style="width:100%;height:{_HEIGHT}px;border:0" '
            f'srcdoc="{escape(self.html)}"></iframe>'
        )


def report(  # noqa: PLR0913 - an option each
    results: Reportable | Iterable[Reportable],
    output: str | Path | None = None,
    *,
    title: str = "",
    sections: Iterable[Any] | None = None,
    writer: Any = _WRITER,
    runs_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
    progress: bool = True,
) -> Report:
    """Report on runs: what was found, tables, figures, tasks, data and how to repeat them.

    Everything is read from the folders of the runs and from the cache; nothing is computed again
    but statistics. What cannot be shown is said in its place.

    Args:
        results: runs, groups of runs over seeds, their folders, names or beginnings of names,
            folders of runs, or results of runs with labels.
        output: file to write, ending in ``.html``; by default none.
        title: of the page; by default the data and methods.
        sections: names of sections, mappings of a name and options, classes or instances; by
            default every installed section.
        writer: of the page: a name, a mapping of a name and options, a class or an instance.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.
        cache_dir: where images and words are cached; by default ``FSF_CACHE``, else the user's
            cache folder.
        plugins: Python files whose plugin classes are loaded too.
        progress: whether progress is shown on standard error.

    Raises:
        OptionError: no run is given, or a section is unknown.
        RecordError: a run does not exist, or its record cannot be read.
        PluginError: no package that writes pages is installed.
    """
    session = open_session(
        runs_dir=runs_dir, cache_dir=cache_dir, plugins=plugins, progress=progress
    )
    chosen = _sections(session.registry, sections)
    made_by: PageWriter = component(session.registry, "page", writer).create()
    opened = list(opened_runs(results, session.workspace.runs, session.reporter.note))
    if not opened:
        raise OptionError("a report needs at least one run, and none is given")
    names = PathNames()
    shown = ReportedRuns(_reported(opened, names, session, plugins))
    parts = []
    with session.reporter.stage("sections", len(chosen)) as advance:
        for name, make in chosen:
            part = names.in_text(_part(name, make, shown))
            if not (part.blocks or part.problem) and sections is not None:
                part = dataclasses.replace(part, problem="there is nothing to show for these runs")
            if part.blocks or part.problem:
                parts.append(part)
            advance(1)
    made = Report(ReportPage(title or _title(shown), tuple(parts), shown), made_by)
    if output is not None:
        made.save(output)
    return made


def _sections(
    registry: Any, requests: Iterable[Any] | None
) -> list[tuple[str, Callable[[], Section]]]:
    """Return names and makers of sections, in the order of the page."""
    if requests is None:
        names = registry.names("section")
        return sorted(
            ((name, _maker(registry, name)) for name in names),
            key=lambda pair: (_place(pair[1]), pair[0]),
        )
    known = registry.names("section")
    found = []
    for request in [requests] if isinstance(requests, str) else requests:
        if isinstance(request, str) and request not in known:
            near = close_matches(request, known)
            raise OptionError(f"{argument('sections', request)}: no such section{near}")
        chosen = component(registry, "section", request)
        found.append((chosen.name, chosen.create))
    return found


def _maker(registry: Any, name: str) -> Callable[[], Section]:
    def make() -> Section:
        made: Section = component(registry, "section", name).create()
        return made

    return make


def _place(make: Callable[[], Section]) -> int:
    try:
        with contained():
            return make().place
    except FsfError:
        return Section.place  # its notice stands where it would have been


def _part(name: str, make: Callable[[], Section], shown: ReportedRuns) -> ReportPart:
    """Return what a section gives; its failure is not that of the report."""
    title = name
    try:
        with contained():
            section = make()
            title = section.title or name
            blocks = checked(section, "blocks", section.blocks(shown), Iterable)
            return ReportPart(name, title, tuple(blocks))
    except FsfError as error:
        return ReportPart(name, title, problem=str(error))


def opened_runs(
    given: Reportable | Iterable[Reportable],
    runs_dir: Path,
    note: Callable[[str], object] = lambda _: None,
) -> Iterator[Run]:
    """Yield the runs of a request, each once; ``note`` is told of those that cannot be read."""
    if isinstance(given, (Run, MethodResult, str, Path)):
        given = [given]
    seen = set()
    for one in given:
        found = _runs_of(one, runs_dir)
        for reason in found.broken.values() if isinstance(found, Runs) else ():
            note(f"left out: {reason}")
        for run in found:
            if run.folder not in seen:
                seen.add(run.folder)
                yield run


def _runs_of(one: Reportable, runs_dir: Path) -> Iterable[Run]:
    if isinstance(one, Run):
        return one.runs
    if isinstance(one, MethodResult):
        return [_labelled(one)]
    path = Path(one)
    if str(one) and path.is_dir() and not (path / "run.json").exists():
        found = runs(path)
        if not found and not found.broken:
            raise RecordError(f"{path}: holds no runs")
        return found
    return load_runs(one, runs_dir)


def _labelled(result: MethodResult) -> Run:
    """Return the run of a result, called by its label."""
    if result.source is None:
        raise DataError(f"{result.label}: this needs a run, and these are only its answers")
    run = load_run(result.source)
    return dataclasses.replace(run, record=dataclasses.replace(run.record, name=result.label))


def _reported(
    opened: Sequence[Run],
    names: PathNames,
    session: Session,
    plugins: Sequence[str | Path],
) -> Iterator[ReportedRun]:
    """Yield runs as sections see them; equal data are opened once."""
    records = [names.in_record(run.record) for run in opened]
    facts = [
        {**facts_of(record), "run": run.name, "folder": names.name(str(run.folder))}
        for record, run in zip(records, opened, strict=True)
    ]
    labels, short = _labels(opened, facts), _labels_in_sets(opened, facts)
    known: dict[tuple[str, ...], ReportedData] = {}
    with session.reporter.stage("runs", len(opened)) as advance:
        for number, run in enumerate(opened):
            record = records[number]
            made = ReportedRun(
                label=labels[number],
                short=short[number],
                folder=run.folder,
                record=record.to_json(),
                estimates=dict(run.estimates),
                measures={name: record.label(e) for name, e in run.estimates.items()},
            )
            made = _with_outcomes(made, run)
            made = dataclasses.replace(made, reason=names.in_text(made.reason))
            if made.arms is not None:
                first = next(iter(made.arms.values()))
                key = (first.key_digest, str(record.digests.get("attributes")))
                if key not in known:
                    found = _data(run, record, first.key_digest, plugins)
                    known[key] = dataclasses.replace(found, reason=names.in_text(found.reason))
                made = dataclasses.replace(made, data=known[key])
            advance(1)
            yield made


def _with_outcomes(made: ReportedRun, run: Run) -> ReportedRun:
    if run.record.status == "unfinished":
        return dataclasses.replace(made, reason="not finished")
    if not run.record.arms:
        return dataclasses.replace(made, reason="imported, and nothing was evaluated")
    if run.record.method is None:
        return dataclasses.replace(
            made, reason="accuracies measured elsewhere, without predictions"
        )
    try:
        outcomes = run.outcomes
    except FsfError as error:
        return dataclasses.replace(made, reason=str(error))
    return dataclasses.replace(made, arms=outcomes.arms, outcomes=outcomes)


def _data(run: Run, record: RunRecord, digest: str, plugins: Sequence[str | Path]) -> ReportedData:
    """Return the images that a run was tested on, as far as they can be opened.

    Args:
        record: of the run, as it is shown.
    """
    dataset = record.components["dataset"]
    found = ReportedData(
        name=dataset.added_as or dataset.called,
        split=str(run.record.settings.get("split") or "test"),
        key_digest=digest,
    )
    try:
        found = dataclasses.replace(found, pool=run.pool)
        images = RunImages(run, plugins)
    except (FsfError, OSError) as error:
        return dataclasses.replace(found, reason=str(error))
    about = images.dataset.about
    citation = "" if about is None else about.citation
    return dataclasses.replace(found, citation=citation, read=_reader(images))


def _reader(images: RunImages) -> Callable[[IntArray], Mapping[int, UInt8Array]]:
    return images.read


def _labels(opened: Sequence[Run], facts: Sequence[Mapping[str, str]]) -> list[str]:
    """Return short labels that tell the runs apart: the method, and in what its runs differ."""
    return labelled([_name(run) for run in opened], facts)


def _labels_in_sets(opened: Sequence[Run], facts: Sequence[Mapping[str, str]]) -> list[str]:
    """Return labels that tell each finished run from the others on the same tasks."""
    sets: dict[tuple[Any, ...], list[int]] = {}
    for number, run in enumerate(opened):
        tasks: tuple[Any, ...] = tuple((name, arm.digest) for name, arm in run.record.arms.items())
        tasks = (number,) if run.record.status == "unfinished" else tasks
        sets.setdefault(tasks, []).append(number)
    found = [""] * len(opened)
    for numbers in sets.values():
        labels = _labels([opened[n] for n in numbers], [facts[n] for n in numbers])
        for number, label in zip(numbers, labels, strict=True):
            found[number] = label
    return found


def _name(run: Run) -> str:
    record = run.record
    imported = record.imported.method if record.imported is not None else None
    named = imported if record.method is None else record.method.name
    return record.name or named or run.name


def _called(run: ReportedRun) -> str:
    method = run.record["components"].get("method")
    return str(run.record["name"] or (method["name"] if method else run.label))


def _title(shown: ReportedRuns) -> str:
    methods = list(dict.fromkeys(_called(run) for run in shown))
    data = list(dict.fromkeys(run.data.name for run in shown if run.data is not None))
    some = ", ".join(methods[:3]) + (f" and {len(methods) - 3} more" if len(methods) > 3 else "")
    return f"{some} on {', '.join(data)}" if data else some
