"""`fsf data check`: find problems in data before they are used."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fsframework.api.experiments import ALLOWANCES
from fsframework.cli.options import CONFIGURATION, command, option_of, session_of, shared, tree_of
from fsframework.errors import FsfError

if TYPE_CHECKING:
    from fsf_tools.data.checking import DataReport, WordsReport
    from fsframework.api.components import Component
    from fsframework.api.session import Session

__all__ = ["check"]

_WORDLESS = {"sampler": "random"}
"""The arguments for images whose words do not allow biased tasks."""


@command("check")
@shared("dataset", "attributes", "detector", "method", "backbone")
@click.option("--skip-images", is_flag=True, help="Do not open the images.")
@shared(*CONFIGURATION, "cache-dir", "json")
@click.pass_context
def check(
    context: click.Context,
    /,
    skip_images: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Find problems in a data set and show which tasks it allows.

    Counts classes and images and looks for unreadable images, files of images in other
    formats, equal images, empty classes, keys that appear twice and classes in two
    splits. With --attributes, compares the keys of the
    words with those of the images. Prints the command that works on the data, with
    a pretrained network if weights are installed and a detector where there are no
    words, and the tasks that it draws. Exit code 1 if there is a problem.

    \b
    Examples:
      fsf data check --dataset folder:./images
      fsf data check --dataset folder:./images --attributes words.csv
      fsf data check --dataset birds --skip-images
    """
    import fsframework as fsf
    from fsf_tools.data._printing import words_of_pixels
    from fsf_tools.data.checking import check_dataset, check_words
    from fsframework.api.experiments import resolved
    from fsframework.cli import render

    session = session_of(context)
    tree = tree_of(context)
    experiment = resolved(tree, session)
    dataset = experiment.dataset.create()
    opened = dataclasses.replace(experiment.dataset, instance=dataset)
    if skip_images:
        report = check_dataset(dataset)
    else:
        with session.reporter.stage("opening images", len(dataset.keys)) as advance:
            report = check_dataset(dataset, advance)
    source, words, reading = experiment.options["attributes"], None, None
    if source is not None and not str(source).startswith("column:"):
        table = fsf.attributes(str(source))
        words, reading = check_words(dataset, table), table.provenance.get("reading")
    needed: dict[str, Any] = {"broken": "skip"} if report.unreadable else {}
    wordless = source is None and "words" not in dataset.metadata
    wordless = wordless and not {"sampler", "detector"} & {*tree}
    detected = words_of_pixels(session.registry) if wordless and not skip_images else {}
    usual = [] if wordless and not detected else [detected]
    advice = _advice(tree, session, [{**words, **needed} for words in (*usual, _WORDLESS)], opened)
    usage = None if advice.works is None else _command(context, advice.works)
    notes = [*report.notes, *advice.notes, *_hints(opened, detected, wordless=wordless)]
    notes = [f"{source}: {reading}", *notes] if reading else notes
    problems = (*report.problems, *([advice.limit] if usage is None else []))
    if as_json:
        notes = [*([advice.limit] if usage and advice.limit else []), *notes]
        found = {**report.to_json(), "problems": list(problems), "notes": notes}
        found["tasks"] = advice.tasks or None
        told = None if words is None else words.to_json()
        render.print_json({**found, "words": told, "usage": usage})
        context.exit(1 if problems else 0)
    _print_report(report, words)
    for problem in problems:
        click.echo(f"problem: {problem}")
    if not problems:
        click.echo(advice.limit or "no problem found")
    if usage is not None:
        click.echo(advice.tasks)
    for note in notes:
        click.echo(f"note: {note}")
    if usage is not None:
        click.echo(f"use it: {usage}")
    if problems:
        context.exit(1)


@dataclass(frozen=True)
class _Advice:
    """How to measure on data.

    Args:
        works: arguments needed in addition to those given; ``None`` if nothing works.
        tasks: those that a run with these arguments draws.
        notes: what a reader of the numbers must know.
        limit: why the arguments that ask for more do not work; empty if they do.
    """

    works: Mapping[str, Any] | None
    tasks: str = ""
    notes: tuple[str, ...] = ()
    limit: str = ""


_UNTRAINED = "training.epochs"


def _simpler(
    tree: Mapping[str, Any], session: Session, words: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield arguments that ask ever less of the data, the best first.

    Args:
        words: arguments on the words and the sampler.
    """
    pretrained = {} if {"method", "backbone", "model"} & {*tree} else _pretrained(session)
    models = [*([pretrained] if pretrained else []), {}, {_UNTRAINED: 0}]
    for sampler, model, shot in itertools.product(words, models, ({}, {"shot": 1})):
        yield {**sampler, **model, **shot}


def _pretrained(session: Session) -> dict[str, Any]:
    """Return the arguments of a network whose weights are installed; empty if there is none."""
    for name in session.registry.names("backbone"):
        with suppress(FsfError):
            for model in session.registry.load("backbone", name).installed():
                return {"backbone": f"{name}:{model}", "method": "ncc"}
    return {}


def _advice(
    tree: Mapping[str, Any],
    session: Session,
    words: Sequence[Mapping[str, Any]],
    opened: Component,
) -> _Advice:
    """Return the first arguments that work, and why those before them do not.

    Args:
        words: arguments on the words and the sampler, the best first.
        opened: the data set, which is not read again for each of them.
    """
    from fsframework.api.experiments import Description, resolved

    first = ""
    for simpler in _simpler(tree, session, words):
        arguments = dict(simpler)
        if _UNTRAINED in arguments:
            arguments["training"] = {"epochs": arguments.pop(_UNTRAINED)}
        try:
            asked = dataclasses.replace(resolved(tree, session, **arguments), dataset=opened)
            tasks, notes = Description(asked, session).tasks()
        except FsfError as error:
            first = first or str(error)
        else:
            limit = f"the usual tasks are not possible: {first}" if first else ""
            return _Advice(simpler, tasks, notes, limit)
    return _Advice(None, limit=first)


def _hints(opened: Component, detected: Mapping[str, str], *, wordless: bool) -> Iterator[str]:
    """Yield what may be better than the command that works.

    Args:
        opened: the data set.
        detected: the arguments of a detector that was added.
        wordless: whether the images come without words.
    """
    if wordless:
        now = "are measured in the pixels" if detected else "are missing, so no tasks are biased"
        yield f"words {now}; --attributes words.csv takes yours, --detector NAME others"
    names = opened.create().class_names
    nested = opened.options.get("levels", 0) is None and all("/" in name for name in names)
    if nested and opened.options.get("split") is None:
        yield (
            f"class names are paths of folders, such as {names[0]!r}; -o dataset.levels=1 makes "
            "the first folder the class and the rest its context"
        )


def _command(context: click.Context, needed: Mapping[str, Any]) -> str:
    """Return the command that runs on the data, with all options that select them."""
    given = context.params
    words = ["fsf", "run"]
    named = ["dataset", "attributes", "detector", "method", "backbone"]
    if context.get_parameter_source("config") is ParameterSource.COMMANDLINE:
        named += ["config", *(name for name in ALLOWANCES if given[name])]
    words += [option_of(name, given[name]) for name in named if given[name] is not None]
    words += [option_of("plugin", path) for path in given["plugin_files"]]
    words += [f"-o {shlex.quote(option)}" for option in given["options"]]
    return " ".join([*words, *(option_of(name, value) for name, value in needed.items())])


def _print_report(report: DataReport, words: WordsReport | None) -> None:
    from fsframework.cli import render

    columns = ("split", "classes", "images", "smallest class", "largest class")
    rows = [
        (s.name, f"{s.classes:,}", f"{s.images:,}", s.smallest, s.largest) for s in report.splits
    ]
    render.print_table(columns, rows)
    click.echo()
    for line in () if words is None else words.lines():
        click.echo(line)
