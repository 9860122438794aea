"""Facts about values and footnotes for FewSTAB's tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fsf_benchmarks._fewstab import (
    BACKBONE,
    DETECTOR,
    IFSL_BACKBONE,
    PAPER_SHAPE,
    TASKS,
    TECHNIQUES,
)
from fsf_benchmarks._published import printed_values
from fsf_benchmarks.interfaces import BenchmarkResults, ExperimentResult
from fsf_reports.values import Quantity
from fsframework.statistics.facts import called

__all__ = [
    "SCOPES",
    "about",
    "has_paper_shape",
    "joined",
    "named",
    "printed",
    "printed_note",
    "settings",
]

SCOPES = {
    "closed": "closed (about this data set only)",
    "open": "open (about the distribution of the data)",
}
_PUBLISHED_SAMPLER = "fewstab-published"
_OWN_TECHNIQUE = TECHNIQUES["SC3"]


def joined(values: Iterable[object]) -> str:
    """Return distinct values in their order, joined by "and"."""
    return " and ".join(dict.fromkeys(str(value) for value in values))


def named(result: ExperimentResult) -> str:
    """Return the data set's label, or its name without a label."""
    return str(result.tags["label"] or result.tags["dataset"])


def has_paper_shape(result: ExperimentResult) -> bool:
    """Return whether the tasks have the paper's ways and queries, on which wAcc depends."""
    sampler = result.options["sampler"]
    return (int(sampler["n_way"]), int(sampler["n_query"])) == PAPER_SHAPE


def printed(table: str, result: ExperimentResult, method: str, column: str) -> Quantity | None:
    """Return the paper's value if the tasks have the paper's shape."""
    if not has_paper_shape(result):
        return None
    tags = result.tags
    return printed_values().get((table, tags["label"], tags["shot"], method, column))


def about(result: ExperimentResult, estimate: str) -> dict[str, Any]:
    """Return what was measured and the facts that a reader needs."""
    tags, options = result.tags, result.options
    found = result.estimates.get(estimate)
    return {
        "dataset": tags["dataset"],
        "label": tags["label"],
        "data_fingerprint": result.data_fingerprint,
        "backbone": tags["backbone"],
        "shot": tags["shot"],
        "method": tags["method"],
        "attributes": tags["words"],
        "sampler": options["sampler"]["name"],
        "technique": tags["technique"],
        "tasks": result.n_tasks.get("random", options["tasks"]),
        "query_batch": options["query_batch"],
        "scope": None if found is None else found.scope,
        "level": options["level"],
        "estimator": None if found is None else found.estimator,
        "methods": 1,
        "run": None if result.folder is None else str(result.folder),
        "fingerprint": result.fingerprint or None,
        "cautions": "; ".join(result.cautions),
    }


def settings(results: BenchmarkResults) -> list[str]:
    """Return notes on the settings of a table's experiments, with all values where they differ."""
    data: dict[str, str] = {}
    for result in results:
        tags = result.tags
        same = f"{tags['label']} = {tags['dataset']}" if tags["label"] else tags["dataset"]
        print_ = result.data_fingerprint[:12]
        if print_ or same not in data:
            data[same] = f"{same} (fingerprint {print_})" if print_ else same
    estimates = [estimate for result in results for estimate in result.estimates.values()]
    scopes = joined(f"{100 * e.level:g} %, {SCOPES[e.scope]}" for e in estimates)
    samplers = [result.options["sampler"] for result in results]
    shapes = joined(f"{s['n_way']}-way, {called({'queries': str(s['n_query'])})}" for s in samplers)
    given = results.selection.options.get("sampler", {})
    return [
        f"data set: {joined(data.values())}; backbone: "
        f"{joined(r.tags['backbone'] for r in results)}; attributes: "
        f"{joined(r.tags['words'] for r in results)}",
        f"tasks: {joined(_count(r) for r in results)} random and as many attribute-biased ones by "
        f"sampler {joined(_sampler(r, given) for r in results)}, {shapes}, seed "
        f"{joined(r.options['task_seed'] for r in results)}; queries shown by "
        f"{joined(r.options['query_batch'] for r in results)}",
        f"intervals: {scopes}" if scopes else "intervals: none",
    ]


def _count(result: ExperimentResult) -> str:
    tasks = result.n_tasks.get("random", result.options["tasks"])
    return "all" if tasks is None else f"{tasks:,}"


def _sampler(result: ExperimentResult, given: Any) -> str:
    """Return a sampler's name and the options that were set, except the shape of its tasks."""
    own = given if isinstance(given, dict) else {}
    options = {k: v for k, v in own.items() if k not in ("name", "n_way", "n_shot", "n_query")}
    for key, value in TECHNIQUES.get(result.tags["technique"], {}).items():
        options.pop(key, None)
        if value != _OWN_TECHNIQUE[key]:
            options[key] = value
    name = str(result.options["sampler"]["name"])
    shown = ", ".join(f"{key}={value}" for key, value in options.items())
    return f"{name} ({shown})" if shown else name


def printed_note(table: str, results: Sequence[ExperimentResult]) -> str:
    """Return a note on how the printed values differ from those measured here."""
    weights = joined(_weights(result) for result in results if result.finished)
    apart = [f"weights (here {weights or 'none'})"]
    backbone = results[0].tags["backbone"]
    published, said = (IFSL_BACKBONE, "none named") if table == "S10" else (BACKBONE, "ResNet-12")
    if backbone != published:
        apart.append(f"backbone ({said}, here {backbone})")
    words = [result.tags["words"] for result in results]
    if table != "S8" and any(one != DETECTOR for one in words):
        apart.append(f"attributes (ViT-GPT2's, here {joined(words)})")
    samplers = {result.options["sampler"]["name"] for result in results}
    if samplers != {_PUBLISHED_SAMPLER}:
        apart.append(
            f"sampler ({_PUBLISHED_SAMPLER} draws as its code does, here "
            f"{joined(sorted(samplers))})"
        )
    counts = joined(_count(result) for result in results)
    if counts != f"{TASKS:,}":
        apart.append(f"number of tasks ({TASKS:,}, here {counts})")
    if any(result.options["query_batch"] != "class" for result in results):
        apart.append("queries shown together (those of a class, here of a task)")
    return (
        f"printed: FewSTAB (Zheng et al. 2024), Table {table}; it differs from what was measured "
        f"in {', '.join(apart)}"
    )


def _weights(result: ExperimentResult) -> str:
    if result.trained:
        return "trained by these runs"
    sources = [s["init_from"] for s in result.options["training"] if s["init_from"]]
    return f"taken from {sources[-1]}" if sources else "untrained"
