"""Figures and tables in files, written by the plugin that has the format of the file's name."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from fsf_reports.interfaces import Renderer, TableWriter
from fsf_reports.values import FigureDeclaration, TableDeclaration
from fsf_statistics import PathNames
from fsframework.api.components import component
from fsframework.api.session import open_session
from fsframework.errors import (
    DataError,
    FsfError,
    OptionError,
    PluginError,
    argument,
    close_matches,
    install_hint,
)
from fsframework.interfaces import contained
from fsframework.values import atomic_path

__all__ = ["check_figure", "check_tables", "in_notebook", "save_figure", "save_tables"]


def save_figure(
    figure: FigureDeclaration,
    path: str | Path,
    columns: Literal[1, 2] = 1,
    *,
    renderer: str | Mapping[str, Any] | Renderer | type[Renderer] | None = None,
    plugins: Sequence[Path] = (),
) -> Path:
    """Draw a figure into a file whose suffix says the format, and return its path.

    Args:
        figure: what to draw; without a title if its ``title`` is empty.
        path: of the file, which is replaced if it exists.
        columns: width, in columns of a paper of two columns.
        renderer: what draws it, such as ``altair``, also with options, a class or an instance;
            by default the first installed renderer, by name, that writes the format.
        plugins: files with more renderers.

    Raises:
        OptionError: no renderer writes the format, or ``columns`` is neither 1 nor 2.
        PluginError: no renderer is installed, or it cannot be loaded.
        DataError: the figure has nothing to draw.
        FsfError: the file cannot be written.
    """
    path = Path(path)
    if columns not in (1, 2):
        raise OptionError(f"{argument('columns')} must be 1 or 2, not {columns!r}")
    drawer: Renderer = _writer_of("renderer", path, renderer, plugins)
    shown = PathNames().in_text(figure)
    return _written(path, lambda file: drawer.draw(shown, file, columns=columns))


def check_figure(path: str | Path, plugins: Sequence[Path] = (), besides: str = "") -> None:
    """Check, before any long computation, that a figure can be drawn into a file of this name.

    Args:
        path: of the file.
        plugins: files with more renderers.
        besides: another suffix that messages name, without the dot.

    Raises:
        OptionError: no renderer writes the format.
        PluginError: no renderer is installed, or it cannot be loaded.
    """
    _writer_of("renderer", Path(path), None, plugins, besides)


def in_notebook(figure: FigureDeclaration) -> Mapping[str, Any]:
    """Return a figure as the first renderer that can show it in a notebook draws it."""
    registry = open_session(progress=False).registry
    for name in registry.names("renderer"):
        try:
            made: Renderer = component(registry, "renderer", name).create()
            if bundle := made.bundle(figure):
                return bundle
        except FsfError:
            continue  # the table of its numbers is shown instead
    return {}


def save_tables(
    tables: TableDeclaration | Sequence[TableDeclaration],
    path: str | Path,
    *,
    writer: str | Mapping[str, Any] | TableWriter | type[TableWriter] | None = None,
    plugins: Sequence[Path] = (),
) -> Path:
    """Write tables into a file whose suffix says the format, and return its path.

    Args:
        tables: one or several, which come in this order.
        path: of the file, which is replaced if it exists.
        writer: what writes them, such as ``plain-tables``, also with options, a class or an
            instance; by default the first installed writer, by name, that writes the format.
        plugins: files with more writers.

    Raises:
        OptionError: no writer writes the format.
        PluginError: no writer is installed, or it cannot be loaded.
        DataError: there are no tables.
        FsfError: the file cannot be written.
    """
    several = PathNames().in_text([tables] if isinstance(tables, TableDeclaration) else [*tables])
    if not several:
        raise DataError(f"{path}: there are no tables to write")
    made: TableWriter = _writer_of("table", Path(path), writer, plugins)
    return _written(Path(path), lambda file: made.write(several, file))


def check_tables(path: str | Path, plugins: Sequence[Path] = ()) -> None:
    """Check, before any long computation, that tables can be written to a file of this name.

    Args:
        path: of the file.
        plugins: files with more writers.

    Raises:
        OptionError: no writer writes the format.
        PluginError: no writer is installed, or it cannot be loaded.
    """
    _writer_of("table", Path(path), None, plugins)


def _writer_of(
    kind: str, path: Path, asked: Any, plugins: Sequence[Path], besides: str = ""
) -> Any:
    """Return the component of a kind that writes files with the suffix of a path.

    Args:
        kind: whose classes declare ``formats``: ``renderer`` or ``table``.
        path: of the file.
        asked: a name, a mapping of a name and options, a class or an instance; ``None`` for the
            first installed one, by name, that writes the format.
        plugins: files with more of them.
        besides: another suffix that messages name, without the dot.

    Raises:
        OptionError: none of them writes the format.
        PluginError: none is installed, or it cannot be loaded.
    """
    registry = open_session(progress=False, plugins=plugins).registry
    called = "figure" if kind == "renderer" else "table"
    wanted = path.suffix.lower().removeprefix(".")
    names = registry.names(kind) if asked is None else [asked]
    if not names:
        raise PluginError(
            f"nothing is installed that writes a {called}: {install_hint('fsf-reports')}"
        )
    formats = [besides] if besides else []
    for one in names:
        made = component(registry, kind, one).create()
        if wanted in made.formats:
            return made
        formats += made.formats
    hint = close_matches(wanted, formats)
    allowed = ", ".join(f".{name}" for name in dict.fromkeys(formats))
    raise OptionError(f"{path}: the name of a {called} must end in one of {allowed}{hint}")


@contained()
def _written(path: Path, write: Callable[[Path], None]) -> Path:
    """Write a file whole or not at all, and return its path.

    Args:
        path: of the file, which is replaced if it exists.
        write: takes the path of a file with the same suffix, in an empty folder.

    Raises:
        FsfError: the file cannot be written.
    """
    with atomic_path(path) as temporary, tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / f"made{path.suffix.lower()}"
        write(made)
        temporary.write_bytes(made.read_bytes())
    return path
