"""What tells sets of tasks from each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fsf_statistics.equal_tasks import grouped_by_tasks
from fsframework.statistics.facts import source_of_words, text_of, told_apart
from fsframework.statistics.results import MethodResult

__all__ = [
    "facts_of",
    "head_of_fact",
    "options_of_tasks",
    "sets_of",
    "tasks_told_apart",
    "told_value",
]

_HEADS = {"n_query": "queries", "count": "tasks per arm", "training_seed": "seed"}

_ALWAYS = ("data", "tasks")
_MAKE_TASKS = ("dataset", "detector", "sampler")
_SET_TASKS = (
    "task_seed", "split", "attributes", "min_count", "drop_words", "drop_class_words",
    "drop_words_in_classes", "placebo", "task_file",
)  # fmt: skip


def facts_of(result: MethodResult) -> dict[str, str]:
    """Return what is known of the tasks of a result, by name.

    ``data`` is the name of the data set, ``tasks`` ways and shots, ``count`` the number of tasks
    per arm, ``queries`` those per class; the others are the options that the tasks were made
    with, such as ``dataset.strength``.
    """
    record = result.records[0] if result.records else None
    shape = result.task_set
    if result.arms is not None:
        shape = f"{result.arms.tested.n_way}-way {result.arms.tested.n_shot}-shot"
    count = max((len(one) for one in result.outcomes.values()), default=0)
    found = {"data": record.data.name if record else "", "tasks": shape, "count": f"{count:,}"}
    if record is None or record.method is None:
        return found
    if result.arms is not None:
        found["queries"] = str(result.arms.tested.n_query)
    components = {role: (one.called, one.options) for role, one in record.components.items()}
    return found | options_of_tasks(components, record.settings)


def head_of_fact(name: str) -> str:
    """Return the head of a column that shows a fact.

    >>> head_of_fact("n_query"), head_of_fact("min_count")
    ('queries', 'min count')
    """
    return _HEADS.get(name, name.replace("_", " "))


def told_value(value: str) -> str:
    """Return what a cell says of the value of a fact: yes or no of an option that is on or off."""
    return {"true": "yes", "false": "no"}.get(value, value)


def sets_of(results: Sequence[MethodResult]) -> list[list[MethodResult]]:
    """Group results of equal tasks, in the order in which the tasks first appear.

    Where a method has been trained on several variants of the data, each variant is a set: with
    ``strength=0.2`` and ``strength=0.8`` in training, tested on equal tasks, there are two.
    """
    found: list[list[MethodResult]] = []
    for group in grouped_by_tasks(results):
        by_label: dict[str, list[dict[str, str]]] = {}
        for one in group:
            by_label.setdefault(one.label, []).append(_data_options(one))
        varied = sorted(
            {
                key
                for told in by_label.values()
                for key in told[0]
                if len({options.get(key) for options in told}) > 1
            }
        )
        sets: dict[tuple[str | None, ...], list[MethodResult]] = {}
        for one in group:
            options = _data_options(one)
            sets.setdefault(tuple(options.get(key) for key in varied), []).append(one)
        found += sets.values()
    return found


def _data_options(result: MethodResult) -> dict[str, str]:
    return {k: v for k, v in facts_of(result).items() if k.startswith("dataset.")}


def options_of_tasks(
    components: Mapping[str, tuple[str, Mapping[str, Any]]], settings: Mapping[str, Any]
) -> dict[str, str]:
    """Return what the tasks of a run were made of, by dotted name.

    Args:
        components: name and options by role, of the run.
        settings: of the run.
    """
    found: dict[str, str] = {}
    for role in _MAKE_TASKS:
        name, options = components.get(role, ("", {}))
        if role == "detector":
            found["words"] = source_of_words(name, settings)
        elif name:
            found[role] = name
        found |= {f"{role}.{key}": text_of(v) for key, v in options.items()}
    told = {name: settings.get(name) for name in _SET_TASKS}
    return found | {name: text_of(value) for name, value in told.items() if value is not None}


def tasks_told_apart(facts: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Return what tells sets of tasks from each other: by name, a value for each of them.

    Data set (``data``) and shape (``tasks``) where they vary. Then, each only if it tells apart
    sets that are still equal, the number of tasks per arm (``count``), the options that vary, and
    at last the number of the set (``set``).

    Args:
        facts: of each set, at least one; see ``facts_of``.

    >>> tasks_told_apart([{"data": "planted", "dataset.strength": s} for s in ("0.2", "0.8")])
    {'strength': ['0.2', '0.8']}
    """
    numbered = [{**one, "set": str(number)} for number, one in enumerate(facts, start=1)]
    return told_apart(numbered, _ALWAYS)
