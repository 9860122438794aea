"""Runs, tables, small curves and JSON on the terminal."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from fsframework._tables import text_table

if TYPE_CHECKING:
    from fsframework.api.headlines import Headline
    from fsframework.api.running import Run
    from fsframework.records import ImportedRecord, RunRecord

__all__ = [
    "print_headline",
    "print_json",
    "print_options",
    "print_run",
    "print_table",
    "room_of_line",
    "sparkline",
]

_NO_LIMIT = 100_000


def print_json(value: Any) -> None:
    """Print JSON on standard output, in ASCII where that cannot encode every character."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2)
    print(text)


def print_options(options: Mapping[str, Any], origins: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what an experiment would do: every option with its value and its origin."""
    from fsframework.cli.options import flat_options

    if as_json:
        print_json({"resolved": options, "origins": origins})
    else:
        print_table(("option", "value", "origin"), flat_options(options, origins))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str] = ()
) -> None:
    """Print a plain table; wide cells wrap on a terminal and stay whole in a pipe.

    Args:
        spare: columns that are left out on a narrow terminal, in this order.
    """
    print(text_table(columns, rows, room_of_line(), spare))


def print_headline(headline: Headline) -> None:
    """Print a headline so that it fits the terminal; in a pipe nothing wraps or is cut."""
    print(headline.text(room_of_line()))


def room_of_line() -> int:
    """Return the characters of a line of the terminal; in a pipe there is no limit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _NO_LIMIT


_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Return a curve as one line of blocks, scaled from its least to its greatest value.

    More values than ``width`` are averaged in as many parts.

    >>> sparkline([0.0, 1.0, 2.0, 7.0]), sparkline([3.0, 3.0]), sparkline([1.0, 3.0, 5.0, 7.0], 2)
    ('▁▂▃█', '▁▁', '▁█')
    """
    if len(values) > width:
        edges = [round(i * len(values) / width) for i in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, span = min(values), (max(values) - min(values)) or 1.0
    return "".join(_BLOCKS[round((v - low) / span * (len(_BLOCKS) - 1))] for v in values)


def print_run(run: Run, *, explain: bool) -> None:
    """Print a run: the answer, what ran, of several seeds each run, and its notes.

    Args:
        run: of one model, or of those of several training seeds.
        explain: whether to print every estimate with its interval too.
    """
    from fsframework.api.headlines import headline_of_run
    from fsframework.statistics.measures import DEFAULT_STATISTICS
    from fsframework.values import table_of

    record, several = run.record, bool(run.of_seeds)
    shown: list[str] = []
    notes = run.notes
    if run.estimates:
        headline = headline_of_run(run)
        print_headline(headline)
        click.echo()
        notes = tuple(n for n in notes if not {n, f"note: {n}"} & {*headline.notes})
        shown = [one.name for one in headline.estimates.values()]
    for line in _what(run):
        click.echo(line)
    click.echo()
    statistics = {one.statistic for one in record.estimates.values()}
    if run.estimates and (explain or not statistics <= set(DEFAULT_STATISTICS)):
        labelled = {record.label(e): e for e in run.estimates.values()}
        by = {label: e.query_batch for label, e in labelled.items()}
        print_table(*table_of(labelled, "measure", **{"queries by": by}))
        click.echo()
    elif record.status == "unfinished":
        click.echo("unfinished: run the same command again to resume\n")
    if several:
        names = list(run.estimates) if explain else shown
        rows = [
            (one.name, str(seed), *(str(one.estimates.get(name, "")) for name in names))
            for one, seed in zip(run.runs, run.seeds, strict=True)
        ]
        print_table(("run", "seed", *names), rows, spare=names[:-1])
        click.echo()
    if any(e.query_batch == "class" for e in record.estimates.values()):
        click.echo(
            "queries by class: the method saw the queries of one class at a time, as in FewSTAB's "
            "published evaluation; this changes scores that depend on the other queries"
        )
    for note in notes:
        click.echo(f"note: {note}")
    click.echo(f"runs: {run.folder.parent}" if several else f"run: {run.folder}")


def _what(run: Run) -> Iterator[str]:
    """Yield what ran and how it was trained, in a few lines."""
    from fsframework.api.run_rows import dataset_of, words_of

    record = run.record
    if record.imported is not None:
        yield from _imported(record, record.imported)
        return
    if record.method is None or record.backbone is None:  # a task set
        yield f"{dataset_of(record)}: {_tasks(record)}"
        return
    precision = record.settings.get("precision", "fp32")
    yield (
        f"{record.method.called} with {record.backbone.called} on {dataset_of(record)}: "
        f"{_tasks(record)}" + (f", {precision}" if precision != "fp32" else "")
    )
    if "attributes" in record.digests:
        yield f"words: {words_of(record)}"
    if run.of_seeds:
        yield f"training seeds: {', '.join(map(str, run.seeds))}"
    else:
        yield _training(record)
        yield from _curves(record)


def _tasks(record: RunRecord) -> str:
    """Return sampler with the options that were given, shape and seeds."""
    if (tested := record.tested) is None:
        return "no tasks yet"
    given = [f"{name}={tested.options[name]}" for name in tested.given_options]
    sampler = tested.sampler + (f" ({', '.join(given)})" if given else "")
    seeds = f"seed {tested.seed}"
    if record.training_seed not in (None, tested.seed):
        seeds = f"task seed {tested.seed}, training seed {record.training_seed}"
    queries = "1 query" if tested.n_query == 1 else f"{tested.n_query} queries"
    placebo = " (placebo: images of each class permuted)" * bool(record.settings.get("placebo"))
    of = f" of {file}" if (file := record.given.get("task_file")) else ""
    return f"{sampler} tasks{placebo}{of}, {tested.shape}, {queries} per class, {seeds}"


def _imported(record: RunRecord, imported: ImportedRecord) -> Iterator[str]:
    if record.method is None or record.backbone is None:
        tasks = next(iter(record.arms.values()), None)
        about = f": {tasks.n_tasks:,} tasks, {tasks.name}" if tasks is not None else ""
        yield f"{imported.method}, accuracies measured elsewhere{about}"
        yield f"from {imported.source}"
        return
    yield f"{record.method.called} with {record.backbone.called}, imported: {imported.source}"
    yield (
        f"from {imported.folder}; made for {imported.n_way}-way {imported.n_shot}-shot tasks of "
        f"{record.seen_size} x {record.seen_size} pixels"
    )
    yield "evaluate it: fsf run --model RUN --dataset ..."


def _curves(record: RunRecord) -> Iterator[str]:
    """Yield loss and validation accuracy of each stage as lines of blocks, and the recipe."""
    history = record.training.history
    stages = sorted({row.stage for row in history})
    for stage in stages:
        rows = [row for row in history if row.stage == stage]
        of = f" of stage {stage + 1}" if len(stages) > 1 else ""
        validated = [r.validation_accuracy for r in rows if r.validation_accuracy is not None]
        for name, values, unit in (
            ("loss", [row.loss for row in rows], ""),
            ("validation", [100 * accuracy for accuracy in validated], " %"),
        ):
            if len(values) > 1:
                ends = f"{values[0]:.3g}{unit} to {values[-1]:.3g}{unit}"
                yield f"{name + of:<22} {sparkline(values)}  {ends}"
    if record.training.recipe:
        yield record.training.recipe


def _training(record: RunRecord) -> str:
    history, stages = record.training.history, record.stages
    data = " and ".join(record.data.pretrained_on).replace("unknown", "data that are not stated")
    pretrained = f"weights pretrained on {data}" if data else ""
    if not history:
        sources = [f"weights from {stage.init_from}" for stage in stages if stage.init_from]
        return "; ".join(filter(None, ["nothing was trained", [pretrained, *sources][-1]]))
    start = stages[0].init_from or pretrained or "random weights"
    what = f"backbone and method from {start}"
    if record.training.backbone_is_frozen:
        what = f"method only; the backbone keeps its {start}"
    seconds = sum(row.seconds for row in history)
    best = record.training.best_validation_accuracy
    validation = "" if best is None else f", best validation accuracy {100 * best:.1f} %"
    return (
        f"trained: {what}, {len(history)} {'epoch' if len(history) == 1 else 'epochs'} of "
        f"{stages[0].steps} steps on {record.environment.device} in {seconds:.0f} s{validation}"
    )
