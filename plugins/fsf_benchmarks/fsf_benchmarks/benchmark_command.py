"""`fsf benchmark`: published experiments and those of other packages."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import fsf_reports
from fsf_benchmarks.interfaces import AXES
from fsframework.cli.options import (
    CONFIGURATION,
    DROPPING,
    check_output,
    command,
    plugin_names,
    run_names,
    session_of,
    shared,
    tree_of,
)

if TYPE_CHECKING:
    from fsf_benchmarks._running import FinishedBenchmark, Job
    from fsf_benchmarks.interfaces import ExperimentResult

__all__ = ["benchmark"]

_WHOLE = ".json"
"""The suffix of files that hold everything."""


@command(epilog="Options left out come from --config, then from the benchmark.")
@click.argument(
    "benchmark_name", metavar="[NAME]", required=False, shell_complete=plugin_names("benchmark")
)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    metavar="[LABEL=]NAME[:ARG]",
    envvar="FSF_DATASET",
    show_envvar=True,
    shell_complete=plugin_names("dataset"),
    help="Data set; repeatable. With a label of the paper, as in CUB-200=folder:./birds, the "
    "tables also show its printed values.",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    envvar="FSF_METHOD",
    show_envvar=True,
    shell_complete=plugin_names("method"),
    help="Few-shot method; repeatable.  [default: the paper's methods that are installed]",
)
@click.option(
    "--backbone",
    "backbones",
    multiple=True,
    metavar="NAME[:ARG]",
    envvar="FSF_BACKBONE",
    show_envvar=True,
    shell_complete=plugin_names("backbone"),
    help="Feature extractor; repeatable.  [default: the paper's]",
)
@click.option(
    "--shot",
    "shots",
    multiple=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="Support images per class; repeatable.  [default: the paper's]",
)
@click.option(
    "--detector",
    "detectors",
    multiple=True,
    metavar="NAME[:ARG]",
    envvar="FSF_DETECTOR",
    show_envvar=True,
    shell_complete=plugin_names("detector"),
    help="Detects the words in the images; repeatable.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="[LABEL=]RUN",
    shell_complete=run_names,
    help="Run whose backbone and weights are used without training; repeatable.",
)
@shared("sampler", "way", "queries", "tasks", "split", "attributes", "device")
@shared("seed", "task-seed", "training-seed", "seeds")
@shared("query-batch", "recipe", *DROPPING, "offline")
@shared("launcher", "workers", *CONFIGURATION, "runs-dir", "cache-dir")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the tables: .md, .tex, .html or .csv (one row per value), which need "
    "fsf-reports, or .json (everything).",
)
@click.option(
    "--figure",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also draw the benchmark's figure: .pdf, .svg or .png. Of several, each is a file with "
    "the figure's name added, such as FILE-figure-4.pdf.",
)
@shared("force", "dry-run", "json")
@click.pass_context
def benchmark(  # noqa: PLR0913 - a parameter per option
    context: click.Context,
    /,
    benchmark_name: str | None,
    models: tuple[str, ...],
    config: Path | None,
    output: Path | None,
    figure: Path | None,
    force: bool,
    dry_run: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Run a benchmark: its experiments, then its tables and figures.

    \b
    Every experiment is a run, as fsf run makes it. Finished runs are reused; after
    an interruption, the same command continues. A failed experiment shows its
    reason in place of its values, and the exit code is 1. Set options of the
    benchmark with -o benchmark.KEY=VALUE (fsf plugins show NAME lists them), and
    options of all experiments as for fsf run. With --dry-run, list the experiments
    and which are finished. Without NAME, list the benchmarks.

    \b
    Examples:
      fsf benchmark fewstab --tasks 200
      fsf benchmark fewstab --dataset miniImageNet=folder:./mini --output tables.md
      fsf benchmark fewstab --shot 5 -o benchmark.ablation=true
      fsf benchmark fewstab -o benchmark.training_shots=true --figure shots.png
      fsf benchmark contexts --dataset folder:./images -o benchmark.column=place
      fsf benchmark metacoco -o benchmark.only=2 --method protonet --dry-run
      fsf benchmark open-intervals --dataset CUB=folder:./birds --model DINO=runs/dino
    """
    from fsf_benchmarks._running import make_job
    from fsf_reports import check_figure, check_tables
    from fsframework.api.experiments import ALLOWANCES, tree_of_call

    session, name = session_of(context), benchmark_name
    if name is None:
        _list_benchmarks(session.registry.plugins("benchmark"), as_json)
        return
    if output is not None:
        check_output(output, force=force)
        if output.suffix.lower() != _WHOLE:
            check_tables(output)
    if figure is not None:
        check_output(figure, force=force)
        check_figure(figure)
    asked = {axis: chosen.get(f"{axis}s", ()) for axis in AXES}
    asked["model"] = _folders(models, session.workspace.runs)
    tree = tree_of(context, config=False)
    files = context.params["plugin_files"]
    below = tree_of_call({name: context.params[name] for name in ALLOWANCES}, config)
    job = make_job(name, session, tree, below, asked, files, context.params["seeds"])
    if dry_run:
        _print_listed(job, as_json)
        return
    found = job.run()
    _conclude(found, output, figure, as_json, force=force)
    if any(not result.finished for result in found.results):
        context.exit(1)


def _list_benchmarks(plugins: Sequence[Any], as_json: bool) -> None:
    from fsframework.cli import render

    rows = [(p.name, f"{p.distribution} {p.version}", p.status) for p in plugins]
    if as_json:
        keys = ("benchmark", "distribution", "status")
        render.print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    render.print_table(("benchmark", "from", "status"), rows)
    click.echo()
    click.echo("fsf plugins show NAME shows what a benchmark measures and its options.")


def _folders(models: Sequence[str], runs_dir: Path) -> tuple[str, ...]:
    """Return the folders of runs, which are given as folders or beginnings of names."""
    from fsf_benchmarks._asked import labelled
    from fsframework.api.running import load_run

    found = []
    for text in models:
        model = labelled(text)
        folder = load_run(model.value, runs_dir).folder
        found.append(f"{model.label}={folder}" if model.label else str(folder))
    return tuple(found)


def _conclude(
    found: FinishedBenchmark,
    output: Path | None,
    figure: Path | None,
    as_json: bool,
    *,
    force: bool,
) -> None:
    """Write and print the results of a benchmark."""
    from fsframework.cli import render

    if output is not None:
        _write(found, output)
    if as_json:
        render.print_json(found.to_json())
    else:
        if found.headline.sentences:
            render.print_headline(found.headline)
            click.echo()
        for table in found.tables:
            fsf_reports.print_table(table)
            click.echo()
        _print_summary(found.results)
    if figure is not None:
        _draw(found, figure, force=force)


def _draw(found: FinishedBenchmark, path: Path, *, force: bool) -> None:
    """Draw the figures, each of several into a file with its name added."""
    from fsframework.errors import OptionError

    if not found.figures:
        raise OptionError(f"--figure {path}: the benchmark {found.name} has no figures")
    paths = [path]
    if len(found.figures) > 1:
        names = (re.sub(r"[^a-z0-9]+", "-", one.name.lower()) for one in found.figures)
        paths = [path.with_stem(f"{path.stem}-{name}") for name in names]
        for one in paths:
            check_output(one, force=force)
    for declared, one in zip(found.figures, paths, strict=True):
        fsf_reports.save_figure(declared, one, columns=2)


def _write(found: FinishedBenchmark, output: Path) -> None:
    """Write the tables in the format of the file's suffix, or everything as JSON."""
    from fsframework.values import atomic_write

    if output.suffix.lower() != _WHOLE:
        fsf_reports.save_tables(found.tables, output)
        return
    atomic_write(output, json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n")


def _print_listed(job: Job, as_json: bool) -> None:
    from fsframework.cli import render

    listed = job.listed()
    reasons = [one.reason for one in listed] or [job.hindrance()]
    if as_json:
        rows = [
            {
                "experiment": one.experiment.name,
                "run": None if one.run is None else str(one.run.folder),
                "reason": one.reason,
            }
            for one in listed
        ]
        found = {"benchmark": job.name, "experiments": rows}
        render.print_json(found if rows else {**found, "reason": reasons[0]})
        return
    cells = []
    for number, one in enumerate(listed, start=1):
        tasks, batch, state = "–", "–", "cannot run, see below"
        if one.resolved is not None:
            count = one.resolved.options["tasks"]
            tasks = "all" if count is None else f"{count:,}"
            batch = one.resolved.options["query_batch"]
            state = "to do" if one.run is None else f"finished: {one.run.name}"
        cells.append((str(number), one.experiment.name, tasks, batch, state))
    heads = ("", "experiment", "tasks", "queries by", "state")
    render.print_table(heads, cells, spare=("queries by", "tasks", ""))
    click.echo()
    done = sum(one.run is not None for one in listed)
    click.echo(f"{_counted(len(listed))}, {done} of them finished")
    for reason in dict.fromkeys(filter(None, reasons)):
        click.echo(f"note: {reason}")


def _counted(number: int) -> str:
    return f"{number} {'experiment' if number == 1 else 'experiments'}"


def _print_summary(results: Sequence[ExperimentResult]) -> None:
    """Print the notes of the runs, each once, and the number of experiments in each state."""
    named: dict[str, list[str]] = {}
    for result in results:
        for note in result.notes:
            if note not in result.cautions:  # cautions are below the tables
                named.setdefault(note, []).append(result.description.name)
    for note, (first, *others) in named.items():
        more = f" and {len(others)} more" if others else ""
        click.echo(f"note ({first}{more}): {note}")
    failed = sum(not result.finished for result in results)
    before = sum(result.reused for result in results)
    now = len(results) - failed - before
    if results:
        click.echo(
            f"{_counted(len(results))}: {now} run now, {before} finished before, {failed} failed"
        )
