"""What ran, and how to repeat it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from fsf_reports._citing import citations
from fsf_reports.interfaces import ReportedRun, ReportedRuns, Section
from fsf_reports.values import Block, Listing, Text
from fsframework.cli.options import option_of

__all__ = ["Provenance"]

_MOST_RUNS = 24

_SHAPE = {"n_way": "way", "n_shot": "shot", "n_query": "queries"}
_ROLES = ("method", "sampler", "dataset", "backbone", "detector")


class Provenance(Section):
    """What ran with which versions, the commands and calls that repeat it, and what to cite."""

    title: ClassVar[str] = "How to repeat this"
    place: ClassVar[int] = 900

    def blocks(self, runs: ReportedRuns) -> Iterator[Block]:
        """Return commands, calls, versions and citations."""
        shown = runs[:_MOST_RUNS]
        yield Text(
            ("The same version, options and data give the same tasks; finished stages are reused.",)
        )
        yield Listing("Command line", "\n".join(_command(run) for run in shown), "shell")
        yield Listing("Python", _python(shown), "python")
        if len(runs) > len(shown):
            yield Text(
                (
                    f"These are the first {len(shown)} runs. The folders of the other "
                    f"{len(runs) - len(shown)} record the same (fsf runs show NAME).",
                )
            )
        yield Listing("What ran", "\n\n".join(_versions(run) for run in shown))
        data = {run.data.name: run.data.citation for run in runs if run.data and run.data.citation}
        cited = citations((run.record for run in runs), data=data)
        yield Listing("To cite", cited, "bibtex")


def _command(run: ReportedRun) -> str:
    if run.record["imported"]:
        return " ".join(f"# {run.label}: imported from {run.record['imported']['source']}".split())
    return " ".join(["fsf run", *_options(run.record["given"])])


def _options(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of a tree as they are given on the command line."""
    for key, value in given.items():
        if key == "statistics":
            yield from (option_of(key, one) for one in value)
        elif isinstance(value, Mapping):
            yield from _of_table(key, value)
        elif isinstance(value, list):
            yield option_of(key, ",".join(map(str, value)))
        elif value is not None:
            yield option_of(key, value)


def _of_table(key: str, table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of a component, or of the training."""
    for option, value in table.items():
        if option == "name" and key in _ROLES:
            yield option_of(key, value)
        elif option in _SHAPE:
            yield option_of(_SHAPE[option], value)
        else:
            yield from _nested(f"{key}.{option}", value)


def _nested(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for option, one in value.items():
            yield from _nested(f"{key}.{option}" if option != "name" else key, one)
    elif isinstance(value, list):
        yield _option(key, json.dumps(value))
    elif isinstance(value, bool):
        yield _option(key, str(value).lower())
    elif value is not None:
        yield _option(key, str(value))


def _option(key: str, value: str) -> str:
    return f"-o {shlex.quote(f'{key}={value}')}"


def _python(runs: ReportedRuns) -> str:
    """Return a few lines that repeat the runs and this report."""
    calls = [
        f"    fsf.run({', '.join(f'{k}={v!r}' for k, v in run.record['given'].items())}),"
        for run in runs
        if not run.record["imported"]
    ]
    return "\n".join(
        [
            "import fsf_reports",
            "import fsframework as fsf",
            "runs = [",
            *calls,
            "]",
            'fsf_reports.report(runs, "report.html")',
        ]
    )


def _from(plugin: Mapping[str, Any]) -> str:
    """Return where a plugin comes from: a distribution, or files of the user's own."""
    if not plugin["files"]:
        return f"{plugin['distribution']} {plugin['version']}"
    return f"{plugin['kind']} {plugin['name']} ({' and '.join(plugin['files'])})"


def _versions(run: ReportedRun) -> str:
    record = run.record
    environment = record["environment"]
    plugins = dict.fromkeys(map(_from, record["plugins"]))
    lines = {
        "run": run.folder.name,
        "status": record["status"],
        "created": record["created"],
        "fingerprint": record["fingerprint"],
        "fsframework": environment["fsframework"],
        "plugins": ", ".join(plugins),
        "python": environment["python"],
        "torch, numpy": f"{environment['torch']}, {environment['numpy']}",
        "device": f"{environment['device']}, {environment['dtype']}",
        "threads": environment["threads"],
        "recipe": record["training"]["recipe"],
        **{f"digest of {name}": digest for name, digest in record["digests"].items()},
    }
    told = [f"  {name}: {value}" for name, value in lines.items() if value]
    notes = [f"  note: {note}" for note in record["notes"]]
    return "\n".join([run.label, *told, *notes])
