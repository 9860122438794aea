"""Digests of the source of modules, and of what they import of their own package.

Comments, docstrings, layout and what only a type checker reads change no digest. Nothing is
imported to find it.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fsframework._digest import digest_of

__all__ = ["module_file", "sources_digest"]

_ELSEWHERE = {"site-packages", "dist-packages"}
_AT_RUN_TIME = {"import_module", "__import__"}


@dataclass(frozen=True)
class _Source:
    """A file that was read.

    Args:
        digest: of its code.
        imports: module and name of each import; the name is empty for ``import MODULE``. Relative
            ones begin with dots.
        offers: what each name stands for that a package imports, also for type checkers only.
        dynamic: whether it imports modules whose names are known only when it runs.
    """

    digest: str
    imports: tuple[tuple[str, str], ...]
    offers: dict[str, tuple[str, str]]
    dynamic: bool


def module_file(name: str) -> Path | None:
    """Return the file of a loaded module; a module of a shell or a notebook has none."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return Path(file) if file is not None and Path(file).exists() else None


def sources_digest(cls: type) -> str:
    """Digest the modules of a class and of its bases, and what these import.

    Imports are followed within the package of a module. Those from the standard library, from
    fsframework and from other installed distributions are not: records have their versions.
    """
    top = cls.__module__.partition(".")[0]
    found: dict[str, str] = {}
    for name in dict.fromkeys(base.__module__ for base in cls.__mro__):
        file = module_file(name)
        if file is not None and (name.partition(".")[0] == top or _is_in_work(name, file)):
            depth = len(name.split(".")) - (file.name != "__init__.py")
            _Package(file.parents[depth], name.partition(".")[0], found).follow(name, file)
    return digest_of(*(part for name in sorted(found) for part in (name, found[name])))


def _is_in_work(name: str, file: Path) -> bool:
    """Whether a module may change without a version, as scripts and editable installs do."""
    top = name.partition(".")[0]
    known = top == "fsframework" or top in sys.stdlib_module_names
    return not known and not _ELSEWHERE.intersection(file.parts)


@dataclass(frozen=True)
class _Package:
    """A top-level package whose modules are followed.

    Args:
        root: the folder that contains it.
        name: of the package.
        found: digests of the modules that were read, by module; added to.
    """

    root: Path
    name: str
    found: dict[str, str] = field(default_factory=dict)

    def follow(self, module: str, file: Path) -> None:
        """Read a module and what it imports."""
        key = module if "." in module else file.name
        if key in self.found:
            return
        source = _read(file)
        self.found[key] = source.digest
        for base, name in source.imports:
            self._import(_absolute(base, module, file), name)
        if source.dynamic:
            self._take_all(self.root / self.name)

    def _import(self, module: str, name: str) -> None:
        if module.partition(".")[0] != self.name:
            return
        if name and (inner := self._file(f"{module}.{name}")):
            module, file, name = f"{module}.{name}", inner, ""
        elif (outer := self._file(module)) is None:
            return
        else:
            file = outer
        if file.name != "__init__.py":
            self.follow(module, file)
        elif name in (offers := _read(file).offers):
            base, original = offers[name]
            self._import(_absolute(base, module, file), original)
        else:
            # The package itself defines the name, or imports it when it is asked for.
            self._take_all(file.parent)

    def _file(self, module: str) -> Path | None:
        path = self.root.joinpath(*module.split("."))
        for file in (path / "__init__.py", path.with_name(f"{path.name}.py")):
            if file.is_file():
                return file
        return None

    def _take_all(self, folder: Path) -> None:
        for file in sorted(folder.rglob("*.py")):
            inner = file.relative_to(self.root).with_suffix("")
            parts = inner.parts[:-1] if inner.name == "__init__" else inner.parts
            self.found.setdefault(".".join(parts), _read(file).digest)


def _absolute(base: str, module: str, file: Path) -> str:
    """Return the absolute name of an import that a module makes."""
    name = base.lstrip(".")
    level = len(base) - len(name)
    if not level:
        return name
    above = module.split(".")
    above = above[: len(above) - level + (file.name == "__init__.py")]
    return ".".join([*above, name] if name else above)


def _read(file: Path) -> _Source:
    stat = file.stat()
    return _read_once(file, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=1024)
def _read_once(file: Path, changed: int, size: int) -> _Source:
    """Read a file once, and again when it has changed."""
    del changed, size
    raw = file.read_bytes()
    try:
        tree = ast.parse(raw)
    except (SyntaxError, ValueError):  # of another Python; nothing imports it here
        return _Source(digest_of(raw), (), {}, dynamic=False)
    shape: list[str] = []
    imports: list[tuple[str, str]] = []
    _walk(tree, shape, imports)
    offers = {
        alias.asname or alias.name: ("." * node.level + (node.module or ""), alias.name)
        for node in (ast.walk(tree) if file.name == "__init__.py" else ())
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return _Source(
        digest_of(shape), tuple(imports), offers, dynamic=not _AT_RUN_TIME.isdisjoint(shape)
    )


def _walk(node: ast.AST, shape: list[str], imports: list[tuple[str, str]]) -> None:
    """Add the code of a node to ``shape``, the same for every version of Python."""
    shape.append(type(node).__name__)
    if isinstance(node, ast.ImportFrom):
        base = "." * node.level + (node.module or "")
        imports += [(base, alias.name) for alias in node.names]
    elif isinstance(node, ast.Import):
        imports += [(alias.name, "") for alias in node.names]
    for name, value in _fields(node):
        shape.append(name)
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, ast.AST):
                _walk(one, shape, imports)
            else:
                shape.append(one if isinstance(one, str) and name != "value" else repr(one))
    shape.append("")


def _fields(node: ast.AST) -> Iterator[tuple[str, object]]:
    """Yield what a node consists of, without docstrings and what only a type checker reads."""
    for name in node._fields:
        value = getattr(node, name, None)
        if name == "body" and isinstance(value, list):
            value = _code(node, value)
        if value is not None and value != [] and name != "ctx":
            yield name, value


def _code(node: ast.AST, body: list[ast.stmt]) -> list[ast.stmt]:
    if isinstance(node, ast.If):
        return [] if "TYPE_CHECKING" in ast.dump(node.test) else body
    first = body[0] if body else None
    text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
    return body[1:] if text and documented else body
