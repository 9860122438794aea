"""Conversion of run records of version 1 to version 2.

In version 1 two letters named the arms: R, the random or only tasks, and A, attribute-biased tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["upgraded"]

_ROLES = ("dataset", "backbone", "method", "sampler", "detector")
_ARGUMENTS = {"dataset": "path", "backbone": "model", "detector": "model"}
_ADDED = "fsf data add: "
_LABELS = {"acc": "Acc", "wacc": "wAcc"}
_SYMBOLS = {"random": "R", "biased": "A"}


def upgraded(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of version 1 as one of version 2."""
    resolved, origins = dict(raw["resolved"]), dict(raw["origins"])
    tasks: Mapping[str, Any] = raw.get("tasks") or {}
    digests = dict(raw.get("digests", {}))
    names = _arm_names(raw)
    arms = {
        names[letter]: _arm(raw, letter, tasks.get(letter, {}), names[letter]) for letter in names
    }
    roles = {role: resolved.pop(role) for role in _ROLES if role in resolved}
    stages, imported = resolved.pop("training", []), resolved.pop("imported", None)
    base_classes = resolved.pop("n_base_classes", 0)
    training = dict(raw.get("training") or {})
    return {
        **raw,
        "schema_version": 2,
        "settings": resolved,
        "origins": {k: v for k, v in origins.items() if k in resolved},
        "components": {role: _component(role, c, origins) for role, c in roles.items()},
        "stages": [
            {"options": options, "origins": own}
            for options, own in zip(stages, _stage_origins(origins, len(stages)), strict=True)
        ],
        "environment": _environment(raw["environment"]),
        "arms": arms,
        "contrast": _contrast(names),
        "digests": {k: v for k, v in digests.items() if not k.startswith("tasks-")},
        "cautions": raw.get("cautions", []),
        "data": {"trained_on": [], **(raw.get("data") or {})},
        "training": {"history": [], **training},
        "imported": None if imported is None else _imported(imported, base_classes),
        "timings": raw.get("timings", {}),
        "labels": {name: _LABELS[name] for name in raw.get("statistics", {}) if name in _LABELS},
        "estimates": _estimates(raw["estimates"], names),
    }


def _arm_names(raw: Mapping[str, Any]) -> dict[str, str]:
    """Return the name of each arm by its letter."""
    tasks = raw.get("tasks") or {}
    letters = [letter for letter in ("R", "A") if letter in tasks]
    if not letters:
        # Accuracies measured elsewhere, which had a digest but no tasks.
        letters = [letter for letter in ("R", "A") if f"tasks-{letter}" in raw.get("digests", {})]
        return dict.fromkeys(letters, "tasks")
    if "A" in letters:
        return {"R": "random", "A": "biased"} if "R" in letters else {"A": "biased"}
    facts = tasks["R"]
    sampler = str(facts["sampler"]).removeprefix("placebo(").removesuffix(")")
    return {"R": str(facts.get("options", {}).get("kind", sampler))}


def _contrast(names: Mapping[str, str]) -> dict[str, Any] | None:
    if len(names) < 2:
        return None
    return {"control": names["R"], "tested": names["A"], "paired": False}


def _arm(
    raw: Mapping[str, Any], letter: str, facts: Mapping[str, Any], name: str
) -> dict[str, Any]:
    found = {
        "sampler": str(facts.get("sampler", "")).removeprefix("placebo(").removesuffix(")"),
        "options": facts.get("options", {}),
        "seed": facts.get("seed", 0),
        "digest": raw.get("digests", {}).get(f"tasks-{letter}", ""),
        "n_way": facts.get("way", 0),
        "n_shot": facts.get("shot", 0),
        "n_query": facts.get("query", 0),
        "n_tasks": facts.get("count", 0),
        "class_sizes": facts.get("class_sizes", []),
        "symbol": _SYMBOLS.get(name, ""),
        "given_options": _given_options(raw, facts),
        "files": letter,
    }
    imported = raw["resolved"].get("imported") or {}
    if "task_set" in imported:
        found |= {"name": imported["task_set"], "n_tasks": imported["n_tasks"]}
    return found


def _given_options(raw: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    origins = raw["origins"].get("sampler", {})
    shape = ("name", "n_way", "n_shot", "n_query")
    return [
        name
        for name, origin in origins.items()
        if name not in shape and origin != "default" and name in facts.get("options", {})
    ]


def _component(role: str, raw: Mapping[str, Any], origins: Mapping[str, Any]) -> dict[str, Any]:
    own = origins.get(role, {})
    options = {key: value for key, value in raw.items() if key != "name"}
    argument = _ARGUMENTS.get(role)
    added = str(own.get("name", "")).partition(_ADDED)[2] if isinstance(own, Mapping) else ""
    return {
        "name": raw["name"],
        "options": options,
        "origins": own,
        "argument": argument if argument in options else None,
        "added_as": added or None,
    }


def _stage_origins(origins: Mapping[str, Any], count: int) -> list[Any]:
    found = list(origins.get("training", []))
    return [*found, *[{}] * (count - len(found))][:count]


def _environment(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {**raw, "threads": int(raw.get("threads", 0))}


def _imported(raw: Mapping[str, Any], base_classes: int) -> dict[str, Any]:
    return {**raw, "n_base_classes": base_classes}


def _estimates(raw: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return estimates by the names of their measures, with their arms."""
    found = {}
    for key, one in raw.items():
        statistic, _, suffix = key.rpartition("-")
        arms = [names["R"], names["A"]] if suffix == "gap" else [names[suffix]]
        name = f"{statistic}-{'gap' if len(arms) == 2 else arms[0]}"
        fields = {k: v for k, v in one.items() if k != "kind"}
        found[name] = {**fields, "statistic": statistic, "arms": arms, "scope": one["kind"]}
    return found
