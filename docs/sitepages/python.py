"""The reference of the Python interface, made from docstrings."""

from __future__ import annotations

import inspect
from importlib import import_module

import fsframework
from sitepages import calls
from sitepages.markdown import read_docstring, table, toctree

__all__ = ["pages"]

MODULES = (
    "fsframework.interfaces",
    "fsframework.values",
    "fsf_reports.interfaces",
    "fsf_reports.values",
    "fsf_benchmarks.interfaces",
)
"""What plugins may import, beside the errors; each module has a page."""

HEAD = """# Python

Everything is imported as `import fsframework as fsf`. [Guide](../../guides/python.md).
"""


def pages() -> dict[str, str]:
    """Return a page for each public name of the package, and the list of them."""
    found, functions, classes = {}, [], []
    for name in sorted(fsframework.__all__, key=str.lower):
        value = getattr(fsframework, name)
        is_class = isinstance(value, type)
        page = (
            f"{name}-class.md" if is_class and name.lower() in fsframework.__all__ else f"{name}.md"
        )
        directive = "autoclass" if is_class else "autofunction"
        members = "\n   :members:\n   :inherited-members: tuple, dict" if is_class else ""
        text = f".. {directive}:: fsframework.{name}{members}"
        found[f"reference/python/{page}"] = f"# fsf.{name}\n\n```{{eval-rst}}\n{text}\n```\n"
        (classes if is_class else functions).append((f"[`fsf.{name}`]({page})", _summary(value)))
    names = [page.removeprefix("reference/python/") for page in found]
    heads = ("name", "what it is")
    lists = [f"## Functions\n\n{table(heads, functions)}", f"## Classes\n\n{table(heads, classes)}"]
    errors = "```{eval-rst}\n.. automodule:: fsframework.errors\n   :members:\n```\n"
    found["reference/python/errors.md"] = f"# Errors\n\n{errors}"
    found["reference/python/commands.md"] = calls.page()
    lists.append("[Errors](errors.md) that a call may raise. [Commands as calls](commands.md).\n")
    modules = [(f"[`{name}`]({name}.md)", _summary(import_module(name))) for name in MODULES]
    lists.append(f"## For plugins\n\n{table(heads, modules)}")
    found.update({f"reference/python/{name}.md": _module_page(name) for name in MODULES})
    below = [*names, "errors.md", "commands.md", *(f"{name}.md" for name in MODULES)]
    found["reference/python/index.md"] = "\n".join([HEAD, *lists, toctree(below)])
    return found


def _module_page(name: str) -> str:
    """Return the page of a module: a heading for each of its names, under which it is described."""
    module = import_module(name)
    parts = [f"# {name}", _summary(module)]
    for public in module.__all__:
        value = getattr(module, public)
        array = isinstance(getattr(value, "__origin__", None), type)  # NumPy's text would be shown
        if array or (isinstance(value, type) and issubclass(value, Exception)):
            continue
        directive, members = "autodata", "\n   :no-value:"
        if isinstance(value, type):
            directive, members = "autoclass", "\n   :members:"
        elif inspect.isfunction(value):
            directive, members = "autofunction", ""
        # Without a target of its own: what names it elsewhere may mean another page.
        text = f".. {directive}:: {name}.{public}{members}\n   :no-index:"
        parts += [f"## {public}", f"```{{eval-rst}}\n{text}\n```"]
    return "\n\n".join(parts) + "\n"


def _summary(value: object) -> str:
    return read_docstring(inspect.getdoc(value) or "").summary
