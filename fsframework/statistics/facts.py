"""What tells runs from each other: labels, panels, and runs selected by what they are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any

from fsframework.errors import OptionError, RecordError, close_matches
from fsframework.records import RunRecord
from fsframework.values import text_table

__all__ = [
    "LEADING", "called", "facts_of", "matching_runs", "options_told", "select_run",
    "source_of_words", "text_of", "told_apart",
]  # fmt: skip

_NO_FACTS = ("broken", "device", "interval", "level", "offline", "tensorboard", "tasks")
"""Settings that no outcome depends on, or that the tasks say better."""

LEADING = (
    "method", "dataset", "backbone", "way", "shot", "queries", "count", "recipe", "sampler",
    "words",
)  # fmt: skip
"""Facts that no option of a component is called, the most telling first."""

_PLAIN = (
    "data", "dataset", "backbone", "method", "words", "sampler", "recipe", "tasks", "run", "folder",
)  # fmt: skip
"""Facts whose value says enough."""

_SAID = {
    "way": "{}-way", "shot": "{}-shot", "training_seed": "seed {}", "count": "{} tasks",
    "drop_words": "without the words {}", "drop_class_words": "without class words",
    "drop_words_in_classes": "without words common in {} of the classes",
    "min_count": "words of at least {} images",
}  # fmt: skip


def facts_of(record: RunRecord) -> dict[str, str]:
    """Return what may tell a run from others, by name, the most telling facts first.

    ``method``, ``dataset``, ``backbone``, ``way``, ``shot``, ``queries``, ``count`` (tasks per
    arm), ``recipe``, ``sampler``, ``words`` (their detector, file or column); the options of all
    components, such as ``dataset.strength``; the settings, such as ``task_seed``; the options of
    training, such as ``training.epochs``, separated by ``;`` where there are several stages.
    """
    shown = {role: one.called for role, one in record.components.items()}
    found: dict[str, Any] = {role: shown.pop(role, None) for role in ("method", "dataset")}
    if record.imported is not None and not found["method"]:
        found |= {"method": record.imported.method, "dataset": record.data.name}
    found["backbone"] = shown.pop("backbone", None)
    if (tested := record.tested) is not None:
        found |= {"way": tested.n_way, "shot": tested.n_shot, "queries": tested.n_query}
        found["count"] = tested.n_tasks
    words = source_of_words(shown.pop("detector", None), record.settings)
    found |= {"recipe": record.settings.get("recipe"), **shown, "words": words}
    for role in ("method", "dataset", "sampler", "detector", "backbone"):
        if role in record.components:
            options = record.components[role].options
            found |= {f"{role}.{name}": value for name, value in options.items()}
    found |= {name: v for name, v in record.settings.items() if name not in _NO_FACTS}
    for name in dict.fromkeys(name for stage in record.stages for name in stage.options):
        values = [text_of(stage.options.get(name)) for stage in record.stages]
        found[f"training.{name}"] = ";".join(values)
    return {name: text_of(value) for name, value in found.items()}


def source_of_words(detector: str | None, settings: Mapping[str, Any]) -> str:
    """Return the detector, file or column of the words; empty for the data set's own.

    >>> source_of_words(None, {"attributes": "tables/words.csv"})
    'words.csv'
    """
    return detector or PurePath(settings.get("attributes") or "").name


def told_apart(
    facts: Sequence[Mapping[str, str]], always: Sequence[str] = ()
) -> dict[str, list[str]]:
    """Return what tells things from each other: by name, a value for each of them.

    Only facts that vary, and only if they tell apart what is still equal. An option is called by
    its last name where no other varying option has it.

    Args:
        facts: of each thing, at least one, the most telling first.
        always: names of facts that are told wherever they vary.

    >>> told_apart([{"data": "planted", "dataset.strength": s} for s in ("0.2", "0.8")])
    {'strength': ['0.2', '0.8']}
    """
    found: dict[str, list[str]] = {}
    sorts = 1
    for name, values in _varied(facts).items():
        finer = len(set(zip(*found.values(), values, strict=True)))
        if finer > sorts or name in always:
            found[name], sorts = values, finer
    return found


def called(told: Mapping[str, str]) -> str:
    """Return facts about one thing in a few words; an option that is off goes without saying.

    >>> called({"data": "planted", "shot": "1", "count": "600", "strength": "0.2"})
    'planted, 1-shot, 600 tasks, strength 0.2'
    >>> called({"placebo": "true", "drop_words": "day, night", "drop_class_words": "false"})
    'placebo, without the words day, night'
    """
    return ", ".join(_said(name, v) for name, v in told.items() if v and v != "false")


def options_told(record: RunRecord, statistic: str) -> str:
    """Return the options with which a run has computed a statistic, in a few words."""
    options = record.statistic_options.get(statistic, {})
    return called({name: text_of(value) for name, value in options.items()})


def matching_runs(selector: str, records: Mapping[str, RunRecord], place: str) -> list[str]:
    """Return the names of the runs that a selector describes, at least one.

    Args:
        selector: facts separated by commas, such as ``method=ncc,shot=5``; names as in
            ``facts_of``, of options also their last names, ``status``, ``seed`` (of training) and
            ``tasks`` (per arm). In a value ``*`` stands for anything. A component's plugin name
            stands for it with any argument; data may be called what notes call them.
        records: by name of the run.
        place: where the runs are, for messages.

    Raises:
        OptionError: a part is not ``NAME=VALUE``, or no run has such a fact.
        RecordError: no run matches.
    """
    left = {name: {**facts_of(one), "status": one.status} for name, one in records.items()}
    known = list(dict.fromkeys(fact for one in left.values() for fact in one))
    for part in selector.split(","):
        asked, equals, value = (text.strip() for text in part.partition("="))
        if not equals:
            raise OptionError(f"{selector!r}: {part!r} must be NAME=VALUE, such as method=renet")
        names = _named(asked, known)
        if records and not names:
            near = close_matches(asked, {*known, *(one.rpartition(".")[2] for one in known)})
            raise OptionError(f"{selector!r}: no run in {place} has {asked!r}{near}")
        values = sorted({one.get(name, "") for one in left.values() for name in names} - {""})
        left = {
            run: one
            for run, one in left.items()
            if any(_is_called(records[run], one, name, value) for name in names)
        }
        if not left:
            there = f"; {asked} is {' or '.join(values[:8])}" if values else ""
            raise RecordError(f"no run in {place} matches {selector!r}{there}; see fsf runs list")
    return list(left)


def select_run(selector: str, records: Mapping[str, RunRecord], place: str) -> str:
    """Return the name of the one run that a selector describes; see ``matching_runs``.

    Raises:
        RecordError: several runs match; the message is a table of what differs.
    """
    found = matching_runs(selector, records, place)
    if len(found) == 1:
        return found[0]
    told = told_apart([facts_of(records[run]) for run in found], LEADING)
    rows = [[run, *(values[at] for values in told.values())] for at, run in enumerate(found)]
    apart = ", ".join(told) or "the content of their data, or in code"
    raise RecordError(
        f"{selector!r} matches {len(found)} runs, which differ in {apart}",
        picture=text_table(["run", *told], rows),
    )


def _named(asked: str, known: Sequence[str]) -> list[str]:
    name = asked.replace("-", "_")
    name = {"seed": "training_seed", "tasks": "count", "detector": "words"}.get(name, name)
    return [name] if name in known else [one for one in known if one.rpartition(".")[2] == name]


def _is_called(record: RunRecord, facts: Mapping[str, str], name: str, asked: str) -> bool:
    """Return whether a fact has the asked value, or its component or data go by that name too."""
    component = record.components.get(name)
    names = [component.name, component.added_as or ""] if component is not None else []
    of_data = [record.data.name] if name == "dataset" else []
    return any(_equal(text, asked) for text in (facts.get(name, ""), *names, *of_data))


def _equal(value: str, asked: str) -> bool:
    """Return whether a value is the asked one; of numbers the values count, not their spelling."""
    try:
        return float(value) == float(asked)
    except ValueError:
        return fnmatchcase(value.lower(), asked.lower())


def _said(name: str, value: str) -> str:
    if name in _PLAIN:
        return value
    if name in ("queries", "n_query"):
        return f"{value} {'query' if value == '1' else 'queries'} per class"
    words = name.replace("_", " ")
    return _SAID.get(name, words if value == "true" else f"{words} {{}}").format(value)


def text_of(value: Any) -> str:
    """Return the value of an option as facts have it: that of a component is its name."""
    if isinstance(value, Mapping) and "name" in value:
        return str(value["name"])
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(text_of, value))
    return json.dumps(value, default=str)


def _varied(facts: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the facts that vary, an option by its last name where only one has it."""
    keys = dict.fromkeys(key for one in facts for key in one)
    varied = [key for key in keys if len({one.get(key, "") for one in facts}) > 1]
    # Options that only one of two components has follow from which component it is.
    varied = [
        key
        for key in varied
        if key.partition(".")[0] not in varied or all(key in one for one in facts) or "." not in key
    ]
    last = Counter(key.rpartition(".")[2] for key in varied)
    short = {key: key.rpartition(".")[2] for key in varied}
    return {
        key if last[short[key]] > 1 else short[key]: [one.get(key, "") for one in facts]
        for key in varied
    }
