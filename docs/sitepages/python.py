"""The reference of the Python interface, made from docstrings."""

from __future__ import annotations

import inspect

import fsframework
from sitepages import calls
from sitepages.markdown import read_docstring, table, toctree

__all__ = ["pages"]

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
        summary = read_docstring(inspect.getdoc(value) or "").summary
        (classes if is_class else functions).append((f"[`fsf.{name}`]({page})", summary))
    names = [page.removeprefix("reference/python/") for page in found]
    heads = ("name", "what it is")
    lists = [f"## Functions\n\n{table(heads, functions)}", f"## Classes\n\n{table(heads, classes)}"]
    errors = "```{eval-rst}\n.. automodule:: fsframework.errors\n   :members:\n```\n"
    found["reference/python/errors.md"] = f"# Errors\n\n{errors}"
    found["reference/python/commands.md"] = calls.page()
    lists.append("[Errors](errors.md) that a call may raise. [Commands as calls](commands.md).\n")
    found["reference/python/index.md"] = "\n".join(
        [HEAD, *lists, toctree([*names, "errors.md", "commands.md"])]
    )
    return found
