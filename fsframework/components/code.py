"""What a class and its objects consist of, so that edited code never passes for the old.

Counted are the class as it is in memory (its bases, functions, closures and the globals that they
use, however they got their values) and the text of every module that these come from or import.
Comments, docstrings, layout and what only a type checker reads change no digest. The standard
library, fsframework and installed distributions are not followed: records have their versions.
"""

from __future__ import annotations

import ast
import copyreg
import functools
import importlib.util
import marshal
import re
import struct
import sys
import types
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from fsframework._digest import digest_of
from fsframework.components.package_files import top_level
from fsframework.errors import PluginError

__all__ = ["Code", "code_of", "state_digest"]

_ELSEWHERE = {"site-packages", "dist-packages"}
_AT_RUN_TIME = re.compile(r"\b(import_module|__import__)\b")
_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_LEFT_OUT = frozenset(
    {
        *("__dict__", "__weakref__", "__doc__", "__firstlineno__", "__static_attributes__"),
        *("__abstractmethods__", "_abc_impl", "__parameters__", "__annotations__", "__module__"),
    }
)
"""Entries of a class that do not affect its behaviour, or that repeat its bases."""
_STATELESS = {"_thread", "random", "numpy.random.mtrand"}
"""Modules of locks, and of generators that are seeded around every call."""
_GENERATED = "<string>"
_IMPORTED: dict[str, tuple[Any, str]] = {}
"""The import of each module and the digest of its file, as they were when it was first digested."""
_HAS_DOCSTRING = 0x4000000 if sys.version_info >= (3, 13) else 0


@dataclass(frozen=True)
class Code:
    """The code of a class.

    Args:
        digest: of all that it consists of.
        files: of its own modules, sorted.
        undigested: types of objects that it uses and that cannot be digested; the digest is then
            unique, so that nothing computed with it is reused.
    """

    digest: str
    files: tuple[Path, ...]
    undigested: tuple[str, ...]


def code_of(cls: type[Any], instance: Any = None) -> Code:
    """Digest the code of a class, and the state of an instance if one is given.

    Raises:
        PluginError: a module in memory is not what its file contains.
    """
    walk = _Walk(cls)
    parts = [walk.digest(cls, *([] if instance is None else [instance]))]
    walk.follow_imports()
    parts += chain.from_iterable(sorted(set(walk.files.values())))
    return Code(digest_of(parts), tuple(sorted(walk.files)), tuple(dict.fromkeys(walk.unknown)))


def state_digest(instance: Any) -> str:
    """Digest the attributes of an object, except those that it caches."""
    cls = type(instance)
    kept = {
        name: value
        for name, value in sorted(vars(instance).items())
        if not isinstance(getattr(cls, name, None), functools.cached_property)
    }
    return _Walk(cls).digest(kept)


class _Walk:
    """Visits a value and all that it refers to.

    Attributes:
        package: top-level module of a plugin, whose code counts even where it is installed.
        modules: files of the modules of one's own that were met, by name.
        files: what was read: name of the module, and digest of its code.
        unknown: types of objects that cannot be digested.
    """

    def __init__(self, cls: type[Any]) -> None:
        self.package = top_level(cls.__module__) if hasattr(cls, "_kind") else ""
        self.modules: dict[str, Path] = {}
        self.files: dict[Path, tuple[str, str]] = {}
        self.unknown: list[str] = []
        self._owned: dict[str, bool] = {}

    def digest(self, *values: Any) -> str:
        """Return a digest of values; equal objects at other addresses have the same."""
        seen: dict[int, int] = {}
        alive: list[Any] = []  # or another object could get the address of one that was seen
        parts: list[str] = []
        waiting = [*reversed(values)]
        while waiting:
            value = waiting.pop()
            if isinstance(value, _PLAIN):
                parts.append(f"{type(value).__name__} {value!r}")
            elif id(value) in seen:
                parts.append(f"seen {seen[id(value)]}")
            else:
                seen[id(value)] = len(seen)
                inner = list(self._inner(value))
                alive += [value, inner]
                parts.append(f"{type(value).__name__} {len(inner)}")
                waiting += reversed(inner)
        return digest_of(parts)

    def owns(self, module: str | None) -> bool:
        """Whether a module is one's own: its code may change without a version."""
        if module not in self._owned:
            self._owned[str(module)] = self._is_own(str(module))
        return self._owned[str(module)]

    def _is_own(self, module: str) -> bool:
        if top_level(module) == "fsframework" or top_level(module) in sys.stdlib_module_names:
            return module == "__main__"
        file = _file_of(module)
        if file is None:
            return module not in sys.modules or module == "__main__"
        own = top_level(module) == self.package or _may_change(module, file)
        if own and file.suffix == ".py" and file.exists():
            self.modules[module] = file
        return own

    def _inner(self, value: Any) -> Iterator[Any]:
        """Yield what a value consists of."""
        for types_, inner in _INNER:
            if isinstance(value, types_):
                yield from inner(self, value)
                return
        # NumPy and PyTorch are there if an object of theirs is.
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            yield from (value.requires_grad, str(value.dtype), *value.shape)
            raw = value.detach().cpu().contiguous().flatten().view(torch.uint8)
            yield digest_of(raw.numpy())
        elif numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            yield value.tolist() if value.dtype.hasobject else digest_of(value)
        elif "__wrapped__" in getattr(value, "__dict__", ()):
            yield value.__wrapped__
        else:
            yield from self._reduced(value)

    def follow_imports(self) -> None:
        """Read the files of the modules that were met, and of what they import of one's own."""
        waiting = list(self.modules)
        while waiting:
            name = waiting.pop()
            file = self.modules[name]
            if file in self.files:
                continue
            source = _read(file, _state(file))
            # Of a script only that counts which a class refers to, and what it imports. The name
            # of a single file is not its code.
            self.files[file] = (name if "." in name else "", source.digest)
            if name == "__main__":
                self.files[file] = ("", "")
            else:
                _demand_imported(name, file, source)
            for one in source.imports:
                waiting += self._imported(name, one)
            if source.dynamic:
                waiting += self._all_of(top_level(name))

    def _imported(self, module: str, one: _Import) -> list[str]:
        """Return the modules of one's own that an import of a module asks for."""
        is_package = self.modules[module].name == "__init__.py"
        try:
            base = importlib.util.resolve_name(
                "." * one.level + one.module, module if is_package else module.rpartition(".")[0]
            )
        except ImportError:
            return []  # nobody can import this module
        inner = f"{base}.{one.name}"
        if one.name and self.owns(inner) and inner in self.modules:
            return self._all_of(inner)
        if not self.owns(base) or base not in self.modules:
            return []
        file = self.modules[base]
        offers = _read(file, _state(file)).imports if file.name == "__init__.py" else ()
        for offered in offers:
            if offered.called == one.name and offered != one:
                return self._imported(base, offered)
        # The package itself defines the name, or imports it when it is asked for.
        return self._all_of(base)

    def _all_of(self, module: str) -> list[str]:
        """Return a module, and of a package all that is in it."""
        spec, found = _spec_of(module), {}
        for folder in (spec and spec.submodule_search_locations) or ():
            for file in Path(folder).rglob("*.py"):
                parts = file.relative_to(folder).with_suffix("").parts
                found[".".join([module, *parts]).removesuffix(".__init__")] = file
        self.modules |= found
        return list(found) or [module]

    def _set(self, value: Iterable[Any]) -> Iterator[Any]:
        yield from sorted(map(self.digest, value))

    def _mapping(self, value: Mapping[Any, Any]) -> Iterator[Any]:
        yield from chain.from_iterable(value.items())

    def _class(self, cls: type[Any]) -> Iterator[Any]:
        yield cls.__qualname__
        if not self.owns(cls.__module__):
            yield cls.__module__
            own = (one for one in vars(cls).values() if isinstance(one, types.FunctionType))
            yield from (one for one in own if self.owns(one.__module__))
            return
        yield from cls.__bases__
        generated = "__dataclass_fields__" in vars(cls)
        for name, value in sorted(vars(cls).items()):
            code = getattr(value, "__code__", None)
            # What ``dataclass`` writes follows from the fields.
            if name not in _LEFT_OUT and not (
                generated and code is not None and code.co_filename == _GENERATED
            ):
                yield from (name, value)

    def _function(self, function: Any) -> Iterator[Any]:
        yield function.__qualname__
        code, cells = function.__code__, function.__closure__ or ()
        held = [cell.cell_contents for cell in cells if cell != types.CellType()]  # not empty
        if not self.owns(function.__module__):
            yield function.__module__
            yield from (one for one in held if isinstance(one, (types.FunctionType, type)))
            return
        if not self._is_of_its_file(function):
            yield code
        yield from (function.__defaults__, function.__kwdefaults__, vars(function), *held)
        yield from self._used(_names(code), function.__globals__)

    def _used(
        self, names: set[str], held: Mapping[str, Any], above: tuple[types.ModuleType, ...] = ()
    ) -> Iterator[Any]:
        """Yield what names may refer to, in a module and in those of one's own that it has."""
        for name in sorted(names & held.keys()):
            value = held[name]
            yield from (name, value)
            is_new = isinstance(value, types.ModuleType) and value not in above
            if is_new and self.owns(value.__name__):
                yield from self._used(names, vars(value), (*above, value))

    def _is_of_its_file(self, function: Any) -> bool:
        """Whether the text of a file, which is digested with its imports, has a function's code.

        Raises:
            PluginError: the function was read from the file, and is no longer what this contains.
        """
        file = self.modules.get(function.__module__)
        if file is None or function.__code__.co_filename != str(file):
            return False
        if _code_digest(function.__code__) in _read(file, _state(file)).codes:
            return True
        spec = getattr(sys.modules[function.__module__], "__spec__", None)
        if type(getattr(spec, "loader", None)) is SourceFileLoader:
            raise _edited(file)
        return False  # its loader has rewritten it, as pytest's does for assertions

    def _module(self, module: types.ModuleType) -> Iterator[Any]:
        self.owns(module.__name__)
        yield f"{module.__name__} {getattr(module, '__version__', '')}"

    def _builtin(self, value: Any) -> Iterator[Any]:
        yield value.__qualname__
        owner = value.__self__
        yield owner.__name__ if isinstance(owner, types.ModuleType) else owner

    def _reduced(self, value: Any) -> Iterator[Any]:
        """Yield what makes an object again, as ``copyreg`` says; nothing is serialised."""
        kind = type(value)
        yield kind
        if kind.__module__ in _STATELESS:
            return
        try:
            how = copyreg.dispatch_table.get(kind)
            found = value.__reduce_ex__(4) if how is None else how(value)
        except Exception:  # whatever a class raises that cannot be taken apart
            self.unknown.append(f"{kind.__module__}.{kind.__qualname__}")
            yield uuid.uuid4().hex
            return
        if isinstance(found, str):
            yield f"{getattr(value, '__module__', '')} {found}"
            return
        yield from found[:3]
        yield from (list(one) for one in found[3:5] if one is not None)


_INNER: tuple[tuple[Any, Any], ...] = (
    ((tuple, list), lambda walk, value: iter(value)),
    ((set, frozenset), _Walk._set),
    (Mapping, _Walk._mapping),
    ((staticmethod, classmethod), lambda walk, value: iter((value.__func__,))),
    (types.MethodType, lambda walk, value: iter((value.__func__, value.__self__))),
    (property, lambda walk, value: iter((value.fget, value.fset, value.fdel))),
    (functools.cached_property, lambda walk, value: iter((value.func,))),
    (types.FunctionType, _Walk._function),
    (types.BuiltinFunctionType, _Walk._builtin),
    (types.CodeType, lambda walk, value: iter((_code_digest(value),))),
    (types.ModuleType, _Walk._module),
    (type, _Walk._class),
)
"""What a value consists of, by its type."""


def _names(code: types.CodeType) -> set[str]:
    """Return the global names that a function and those within it refer to."""
    inner = [_names(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return set(code.co_names).union(*inner)


def _code_digest(code: types.CodeType) -> str:
    """Digest what a function does: neither its docstring nor where it stands in its file."""
    return digest_of(marshal.dumps(_bare(code), 2))  # later versions depend on what is interned


def _bare(code: types.CodeType) -> types.CodeType:
    constants = [_bare(c) if isinstance(c, types.CodeType) else c for c in code.co_consts]
    has = code.co_flags & _HAS_DOCSTRING if _HAS_DOCSTRING else not code.co_name.startswith("<")
    if has and constants and isinstance(constants[0], str):
        constants[0] = None
    return code.replace(
        co_consts=tuple(constants), co_filename="", co_firstlineno=1, co_linetable=b""
    )


def _file_of(module: str) -> Path | None:
    """Return the file of a module, if it has one, importing nothing."""
    loaded, spec = sys.modules.get(module), _spec_of(module)
    file = getattr(loaded, "__file__", None) or (spec and spec.has_location and spec.origin)
    return Path(file).absolute() if file else None


def _spec_of(module: str) -> ModuleSpec | None:
    if (loaded := sys.modules.get(module)) is not None:
        return getattr(loaded, "__spec__", None)
    package = module.rpartition(".")[0]
    try:
        if not package:
            return importlib.util.find_spec(module)
        above = _spec_of(package)
        return above and PathFinder.find_spec(module, above.submodule_search_locations)
    except (ImportError, ValueError):
        return None


def _may_change(module: str, file: Path) -> bool:
    """Whether a module may change without a version, as scripts and editable installs do."""
    if _ELSEWHERE.intersection(file.resolve().parts):
        return False
    # The folder that the top-level module is imported from.
    root = file.parents[len(module.split(".")) - (file.name != "__init__.py")]
    return not any(root.glob(f"{top_level(module)}-*.dist-info"))


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
        codes: digests of its functions.
        imports: that it makes; of a package also those for type checkers, which say where a name
            comes from that the package imports when it is asked for.
        dynamic: whether it imports modules whose names are known only when it runs.
        outdated: bytecode that Python takes for its own, and that is of another text.
    """

    digest: str
    codes: frozenset[str] = frozenset()
    imports: tuple[_Import, ...] = ()
    dynamic: bool = False
    outdated: Path | None = None


def _demand_imported(name: str, file: Path, source: _Source) -> None:
    """Check that a module, if it is in memory, was made of the text that its file has now.

    Raises:
        PluginError: the file was edited since, or Python took its old bytecode for that of the new
            text, because size and time are equal.
    """
    if source.outdated is not None:
        raise PluginError(
            f"{file}: Python takes the bytecode of an earlier text for that of this file, since "
            f"its size and time are the same; remove {source.outdated} and start again"
        )
    spec = getattr(sys.modules.get(name), "__spec__", None)
    then, digest = _IMPORTED.get(name, (None, ""))
    if spec is not None and then is spec and digest != source.digest:  # nor was it reloaded
        raise _edited(file)
    _IMPORTED[name] = spec, source.digest


def _edited(file: Path) -> PluginError:
    return PluginError(
        f"{file}: was edited after its import, so this process has its old code; reload it "
        "(importlib.reload), or start again"
    )


def _state(file: Path) -> tuple[int, ...]:
    """Return what changes with a file, also where its size and its time are set back."""
    stat = file.stat()
    return stat.st_ino, stat.st_ctime_ns, stat.st_size


@functools.lru_cache(maxsize=1024)
def _read(file: Path, _state: tuple[int, ...]) -> _Source:
    """Read a file once, and again when it has changed."""
    raw = file.read_bytes()
    try:
        tree = ast.parse(raw)
        code = compile(raw, str(file), "exec", dont_inherit=True)
        whole = list(ast.walk(tree))
        tree = _Code().visit(tree)
        text = ast.unparse(tree)
    except (SyntaxError, ValueError):  # of another Python; nothing imports it here
        return _Source(digest_of(raw))
    nodes = whole if file.name == "__init__.py" else ast.walk(tree)
    imports = tuple(chain.from_iterable(map(_imports_of, nodes)))
    return _Source(
        digest_of(text),
        frozenset(_codes(code)),
        imports,
        bool(_AT_RUN_TIME.search(text)),
        _outdated_bytecode(file, code),
    )


def _outdated_bytecode(file: Path, code: types.CodeType) -> Path | None:
    """Return a file of bytecode whose header fits a file, if its code does not."""
    path = Path(importlib.util.cache_from_source(str(file)))
    stat = file.stat()
    header = struct.pack("<3I", 0, int(stat.st_mtime) & 0xFFFFFFFF, stat.st_size & 0xFFFFFFFF)
    try:
        raw = path.read_bytes()
        fits = raw.startswith(importlib.util.MAGIC_NUMBER + header)
        # Only what Python itself would load, and in the way it does.
        found = marshal.loads(raw[16:]) if fits else code
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return path if _code_digest(found) != _code_digest(code) else None


def _codes(code: types.CodeType) -> Iterator[str]:
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield _code_digest(one)
            yield from _codes(one)


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
