"""BibTeX of what runs used, read from the sources that plugins declare in their docstrings.

A source names its authors briefly; where ``references.bib`` has the publication, its entry is
printed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsf_statistics import PathNames
from fsframework.api.components import Registry, component
from fsframework.api.session import Workspace, open_session
from fsframework.errors import FsfError, PluginError, RecordError

if TYPE_CHECKING:
    from fsf_reports._report import Reportable

__all__ = ["citations", "cite"]

_SOURCE = re.compile(r"\bSource: (.*?)(?:\n\n|\Z)", re.DOTALL)
_NAME = r"[A-ZÀ-ÖØ-Þ][\w'’-]+(?: [A-Z][\w'’-]+)*"
_AUTHORS = rf"{_NAME}(?:, {_NAME})*(?:,? and {_NAME}| et al\.)?"
_PAPER = re.compile(rf'({_AUTHORS}) (\d{{4}}), "([^"]+)"')
_DATA = re.compile(rf"({_AUTHORS}) (\d{{4}}), ([^;]+)")
_KINDS = ("method", "backbone", "dataset", "sampler", "detector", "selector", "view", "statistic")

_OPEN_AND_CLOSED = (
    'Lafargue, Smith, Vermet, Löwe, Reid, Valmadre and Gripon 2024, "Oops, I Sampled it Again: '
    'Reinterpreting Confidence Intervals in Few-Shot Learning"'
)
_IMAGENET = (
    'Deng, Dong, Socher, Li, Li and Fei-Fei 2009, "ImageNet: A Large-Scale Hierarchical Image '
    'Database"'
)
_IMAGE_LEVEL = (
    'Mentch and Hooker 2016, "Quantifying Uncertainty in Random Forests via Confidence Intervals '
    'and Hypothesis Tests"; Wager, Hastie and Efron 2014, "Confidence Intervals for Random '
    'Forests: The Jackknife and the Infinitesimal Jackknife"'
)
_ESTIMATORS = {
    "bca": 'Efron 1987, "Better Bootstrap Confidence Intervals"',
    "image-level": _IMAGE_LEVEL,
    "class-level": _IMAGE_LEVEL,
    "crossed-t": 'Banerjee 1960, "Approximate confidence interval for linear functions of means '
    'of k populations when the population variances are not equal"',
}
"""The source of each kind of interval; that of open and closed ones is the same for all."""


@dataclass(frozen=True)
class _Reference:
    """A publication, and what of the runs it is the source of."""

    authors: tuple[str, ...]
    year: str
    title: str
    of: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The first author, the year and the first long word of the title."""
        words = re.findall(r"\w+", self.title)
        word = next((w for w in words if len(w) > 3), words[0])
        return re.sub(r"\W", "", f"{self.authors[0].split()[-1]}{self.year}{word}").lower()

    def bibtex(self) -> str:
        """Return the entry, below a comment that says what it is for."""
        authors = " and ".join(self.authors)
        entry = _known().get(self.key) or (
            f"@misc{{{self.key},\n  author = {{{_escaped(authors)}}},\n"
            f"  title = {{{{{_escaped(self.title)}}}}},\n  year = {{{self.year}}}\n}}"
        )
        return f"% {', '.join(self.of)}\n{entry}"


@cache
def _known() -> Mapping[str, str]:
    """Return entries with full names and venues, by key."""
    text = resources.files("fsf_reports").joinpath("references.bib").read_text("utf-8")
    entries = re.finditer(r"^@\w+\{(\w+),.*?^\}", text, re.DOTALL | re.MULTILINE)
    return {entry[1]: entry[0] for entry in entries}


def cite(results: Reportable | Iterable[Reportable], *, runs_dir: str | Path | None = None) -> str:
    """Return BibTeX of what finished runs used: their plugins, data, intervals, and this software.

    Args:
        results: as for ``report``; those that are not finished are left out.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.

    Raises:
        RecordError: a run does not exist, or none is finished.
    """
    from fsf_reports._report import opened_runs

    found = list(opened_runs(results, Workspace.default(runs_dir).runs))
    done = [run.record for run in found if run.record.status != "unfinished"]
    if not done:
        first = found[0].name if found else results
        raise RecordError(f"nothing to cite: {first} is not finished")
    names = PathNames()
    return citations([names.in_record(record).to_json() for record in done])


def citations(records: Iterable[Mapping[str, Any]], data: Mapping[str, str] | None = None) -> str:
    """Return BibTeX of what runs used: their plugins, data, intervals, and this software.

    A plugin declares its source in its docstring: ``Source: Snell, Swersky and Zemel 2017,
    "Prototypical Networks for Few-shot Learning"``. If a source depends on the options, a class
    method ``sources`` takes these and returns it in the same form.

    Args:
        records: of the runs, as ``run.json`` holds them.
        data: citations of data sets in words, by name: also of those that no plugin describes.
    """
    found: dict[str, _Reference] = {}
    versions: dict[str, str] = {}
    silent: dict[str, None] = {}
    registry = open_session(progress=False).registry
    for record in records:
        versions |= _versions(record)
        for plugin in _plugins(record):
            of = f"{plugin['kind']} {plugin['name']}"
            references = list(_declared(plugin, record, registry))
            for reference in references:
                _add(found, reference, of)
            if not references:
                silent[of] = None
        for reference, of in (*_of_pretraining(record), *_of_intervals(record)):
            _add(found, reference, of)
    for name, told in (data or {}).items():
        for reference in _parsed(_DATA, told):
            _add(found, reference, f"dataset {name}")
    entries = [_software(versions), *(reference.bibtex() for reference in found.values())]
    if silent:
        entries.append(f"% without a publication of their own: {', '.join(silent)}")
    return "\n\n".join(entries)


def _plugins(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the plugins that a run used, methods first.

    The method of a stage without any epoch, by which nothing was trained, is not used.
    """
    stages = [stage["options"] for stage in record["stages"]]
    trained = [record["components"], *(one for one in stages if one.get("epochs") != 0)]
    idle = set(_names([one for one in stages if one.get("epochs") == 0])) - set(_names(trained))
    used = (
        plugin
        for plugin in record["plugins"]
        if plugin["kind"] in _KINDS and not (plugin["kind"] == "method" and plugin["name"] in idle)
    )
    return sorted(used, key=lambda plugin: _KINDS.index(plugin["kind"]))


def _names(options: Any) -> Iterator[str]:
    """Yield the names of all components that options hold."""
    if isinstance(options, Mapping):
        if isinstance(name := options.get("name"), str):
            yield name
        yield from _names(list(options.values()))
    elif isinstance(options, list):
        for one in options:
            yield from _names(one)


def _versions(record: Mapping[str, Any]) -> dict[str, str]:
    installed = (p for p in record["plugins"] if p["distribution"] and p["version"] != "-")
    packages = {p["distribution"]: p["version"] for p in installed}
    environment = record["environment"]
    return {**packages, **({"fsframework": environment["fsframework"]} if environment else {})}


def _of_pretraining(record: Mapping[str, Any]) -> Iterator[tuple[_Reference, str]]:
    """Yield the source of ImageNet if weights were pretrained on it."""
    for name in (record["data"] or {}).get("pretrained_on", ()):
        if "imagenet-" in name:
            for reference in _parsed(_PAPER, _IMAGENET):
                yield reference, f"pretraining on {name}"


def _of_intervals(record: Mapping[str, Any]) -> Iterator[tuple[_Reference, str]]:
    """Yield the sources of the kinds of intervals, and what they are the source of."""
    for estimate in record["estimates"].values():
        for reference in _parsed(_PAPER, _OPEN_AND_CLOSED):
            yield reference, "open and closed intervals"
        for reference in _parsed(_PAPER, _ESTIMATORS.get(estimate["estimator"], "")):
            yield reference, f"intervals {estimate['estimator']}"


def _declared(
    plugin: Mapping[str, Any], record: Mapping[str, Any], registry: Registry
) -> Iterator[_Reference]:
    """Yield the publications that an installed plugin declares; none for a file of one's own."""
    known = {one.name: one.target for one in registry.plugins(plugin["kind"])}
    # A record of somebody else must not choose what is imported.
    if known.get(plugin["name"]) != plugin["target"]:
        return
    try:
        declared = registry.load(plugin["kind"], plugin["name"])
    except PluginError:
        return
    pattern = _DATA if plugin["kind"] == "dataset" else _PAPER
    for source in _SOURCE.findall(inspect.getdoc(declared) or ""):
        yield from _parsed(pattern, " ".join(source.split()))
    used = record["components"].get(plugin["kind"])
    if hasattr(declared, "sources") and used and used["name"] == plugin["name"]:
        with suppress(FsfError):  # it has other options now
            made = component(registry, plugin["kind"], {**used["options"], "name": used["name"]})
            yield from _parsed(pattern, declared.sources(made.to_json()))


def _parsed(pattern: re.Pattern[str], text: str) -> Iterator[_Reference]:
    for authors, year, title in pattern.findall(text):
        names = re.split(r", and |, | and ", authors.removesuffix(" et al."))
        others = ["others"] if authors.endswith(" et al.") else []
        yield _Reference((*names, *others), year, title)


def _add(found: dict[str, _Reference], new: _Reference, of: str) -> None:
    """Add a publication, or what else it is the source of; the fuller of two forms is kept."""
    old = found.get(new.key, new)
    fuller = max(old, new, key=lambda one: ("others" not in one.authors, len(one.title)))
    found[new.key] = replace(fuller, of=tuple(dict.fromkeys([*old.of, of])))


def _software(versions: Mapping[str, str]) -> str:
    told = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    version = versions.get("fsframework", "")
    return (
        "% this software\n@software{fsframework,\n  author = {{The fsframework authors}},\n"
        "  title = {{fsframework: how much few-shot image classifiers lean on spurious "
        f"attributes}}}},\n  version = {{{_escaped(version)}}},\n  year = {{2026}},\n"
        f"  note = {{{_escaped(told)}}}\n}}"
    )


def _escaped(text: str) -> str:
    special = {"\\": "/", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "$": r"\$"}
    return "".join(special.get(c, c) for c in text).replace("{", "(").replace("}", ")")
