"""Digests of the code of a class, so that edited code never passes for the old.

A class of a package or a script is digested by the modules that it consists of, and by what they
import of their own package. Comments, docstrings, layout and what only a type checker reads change
no digest. Nothing is imported to find it.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import types
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from fsframework._digest import digest_of
from fsframework.components.package_files import top_level

__all__ = ["code_digest"]

_ELSEWHERE = {"site-packages", "dist-packages"}
_AT_RUN_TIME = re.compile(r"\b(import_module|__import__)\b")
_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_LEFT_OUT = frozenset(
    {
        *("__dict__", "__weakref__", "__doc__", "__firstlineno__", "__static_attributes__"),
        *("__abstractmethods__", "_abc_impl", "__parameters__", "__annotations__"),
    }
)
"""Entries of a class that do not affect its behaviour, or that repeat its bases."""


def code_digest(cls: type[Any]) -> str:
    """Digest the code of a class: its module and what that imports, or the class itself.

    The modules of its bases count likewise. Imports are followed within the package of a module;
    those from the standard library, from fsframework and from other installed distributions are
    not: records have their versions.

    A class typed into a notebook or a shell has no file: it is digested with its methods, its bases
    and everything that they refer to there. What cannot be digested makes the digest unique, so
    that nothing computed with it is reused.
    """
    if _file_of(cls.__module__) is None:
        return digest_of(*_parts(cls, {}))
    found: dict[str, str] = {}
    for name in dict.fromkeys(base.__module__ for base in cls.__mro__):
        file = _file_of(name)
        if file is not None and (
            top_level(name) == top_level(cls.__module__) or _is_in_work(name, file)
        ):
            depth = len(name.split(".")) - (file.name != "__init__.py")
            _follow(file, file.parents[depth] / top_level(name), found)
    return digest_of(*chain.from_iterable(sorted(found.items())))


def _file_of(module: str) -> Path | None:
    """Return the file of a loaded module; a module of a shell or a notebook has none."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file) if file is not None and Path(file).exists() else None


def _is_in_work(name: str, file: Path) -> bool:
    """Whether a module may change without a version, as scripts and editable installs do."""
    top = top_level(name)
    known = top == "fsframework" or top in sys.stdlib_module_names
    if known or _ELSEWHERE.intersection(file.resolve().parts):
        return False
    depth = len(name.split(".")) - (file.name != "__init__.py")
    return not any(file.parents[depth].glob(f"{top}-*.dist-info"))


class _Import(NamedTuple):
    """An import: dots before the module, the module, what of it (if anything), as which name."""

    level: int
    module: str
    name: str
    called: str


@dataclass(frozen=True)
class _Source:
    """A file that was read.

    Args:
        digest: of its code.
        imports: that it makes; of a package also those for type checkers, which say where a name
            comes from that the package imports when it is asked for.
        dynamic: whether it imports modules whose names are known only when it runs.
    """

    digest: str
    imports: tuple[_Import, ...]
    dynamic: bool


def _follow(file: Path, top: Path, found: dict[str, str]) -> None:
    """Add the digests of a file and of what it imports of its package, whose folder is ``top``."""
    waiting = [file]
    while waiting:
        file = waiting.pop()
        key = file.relative_to(top.parent).as_posix()
        if key in found:
            continue
        stat = file.stat()
        source = _read(file, stat.st_mtime_ns, stat.st_size)
        found[key] = source.digest
        waiting += chain.from_iterable(_imported(file, top, one) for one in source.imports)
        waiting += top.rglob("*.py") if source.dynamic else ()


def _imported(file: Path, top: Path, one: _Import) -> Iterable[Path]:
    """Return the files of the same package that an import of a file asks for."""
    if not one.level and top_level(one.module) != top.name:
        return ()
    folder = file.parents[one.level - 1] if one.level else top.parent
    path = folder.joinpath(*filter(None, one.module.split(".")))
    found = (_module_at(path / one.name) if one.name else None) or _module_at(path)
    if found is None or found.name != "__init__.py":
        return () if found is None else (found,)
    stat = found.stat()
    for offered in _read(found, stat.st_mtime_ns, stat.st_size).imports:
        if found.parent == path and offered.called == one.name:
            return _imported(found, top, offered)
    # The package itself defines the name, or imports it when it is asked for.
    return found.parent.rglob("*.py")


def _module_at(path: Path) -> Path | None:
    files = (path / "__init__.py", path.with_name(f"{path.name}.py"))
    return next((file for file in files if file.is_file()), None)


@functools.lru_cache(maxsize=1024)
def _read(file: Path, changed: int, size: int) -> _Source:
    """Read a file once, and again when it has changed."""
    del changed, size
    raw = file.read_bytes()
    try:
        tree = ast.parse(raw)
        whole = list(ast.walk(tree))
        tree = _Code().visit(tree)
        text = ast.unparse(tree)
    except (SyntaxError, ValueError):  # of another Python; nothing imports it here
        return _Source(digest_of(raw), (), dynamic=False)
    nodes = whole if file.name == "__init__.py" else ast.walk(tree)
    imports = tuple(chain.from_iterable(map(_imports_of, nodes)))
    return _Source(digest_of(text), imports, dynamic=bool(_AT_RUN_TIME.search(text)))


def _imports_of(node: ast.AST) -> list[_Import]:
    if isinstance(node, ast.ImportFrom):
        return [
            _Import(node.level, node.module or "", alias.name, alias.asname or alias.name)
            for alias in node.names
        ]
    if isinstance(node, ast.Import):
        return [_Import(0, alias.name, "", "") for alias in node.names]
    return []


class _Code(ast.NodeTransformer):
    """Removes docstrings and what only a type checker reads."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Remove a statement that is only a constant."""
        return None if isinstance(node.value, ast.Constant) else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Remove what is only for type checkers."""
        if "TYPE_CHECKING" in ast.dump(node.test):
            node.test, node.body = ast.Constant(value=False), []
        return self.generic_visit(node)


def _parts(value: Any, seen: dict[int, int]) -> Iterator[str | bytes]:
    """Yield the parts of a value, each object once."""
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}"
        return
    if id(value) in seen:
        yield f"seen {seen[id(value)]}"
        return
    seen[id(value)] = len(seen)
    inner_of = next((inner for types_, inner in _INNER if isinstance(value, types_)), _unknown)
    inner = list(inner_of(value))
    yield f"{type(value).__name__} {len(inner)}"
    for one in inner:
        yield from _parts(one, seen)


# What follows yields only what the value itself holds, and texts: ``seen`` knows objects by their
# addresses, which those made here would pass on to others.


def _class(cls: type[Any]) -> Iterator[Any]:
    yield f"{cls.__module__}.{cls.__qualname__}"
    if _file_of(cls.__module__) is None:
        yield from cls.__bases__
        for item in sorted(vars(cls).items()):
            yield from item if item[0] not in _LEFT_OUT else ()


def _function(function: Any) -> Iterator[Any]:
    yield f"{function.__module__}.{function.__qualname__}"
    if _file_of(function.__module__) is None:
        yield from (function.__code__, function.__defaults__, function.__kwdefaults__)
        yield from (cell.cell_contents for cell in function.__closure__ or ())
        for name in sorted(_names(function.__code__) & function.__globals__.keys()):
            yield from (name, function.__globals__[name])


def _code(code: types.CodeType) -> Iterator[Any]:
    yield code.co_code
    yield " ".join((*code.co_names, *code.co_varnames, *code.co_freevars))
    yield from code.co_consts


def _unknown(value: Any) -> Iterator[Any]:
    if isinstance(value, types.ModuleType):
        yield f"{value.__name__} {getattr(value, '__version__', '')}"
    elif hasattr(value, "tobytes") and hasattr(value, "dtype"):
        yield f"{value.dtype} {value.shape}"
        yield bytes(value.tobytes())
    elif getattr(value, "__module__", None) and getattr(value, "__qualname__", None):
        yield f"{value.__module__}.{value.__qualname__}"
    else:
        yield uuid.uuid4().hex


_INNER: tuple[tuple[Any, Callable[[Any], Iterable[Any]]], ...] = (
    ((tuple, list), iter),
    ((set, frozenset), lambda held: sorted(held, key=lambda one: digest_of(*_parts(one, {})))),
    (Mapping, lambda held: chain.from_iterable(held.items())),
    ((staticmethod, classmethod), lambda method: (method.__func__,)),
    (property, lambda made: (made.fget, made.fset, made.fdel)),
    (functools.cached_property, lambda made: (made.func,)),
    (types.FunctionType, _function),
    (types.CodeType, _code),
    (type, _class),
)
"""What a value consists of, by its type."""


def _names(code: types.CodeType) -> set[str]:
    """Return the global names that a function and those within it refer to."""
    inner = [_names(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return set(code.co_names).union(*inner)
