"""Figures: declared as values, drawn into files by a renderer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from fsframework.api.components import component
from fsframework.api.formats import writer_of, written
from fsframework.components.registry import Registry
from fsframework.errors import FsfError, OptionError, argument
from fsframework.interfaces.renderer import Renderer
from fsframework.values import FigureDeclaration

__all__ = ["check_figure", "in_notebook", "save_figure"]


def save_figure(
    figure: FigureDeclaration,
    path: str | Path,
    columns: Literal[1, 2] = 1,
    *,
    renderer: str | Mapping[str, Any] | Renderer | type[Renderer] | None = None,
) -> Path:
    """Draw a figure into a file whose suffix says the format, and return its path.

    Args:
        figure: what to draw; without a title if its ``title`` is empty.
        path: of the file, which is replaced if it exists.
        columns: width, in columns of a paper of two columns.
        renderer: what draws it, such as ``altair``, also with options, a class or an instance;
            by default the first installed renderer, by name, that writes the format.

    Raises:
        OptionError: no renderer writes the format, or ``columns`` is neither 1 nor 2.
        PluginError: no renderer is installed, or it cannot be loaded.
        DataError: the figure has nothing to draw.
        FsfError: the file cannot be written.
    """
    path = Path(path)
    if columns not in (1, 2):
        raise OptionError(f"{argument('columns')} must be 1 or 2, not {columns!r}")
    drawer: Renderer = writer_of("renderer", path, renderer, "figure")
    return written(path, lambda file: drawer.draw(figure, file, columns=columns))


def check_figure(path: str | Path) -> None:
    """Check, before any long computation, that a figure can be drawn into a file of this name.

    Raises:
        OptionError: no renderer writes the format.
        PluginError: no renderer is installed, or it cannot be loaded.
    """
    writer_of("renderer", Path(path), None, "figure")


def in_notebook(figure: FigureDeclaration) -> Mapping[str, Any]:
    """Return a figure as the first renderer that can show it in a notebook draws it."""
    registry = Registry()
    for name in registry.names("renderer"):
        try:
            made: Renderer = component(registry, "renderer", name).create()
            if bundle := made.bundle(figure):
                return bundle
        except FsfError:
            continue  # the table of its numbers is shown instead
    return {}
