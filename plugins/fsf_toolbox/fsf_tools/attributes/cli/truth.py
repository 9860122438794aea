"""`fsf attributes truth`: words compared with what the images are known to show."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import command, shared

if TYPE_CHECKING:
    from fsf_tools.attributes.simulated_errors import ErrorEffect
    from fsf_tools.attributes.truth import DetectionErrors, Rate
    from fsframework.values import AttributeTable

__all__ = ["truth"]


@command()
@click.argument("words", type=click.Path(path_type=Path))
@click.option(
    "--column",
    required=True,
    metavar="NAME",
    help="Column with what is true of each image; several values are separated by ';'.",
)
@click.option(
    "--truth",
    "source",
    metavar="FILE.csv|DATASET",
    help="File with the columns key and NAME, or data set with the metadata column NAME.  "
    "[default: WORDS]",
)
@click.option(
    "--words",
    "meaning",
    multiple=True,
    metavar="VALUE=WORD,...",
    help="Words that stand for a value; once per value.  [default: each value is its own word]",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="Repetitions of the simulation of tasks; 0 for none.",
)
@shared("json")
def truth(
    words: Path,
    column: str,
    source: str | None,
    meaning: tuple[str, ...],
    seeds: int,
    as_json: bool,
) -> None:
    """Compare words with what the images are known to show: recall, false alarms.

    WORDS is a table of words (.parquet or .csv), or a .csv file with the columns key
    and caption, which is searched for whole words. Images are matched by key. Recall
    is the share of the images with a value that have one of its words; false alarms
    are the share of the others that have one. Intervals are Wilson's, 95 %; that of all
    values together counts an image once, however many values it has.

    What such errors do to tasks is measured on the embedded data set, whose words are
    known: they are made wrong at these rates, independently, and tasks are drawn with
    them. A class of a task is not what it claims if a support image lacks the word
    tied to it or a query has it.

    \b
    Examples:
      fsf attributes truth captions.csv --column a --words 1=ocean,sea,lake --words 0=forest,tree
      fsf attributes truth words.parquet --truth folder:./images --column place
    """
    from fsf_tools.attributes.simulated_errors import effect_of_errors
    from fsf_tools.attributes.truth import detection_errors
    from fsframework.cli import render
    from fsframework.errors import InfeasibleTask

    asked = _meaning(meaning)
    known = _truth(words if source is None else source, column)
    table = _words(words, asked, known)
    found = detection_errors(table, known, asked)
    _demand_words(table, known, column, asked)
    if not as_json:
        _print_errors(found, words.name)
    effect, notes = None, _notes(found, column)
    rates = [
        (one.recall.share, one.false_alarms.share)
        for one in found.values
        if one.recall.share is not None and one.false_alarms.share is not None
    ]
    if seeds and not any(recall for recall, _ in rates):
        notes.append("no word was ever right, so no tasks can be drawn with such words")
    elif seeds and rates:
        try:
            effect = effect_of_errors(rates, seeds=seeds)
        except InfeasibleTask as error:
            notes.append(f"no tasks can be drawn with words that are wrong so often: {error}")
    if as_json:
        simulated = None if effect is None else effect.to_json()
        render.print_json({**found.to_json(), "tasks": simulated, "notes": notes})
        return
    if effect is not None:
        _print_effect(effect)
    for note in notes:
        click.echo(f"note: {note}")


def _meaning(given: Sequence[str]) -> Mapping[str, list[str]] | None:
    from fsframework.errors import OptionError
    from fsframework.values import normalize

    found: dict[str, list[str]] = {}
    for one in given:
        value, _, listed = (part.strip() for part in normalize(one).lower().partition("="))
        words = [word.strip() for word in listed.split(",") if word.strip()]
        if not value or not words:
            raise OptionError(
                f"--words {one!r} must be VALUE=WORD,WORD,..., such as water=ocean,sea, with at "
                "least one word"
            )
        found[value] = list(dict.fromkeys([*found.get(value, ()), *words]))
    return found or None


def _truth(source: str | Path, column: str) -> AttributeTable:
    import fsframework as fsf
    from fsf_tools.attributes.truth import read_truth
    from fsframework.errors import DataError, OptionError

    path = Path(source)
    if path.suffix.lower() == ".csv" and (path.is_file() or ":" not in str(source)):
        return read_truth(path, column)
    if isinstance(source, Path):
        raise OptionError(
            f"{path}: only a .csv file can have a column of what is true; --truth names a file or "
            "a data set that has it"
        )
    table = fsf.pool(source, split="all", attributes=f"column:{column}", progress=False).attributes
    if table is None:
        raise DataError(f"--truth {source}: has no values in the column {column!r}")
    return table


def _words(
    path: Path, meaning: Mapping[str, list[str]] | None, truth: AttributeTable
) -> AttributeTable:
    import fsframework as fsf
    from fsf_tools.attributes.truth import columns_of, words_of_captions
    from fsframework.errors import DataError

    if path.suffix.lower() != ".csv" or "words" in (columns := columns_of(path)):
        return fsf.attributes(path)
    if "caption" not in columns:
        raise DataError(
            f"{path}: must have a column words or caption; its columns are {', '.join(columns)}"
        )
    sought = truth.words if meaning is None else [w for words in meaning.values() for w in words]
    return words_of_captions(path, sought)


def _demand_words(
    table: AttributeTable, truth: AttributeTable, column: str, meaning: Mapping[str, Any] | None
) -> None:
    """Refuse values that stand for themselves and are no words that an image has."""
    from fsframework.errors import OptionError

    values = truth.words
    if meaning is None and len(values) and not set(values) & set(table.words):
        shown = " ".join(f"--words {shlex.quote(value)}=WORD,WORD" for value in values[:3])
        raise OptionError(
            f"no image has a value of {column} as a word; say which words stand for each: {shown}"
            f"{' ...' if len(values) > 3 else ''}"
        )


def _print_errors(found: DetectionErrors, name: str) -> None:
    from fsframework.cli import render

    print(f"{found.images:,} images of {name}")
    print()
    rows = [
        (one.value, f"{one.recall.of:,}", _rate(one.recall), _rate(one.false_alarms))
        for one in found.values
    ]
    if len(rows) > 1:
        rows.append(("all", f"{found.recall.of:,}", _rate(found.recall), _rate(found.false_alarms)))
    render.print_table(("value", "images", "recall", "false alarms"), rows)
    words = [
        (one.value, word.word, _rate(word.recall), _rate(word.false_alarms))
        for one in found.values
        if [word.word for word in one.words] != [one.value]
        for word in one.words
    ]
    if words:
        print()
        render.print_table(("value", "word", "recall", "false alarms"), words)


def _print_effect(effect: ErrorEffect) -> None:
    from fsframework.cli import render

    print()
    print(
        f"Words of the embedded data set made wrong at these rates: {effect.seeds} x "
        f"{effect.tasks} biased tasks, {effect.n_way}-way {effect.n_shot}-shot, {effect.n_query} "
        "queries per class"
    )
    print()
    rows = [
        ("tasks with a class that is not what it claims", effect.wrong_tasks, "%"),
        ("classes of tasks that are not what they claim", effect.wrong_classes, "%"),
        ("support images that lack the word of their class", effect.false_support, "%"),
        ("queries that have the word of their class", effect.true_queries, "%"),
        ("wAcc gap with the true words", effect.true_gap, "points"),
        ("wAcc gap with the detected words", effect.detected_gap, "points"),
        ("share of the gap that is lost", effect.lost, "%"),
    ]
    means = [(name, _percent(mean.value, mean.low, mean.high, unit)) for name, mean, unit in rows]
    render.print_table(("in tasks", "mean"), means)


def _rate(rate: Rate) -> str:
    if rate.share is None:
        return "no image"
    return f"{rate.count:,}/{rate.of:,} = {_percent(rate.share, rate.low, rate.high)}"


def _percent(value: float, low: float | None, high: float | None, unit: str = "%") -> str:
    """Return a value with its interval, if there is one: values that do not vary have none."""
    if low is None or high is None or low == high:
        return f"{100 * value:.1f} {unit}"
    return f"{100 * value:.1f} {unit} ({100 * low:.1f} to {100 * high:.1f})"


def _notes(found: DetectionErrors, column: str) -> list[str]:
    notes = []
    if found.unused_words:
        notes.append(f"no image has the words {', '.join(found.unused_words)}")
    if found.other_values:
        notes.append(
            f"no words stand for the values {', '.join(found.other_values[:10])} of {column}; "
            "their images count as those without the other values"
        )
    if found.images_without_truth:
        notes.append(f"{found.images_without_truth:,} images have no {column} and are left out")
    if found.images_without_words:
        notes.append(f"{found.images_without_words:,} images are not in the table of words")
    return notes
