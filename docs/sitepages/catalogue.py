"""The catalogue: a page for every installed plugin, made from entry points, schema and recipes."""

from __future__ import annotations

import inspect
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

from fsf_benchmarks.interfaces import Cell, PrintedValue
from fsf_tools.data.catalogue import datasets
from fsf_tools.installed import describe_plugin
from fsframework.api.components import Plugin, Registry
from fsframework.api.recipes import Recipe, recipes
from fsframework.interfaces.dataset import About
from fsframework.testing import checks_for
from sitepages.markdown import Docstring, escaped, read_docstring, table, toctree

__all__ = ["KINDS", "pages", "rules"]

DOCS = Path(__file__).resolve().parents[1]

KINDS = {
    "method": ("Methods", "What learns from the support and scores the queries."),
    "sampler": ("Samplers", "What draws tasks: random ones, or ones with a planted hint."),
    "dataset": ("Data sets", "Where images and labels come from."),
    "backbone": ("Backbones", "What turns an image into features."),
    "detector": ("Detectors", "What finds words, the attributes, in images."),
    "selector": ("Word selectors", "What chooses words out of captions."),
    "statistic": ("Statistics", "What turns the predictions of a task into one number."),
    "view": ("Views", "What makes several views of an image to learn from without labels."),
    "benchmark": ("Benchmarks", "Published experiments, beside what their papers print."),
    "importer": ("Importers", "What makes runs from checkpoints of other code."),
    "launcher": ("Launchers", "Where the work is done: here, on a cluster, on a Ray cluster."),
    "searcher": ("Searchers", "What proposes values of options to try."),
    "section": ("Sections of a report", "Parts of the page on runs."),
    "renderer": ("Renderers", "What draws figures."),
    "table": ("Table writers", "What writes tables."),
    "page": ("Page writers", "What writes the page on runs."),
}
"""Title and one sentence for each kind of plugin that the catalogue has, in its order."""

LABELS = {
    "acc-random": "Acc-R", "wacc-random": "wAcc-R", "wacc-biased": "wAcc-A", "wacc-gap": "gap",
}  # fmt: skip

FACTS = {
    "consumes": "works on",
    "learns_from": "learns from",
    "transductive": "sees all queries at once",
    "uses_labels": "uses labels to train",
    "weightless": "has no weights of its own",
    "needs_attributes": "needs words",
    "independent": "tasks are independent",
    "label": "label",
    "higher_is_better": "higher is better",
    "preprocessing": "image",
    "pretrained_on": "pretrained on",
    "licence": "licence",
    "n_kinds": "kinds of views",
    "formats": "formats",
    "rendered": "is rendered",
    "argument": "short for `NAME:VALUE`",
}
"""What is told of a plugin's declarations, and in which words."""


def pages() -> dict[str, str]:
    """Return a page for each plugin, one for each kind, and the list of kinds."""
    registry = Registry()
    found, kinds, names = {}, [], []
    for kind, (title, sentence) in KINDS.items():
        plugins = registry.plugins(kind)
        rows = []
        for plugin in plugins:
            doc, text = _page(plugin)
            found[f"catalogue/{kind}s/{plugin.name}.md"] = text
            package = f"[{plugin.distribution}](../packages/{_package(plugin)}.md)"
            rows.append((f"[`{plugin.name}`]({plugin.name}.md)", doc.summary, package))
        listed = table(("name", "what it does", "package"), rows)
        links = f"[Write your own](../../extend/{kind}.md)."
        below = toctree([f"{plugin.name}.md" for plugin in plugins])
        text = "\n\n".join([f"# {title}", f"{sentence} {links}", listed, below])
        found[f"catalogue/{kind}s/index.md"] = text
        kinds.append((f"[{title}]({kind}s/index.md)", sentence, str(len(plugins))))
        names.append(f"{kind}s/index.md")
    head = (
        "# Catalogue\n\nEvery plugin of the packages of this repository, made from the code: "
        "`fsf plugins list` and `fsf plugins show NAME` say the same of what you have installed. "
        "Each of the [packages](packages/index.md) can be installed alone. "
        "[Commands](../reference/commands/index.md) are plugins, too.\n"
    )
    packages = [path.stem for path in sorted(DOCS.parent.glob("plugins/*/"))]
    shown = [(f"[{name.replace('_', '-')}]({name}.md)", _summary(name)) for name in packages]
    below = toctree(f"{name}.md" for name in packages)
    found["catalogue/packages/index.md"] = f"# Packages\n\n{table(('name', ''), shown)}\n{below}"
    lines = [head, table(("kind", "", "plugins"), kinds)]
    found["catalogue/index.md"] = "\n".join([*lines, toctree([*names, "packages/index.md"])])
    return found


def _summary(package: str) -> str:
    """Return what the metadata of a package say of it."""
    return escaped(str(metadata(package.replace("_", "-"))["Summary"] or ""))


def _package(plugin: Plugin) -> str:
    return plugin.distribution.replace("-", "_")


def _page(plugin: Plugin) -> tuple[Docstring, str]:
    """Return the docstring and the page of a plugin."""
    told = describe_plugin(plugin.name, plugin.kind)
    doc = read_docstring(told["doc"])
    parts = [f"# {plugin.name}", f"*{doc.summary}*" if "*" not in doc.summary else doc.summary]
    published = [*_about(plugin, doc)]
    parts += [_use(plugin), *(published or [doc.body])]
    if plugin.kind == "dataset":
        parts += _columns(plugin.name)
    parts += [*_told_facts(told["facts"]), *_options(told["options"], doc)]
    if plugin.kind == "method":
        parts += [*_trained(plugin.name), *_printed(plugin.name), *_reached(plugin.name)]
    checks = len(rules(plugin.kind))
    parts += [
        "## Checks",
        f"`fsf plugins check {plugin.name} --kind {plugin.kind}` runs the "
        f"[{checks} checks](../../extend/{plugin.kind}.md#rules) of its kind.",
        f"Package [{plugin.distribution}](../packages/{_package(plugin)}.md), class "
        f"`{plugin.target.replace(':', '.')}`.\n",
    ]
    return doc, "\n\n".join(part for part in parts if part)


def _use(plugin: Plugin) -> str:
    """Return the shortest command that uses a plugin; empty where there is none."""
    argument = (
        " " if plugin.kind in ("method", "sampler", "dataset", "backbone", "detector") else ""
    )
    if not argument:
        return f"```sh\nfsf benchmark {plugin.name}\n```" if plugin.kind == "benchmark" else ""
    cls = Registry().class_of(plugin)
    value = f":{cls.argument.upper()}" if cls.argument and _needed(cls) else ""
    return f"```sh\nfsf run --{plugin.kind} {plugin.name}{value}\n```"


def _needed(cls: Any) -> bool:
    option = inspect.signature(cls.__init__).parameters.get(cls.argument)
    return option is not None and option.default is inspect.Parameter.empty


def _told_facts(facts: dict[str, Any]) -> Iterator[str]:
    rows = []
    for name, label in FACTS.items():
        value = facts.get(name)
        if value in (None, "", []):
            continue
        shown = {True: "yes", False: "no"}.get(value) if isinstance(value, bool) else None
        if name == "preprocessing":
            shown = f"{re.search('size=(.+?),', value)[1]} pixels, normalised"
        if isinstance(value, list):
            shown = ", ".join(map(str, value))
        rows.append((label, shown or escaped(str(value))))
    if rows:
        yield "## Facts"
        yield table(("", ""), rows)


def _options(options: Sequence[dict[str, Any]], doc: Docstring) -> Iterator[str]:
    meanings = doc.sections.get("Args", {})
    yield "## Options"
    if not options:
        yield "None."
        return
    rows = []
    for option in options:
        name = option["option"].rpartition(".")[2]
        default = "required" if option["required"] else f"`{option['default']}`"
        default = default.replace("`None`", "none").replace("`True`", "yes")
        default = default.replace("`False`", "no")
        rows.append((f"`{option['option']}`", option["type"], default, meanings.get(name, "")))
    yield table(("option", "value", "default", "meaning"), rows)


def _columns(name: str) -> Iterator[str]:
    """Yield the metadata columns of a data set that needs no files."""
    [row] = [row for row in datasets() if row.name == name and row.plugin is not None]
    if row.state == "nothing to add" and row.columns:
        yield f"Metadata columns: {', '.join(f'`{column}`' for column in row.columns)}."


def _about(plugin: Plugin, doc: Docstring) -> Iterator[str]:
    """Yield what is published about a data set."""
    about = getattr(Registry().class_of(plugin), "about", None)
    if not isinstance(about, About):
        return
    yield from map(escaped, about.notes)
    rows = [("title", about.title), ("licence", about.licence), ("source", f"<{about.source}>")]
    rows += [("cite", about.citation)]
    yield "## Published facts"
    yield table(("", ""), [(name, value) for name, value in rows if value not in ("", "<>")])
    splits = {**about.splits} or {"published": about.counts}
    cells = [
        (split, part, f"{classes:,}", f"{images:,}" if images else "–")
        for split, parts in splits.items()
        for part, (classes, images) in parts.items()
    ]
    yield table(("split", "part", "classes", "images"), cells)
    yield doc.listed("Splits")
    for name, tree in about.layouts.items():
        yield f"Layout `{name}`:"
        yield f"```text\n{tree}\n```"


def _trained(name: str) -> Iterator[str]:
    rows = [_recipe(recipe) for recipe in recipes(name)]
    if rows:
        yield "## Recipes"
        yield "How it is trained; `fsf recipes show` prints the options that a recipe sets."
        heads = ("recipe", "data set", "shot", "expected", "verified", "source; expected on")
        yield table(heads, rows)


def _recipe(recipe: Recipe) -> tuple[str, ...]:
    values = [f"{value:.1f}" for value in recipe.accuracies]
    ends = "–".join(dict.fromkeys((values[0], values[-1]))) + " %" if values else ""
    return (
        f"`{recipe.name}`" + (f" (`{recipe.spelt_method}`)" if recipe.value else ""),
        ", ".join(recipe.datasets) or "any",
        "any" if recipe.shot is None else str(recipe.shot),
        ends,
        "" if recipe.verified is None else recipe.verified.isoformat(),
        escaped(f"{recipe.source}; {recipe.accuracy_on}" if ends else recipe.source),
    )


def _printed(name: str) -> Iterator[str]:
    found = _printed_values().get(name, [])
    if not found:
        return
    yield "## Printed values"
    yield (
        "What papers print, in percent; the gap in points. "
        "`fsf benchmark` measures the same cells on your data."
    )
    values: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    for cell, value in found:
        values[_cell(cell, value)][LABELS.get(value.measure, value.measure)] = value.value.text()
    several = any(cell.method != name for cell, _ in found)
    measures = [one for one in LABELS.values() if any(one in row for row in values.values())]
    heads = ["paper", "data set", "tasks", "backbone", *(["method"] if several else []), *measures]
    rows = [
        [*(key if several else key[:-1]), *(row.get(one, "") for one in measures)]
        for key, row in values.items()
    ]
    yield table(heads, rows)


def _cell(cell: Cell, value: PrintedValue) -> tuple[str, ...]:
    sampler = cell.sampler
    return (
        f"{value.source} ({value.apart})" if value.apart else value.source,
        f"`{cell.dataset}`",
        f"{sampler['n_way']}-way {sampler['n_shot']}-shot",
        "" if "no backbone" in value.apart else f"`{cell.backbone}`",
        f"`{cell.method}`",
    )


@cache
def _printed_values() -> dict[str, list[tuple[Cell, PrintedValue]]]:
    """Return what installed benchmarks have for each method, with its cell."""
    registry = Registry()
    names = registry.names("method")
    wrappers = [n for n in names if getattr(registry.load("method", n), "argument", "") == "base"]
    methods = [*names, *(f"{one}:{base}" for one in wrappers for base in names)]
    benchmarks = [registry.load("benchmark", name)() for name in registry.names("benchmark")]
    shapes = itertools.product(("random", "fewstab"), (5, 10), (1, 5))
    samplers = [
        {"name": name, "n_way": way, "n_shot": shot, "n_query": 15} for name, way, shot in shapes
    ]
    data = ("miniimagenet", "tieredimagenet", "cub", "metacoco")
    found = defaultdict(list)
    backbones = registry.names("backbone")
    for method, where, backbone, sampler in itertools.product(methods, data, backbones, samplers):
        names_of = {"method": method, "backbone": backbone, "dataset": where}
        cell = Cell(**names_of, sampler=sampler, detector="vit-gpt2")
        for one in benchmarks:
            found[method.partition(":")[0]] += [(cell, value) for value in one.printed(cell)]
    return found


def _reached(name: str) -> Iterator[str]:
    """Yield the rows of the pages of results that are about a method."""
    parts = []
    for path in sorted((DOCS / "results").glob("*.md")):
        lines = path.read_text(encoding="utf-8").splitlines()
        title = section = lines[0].removeprefix("# ")
        head: tuple[str, ...] = ()
        for before, line in itertools.pairwise(lines):
            if line.startswith("#"):
                section = f"{title}: {line.lstrip('# ')}"
            if re.match(r"\| ?:?-", line):
                head = _cells(before)
            mine = re.fullmatch(rf"`({re.escape(name)}(:[^`]*)?)`.*", (_cells(line) or ("",))[0])
            if mine and line.startswith("|") and len(head) == len(_cells(line)):
                parts.append(f"[{section}](../../results/{path.name}):")
                parts.append(table(head, [_cells(line)]))
    if parts:
        yield "## Reached here"
        yield from parts


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip("|").split("|"))


def rules(kind: str) -> list[tuple[str, str]]:
    """Return the name of each check of a kind, and the rule in its docstring."""
    found = []
    for check in checks_for(kind):
        rule = (check.__doc__ or "").replace("``", "`")
        found.append((check.__name__, escaped(" ".join(rule.split()))))
    return found
