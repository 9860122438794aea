"""What to call in Python for each command of ``fsf``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pydoc import locate
from typing import Any

from sitepages.markdown import read_docstring, table

__all__ = ["CALLS", "NOT_CALLS", "page", "public"]

CALLS: Mapping[str, tuple[str, ...]] = {
    "answers list": ("fsf_vlm.kept_answers",),
    "answers remove": ("fsf_vlm.remove_answers",),
    "attributes agree": ("fsf_tools.agreement",),
    "attributes extract": ("fsf_tools.extract_words", "fsf.pool"),
    "attributes import": ("fsf_tools.fewstab_attributes",),
    "attributes show": ("fsf_tools.attribute_page",),
    "attributes stats": ("fsf_tools.attribute_statistics",),
    "attributes truth": ("fsf_tools.detection_errors", "fsf_tools.effect_of_errors"),
    "benchmark": ("fsf_benchmarks.run_benchmark",),
    "cache clean": ("fsf_tools.clean_cache",),
    "cache size": ("fsf_tools.cache_size",),
    "cite": ("fsf_reports.cite",),
    "compare": ("fsf.compare",),
    "data add": ("fsf_tools.add_dataset",),
    "data check": ("fsf_tools.check_dataset", "fsf_tools.check_words"),
    "data embed": ("fsf_tools.embed_images",),
    "data list": ("fsf_tools.datasets",),
    "data pack": ("fsf_tools.pack_images",),
    "data remove": ("fsf_tools.remove_dataset",),
    "data show": ("fsf_tools.datasets",),
    "data similarity": ("fsf_benchmarks.measure_similarities",),
    "figure": ("fsf_reports.figure", "fsf_reports.save_figure"),
    "import accuracies": ("fsf_statistics.read_accuracies", "fsf_statistics.import_accuracies"),
    "import libfewshot": ("fsf_importing.read_checkpoint", "fsf_importing.Checkpoint.save"),
    "import relationnet": ("fsf_importing.read_checkpoint", "fsf_importing.Checkpoint.save"),
    "keywords": ("fsf_statistics.keywords",),
    "plan": ("fsf_statistics.plan_queries", "fsf_statistics.best_queries"),
    "plugins check": ("fsf_tools.check_plugins",),
    "plugins list": ("fsf_tools.installed_plugins",),
    "plugins new": ("fsf_tools.new_plugin.new_plugin",),
    "plugins show": ("fsf_tools.describe_plugin",),
    "predict": ("fsf_prediction.predict",),
    "pretrain": ("fsf_self_supervised.pretrain",),
    "rank": ("fsf_statistics.rank",),
    "recipes list": ("fsframework.api.recipes.recipes",),
    "recipes show": ("fsframework.api.recipes.recipes",),
    "report": ("fsf_reports.report",),
    "results add": ("fsf_tools.add_results",),
    "run": ("fsf.run", "fsf.describe"),
    "runs curve": (
        "fsf.load_run",
        "fsframework.api.training.write_tensorboard",
    ),
    "runs export": ("fsf_trackers.export_runs",),
    "runs list": ("fsf.runs",),
    "runs printed": ("fsf_benchmarks.beside_printed", "fsf_benchmarks.printed_values"),
    "runs publish": ("fsf_tools.publish_model",),
    "runs remove": ("fsf_tools.remove_run",),
    "runs repeat": ("fsf_tools.repeat_run",),
    "runs show": ("fsf.load_run",),
    "slices": ("fsf_statistics.slices",),
    "sweep": ("fsf.sweep",),
    "sweep status": ("fsf_tools.sweep_status",),
    "table": ("fsf_reports.table", "fsf_reports.save_tables"),
    "tasks export": ("fsf_tools.export_jsonl",),
    "tasks import": ("fsf_tools.import_tasks", "fsf_tools.fewstab_tasks"),
    "tasks make": ("fsf.draw", "fsf.TaskSet.save"),
    "tasks publish": ("fsf_tools.publish_tasks",),
    "tasks show": ("fsf_tools.task_picture", "fsf.TaskSet.load"),
    "tasks verify": ("fsf.TaskSet.verify",),
}
"""Public functions by command."""

NOT_CALLS: Mapping[str, str] = {"completion": "prints a script that only a shell reads"}
"""Commands without a function, and why."""

HEAD = """# Commands as calls

Every command is a thin layer over functions, which return what it prints; `help(FUNCTION)` lists
their arguments. `--dry-run` shows what `fsf.describe` returns.
"""


def public(name: str) -> Any:
    """Return what a dotted name means; ``fsf`` stands for ``fsframework``."""
    return locate(re.sub(r"^fsf\.", "fsframework.", name))


def page() -> str:
    """Return the page."""
    rows = []
    for command, names in CALLS.items():
        link = f"[`fsf {command}`](../commands/{command.split()[0]}.md)"
        for name in names:
            summary = read_docstring(inspect.getdoc(public(name)) or "").summary
            rows.append((link, f"`{name}`", summary))
            link = ""
    rows += [(f"`fsf {command}`", "", f"no call: {why}") for command, why in NOT_CALLS.items()]
    return "\n".join([HEAD, table(("command", "in Python", "what it does"), rows)])
