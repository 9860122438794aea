"""What a class and its objects consist of, so that edited code never passes for the old.

Counted are the class as it is in memory (its bases, functions, closures and the globals that they
use, however they got their values) and the text of every module that these come from or import.
Comments, docstrings, layout and what only a type checker reads change no digest. The standard
library, fsframework and installed distributions are not followed: records have their versions.
"""

from __future__ import annotations

import ast
import contextlib
import copyreg
import dis
import functools
import importlib.util
import marshal
import random
import re
import struct
import sys
import sysconfig
import types
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from fsframework._calls import top_level
from fsframework._digest import digest_of
from fsframework.errors import PluginError

__all__ = ["Code", "code_of", "state_digest"]

_ELSEWHERE = {"site-packages", "dist-packages"}
_AT_RUN_TIME = re.compile(r"\b(import_module|__import__)\b")
_ALL_GLOBALS = {"globals", "eval", "exec"}
_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_BY_NAME = {"modules", "import_module", "__import__"}
_PLAIN = {int, float, complex, str, bytes, bool, type(None)}
_CONTAINERS = (tuple, list, dict, set, frozenset)
_STANDARD = Path(sysconfig.get_path("stdlib"))
_MAKERS = {"abc", "builtins", "types"}
_HEAP_TYPE = 1 << 9
"""Flag of the classes that Python code makes."""
_LEFT_OUT = frozenset(
    {
        *("__dict__", "__weakref__", "__doc__", "__firstlineno__", "__static_attributes__"),
        *("__abstractmethods__", "_abc_impl", "__parameters__", "__annotations__", "__module__"),
        "__slotnames__",  # copyreg adds it when an instance is copied or taken apart
    }
)
"""Entries of a class that do not affect its behaviour, or that repeat its bases."""
_IMPORTED: dict[str, tuple[Any, str]] = {}
"""The import of each module and the digest of its file, as they were when it was first digested."""
_HAS_DOCSTRING = 0x4000000 if sys.version_info >= (3, 14) else 0


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
    torch = sys.modules.get("torch")
    patches = [] if torch is None else list(walk.patches(torch.Tensor))
    parts = [walk.digest(cls, *patches, *([] if instance is None else [instance]))]
    for name, file in list(walk.modules.items()):
        _follow(name, file, walk)
    parts += [walk.digest(walk.changed)] if walk.changed else []
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
    slots = {
        name: value.__get__(instance)
        for base in cls.__mro__
        for name, value in vars(base).items()
        if isinstance(value, types.MemberDescriptorType) and hasattr(instance, name)
    }
    return _Walk(cls).digest(kept, slots)


class _Walk:
    """Visits a value and all that it refers to.

    Attributes:
        package: top-level module of a plugin, whose code counts even where it is installed.
        modules: files of the modules of one's own that were met, by name.
        files: what was read: path below the folder it is imported from, and digest of its code.
        changed: constants of modules that have other values than their files say.
        unknown: types of objects that cannot be digested.
    """

    def __init__(self, cls: type[Any]) -> None:
        self.package = top_level(cls.__module__) if hasattr(cls, "_kind") else ""
        self.modules: dict[str, Path] = {}
        self.files: dict[Path, tuple[str, str]] = {}
        self.changed: list[Any] = []
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
            if type(value) in _PLAIN:
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
        while module not in sys.modules and "." in module:
            module = module.rpartition(".")[0]
        loaded = sys.modules.get(module)
        file = None if loaded is None else _file_of(loaded)
        if loaded is None or (module == "__main__" and not (file and file.exists())):
            return True  # typed into an interpreter, for one
        if file is None:  # made by a script, or built in
            return getattr(loaded, "__spec__", None) is None
        if top_level(module) == "fsframework" or _is_standard(file):
            return False
        if not file.is_absolute():  # made by a library, as torch.ops
            return top_level(module) != module and self.owns(top_level(module))
        own = top_level(module) == self.package or may_change(module, file)
        if own and file.exists():
            self.modules[module] = file
        return own

    def _owns_class(self, cls: type[Any]) -> bool:
        """Whether a class is one's own; a module that makes classes may be named in its place."""
        if cls.__module__ not in _MAKERS:
            return self.owns(cls.__module__)
        known = getattr(sys.modules[cls.__module__], cls.__qualname__, None) is cls
        return not known and bool(cls.__flags__ & _HEAP_TYPE)

    def _inner(self, value: Any) -> Iterator[Any]:
        """Yield what a value consists of."""
        kind = type(value)
        own = kind is not type and self._owns_class(kind)
        if own:
            yield kind
        # Classes derived from containers may do more than these.
        derived = isinstance(value, _CONTAINERS) and kind not in _CONTAINERS
        for types_, inner in () if derived or (own and isinstance(value, Mapping)) else _INNER:
            if isinstance(value, types_):
                if own and not isinstance(value, type):
                    yield getattr(value, "__dict__", None)
                yield from inner(self, value)
                return
        # NumPy and PyTorch are there if an object of theirs is.
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            yield from self._tensor(value)
        elif numpy is not None and (kind is numpy.ndarray or isinstance(value, numpy.generic)):
            yield value.tolist() if value.dtype.hasobject else digest_of(value)
        else:
            yield from self._reduced(value)

    def _tensor(self, value: Any) -> Iterator[Any]:
        torch = sys.modules["torch"]
        try:
            raw = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        except (RuntimeError, NotImplementedError, TypeError):  # it is sparse, or has no values
            yield from self._reduced(value)
            return
        yield from (value.requires_grad, str(value.dtype), *value.shape, vars(value))
        yield digest_of(raw)

    def _set(self, value: Iterable[Any]) -> Iterator[Any]:
        yield from sorted(map(self.digest, value))

    def _mapping(self, value: Mapping[Any, Any]) -> Iterator[Any]:
        yield from chain.from_iterable(value.items())

    def _class(self, cls: type[Any]) -> Iterator[Any]:
        yield cls.__qualname__
        if not self._owns_class(cls):
            yield cls.__module__
            yield from self.patches(cls)
            yield from cls.__bases__
            return
        yield from cls.__bases__
        yield from ((name, one) for name, one in sorted(vars(cls).items()) if name not in _LEFT_OUT)

    def patches(self, cls: type[Any]) -> Iterator[Any]:
        """Yield functions of one's own in a class of a library."""
        for name, one in vars(cls).items():
            function = getattr(one, "__func__", getattr(one, "fget", one))
            if isinstance(function, types.FunctionType) and self.owns(function.__module__):
                yield from (name, one)

    def _function(self, function: Any) -> Iterator[Any]:
        yield function.__qualname__
        code, cells = function.__code__, function.__closure__ or ()
        held = [cell.cell_contents for cell in cells if cell != types.CellType()]  # not empty
        if not self.owns(function.__module__):
            yield function.__module__
            yield from (one for one in held if isinstance(one, (types.FunctionType, type)))
            return
        place = self._place_in_file(function)
        yield code if place is None else place
        yield from (function.__defaults__, function.__kwdefaults__, vars(function), *held)
        known = function.__globals__
        names = _names(code)
        used = _loaded(code) if not names & _BY_NAME else names
        for name in sorted(known if names & _ALL_GLOBALS else used & known.keys()):
            if name.startswith("__") and name.endswith("__"):
                continue
            value = known[name]
            yield from (name, value)
            if isinstance(value, types.ModuleType):
                yield from self._attributes(value, names)

    def _place_in_file(self, function: Any) -> int | None:
        """Return where a file, whose text is digested, has a function's code; ``None`` if nowhere.

        Raises:
            PluginError: the function was read from the file, and is no longer what this contains.
        """
        file = self.modules.get(function.__module__)
        # Of a script, only what a class refers to is digested.
        ours = file is not None and function.__code__.co_filename == str(file)
        if file is None or function.__module__ == "__main__" or not ours:
            return None
        place = _read(file, _state(file)).codes.get(_code_digest(function.__code__))
        spec = getattr(sys.modules[function.__module__], "__spec__", None)
        if place is None and type(getattr(spec, "loader", None)) is SourceFileLoader:
            raise _edited(file)
        return place  # none if its loader has rewritten it, as pytest's does for assertions

    def _attributes(self, module: types.ModuleType, names: set[str]) -> Iterator[Any]:
        """Yield attributes of a module that a function may refer to, of a library only patches."""
        own = self.owns(module.__name__)
        for name in sorted(names & vars(module).keys()):
            value = vars(module)[name]
            if own or (isinstance(value, types.FunctionType) and self.owns(value.__module__)):
                yield from (name, value)
            inner = isinstance(value, types.ModuleType) and value is not module
            if inner and (own or top_level(value.__name__) == top_level(module.__name__)):
                yield from self._attributes(value, names - {name})

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
        if kind.__module__ == "_thread" or _is_seeded(value):
            return
        if self._owns_class(kind):  # which may leave out some of its state
            yield getattr(value, "__dict__", None)
        try:
            how = copyreg.dispatch_table.get(kind)
            found = value.__reduce_ex__(4) if how is None else how(value)
        except Exception:  # whatever a class raises that cannot be taken apart
            self.unknown.append(f"{kind.__module__}.{kind.__qualname__}")
            yield uuid.uuid4().hex
            return
        if isinstance(found, str):
            yield f"{getattr(value, '__module__', '')} {found}"
            yield getattr(value, "__wrapped__", None)
            return
        yield from found[:3]
        yield from (list(one) for one in found[3:5] if one is not None)


def _file_of(module: types.ModuleType) -> Path | None:
    """Return the file of a module; of a package without one, where it would be."""
    if (file := getattr(module, "__file__", None)) is not None:
        return Path(file)
    spec = getattr(module, "__spec__", None)
    folders = list(getattr(spec, "submodule_search_locations", None) or ())
    return Path(folders[0], "__init__.py") if folders else None


def _is_standard(file: Path) -> bool:
    """Whether a file is of the standard library, whose names those of a user may shadow."""
    return file.is_relative_to(_STANDARD) and not _ELSEWHERE.intersection(file.parts)


def _is_seeded(value: Any) -> bool:
    """Whether a generator is one of the process, which are seeded around every call."""
    numpy = sys.modules.get("numpy")
    drawing = [random.random, *([] if numpy is None else [numpy.random.rand])]
    return any(getattr(one, "__self__", None) is value for one in drawing)


_INNER: tuple[tuple[Any, Any], ...] = (
    ((tuple, list), lambda walk, value: iter(value)),
    ((set, frozenset), _Walk._set),
    ((Mapping, WeakKeyDictionary, WeakValueDictionary), _Walk._mapping),
    (PurePath, lambda walk, value: iter((str(value),))),
    ((staticmethod, classmethod), lambda walk, value: iter((value.__func__,))),
    (types.MethodType, lambda walk, value: iter((value.__func__, value.__self__))),
    (property, lambda walk, value: iter((value.fget, value.fset, value.fdel))),
    (functools.cached_property, lambda walk, value: iter((value.func,))),
    (types.FunctionType, _Walk._function),
    (types.BuiltinFunctionType, _Walk._builtin),
    (types.GetSetDescriptorType, lambda walk, value: iter((value.__qualname__,))),
    (types.CodeType, lambda walk, value: iter((_code_digest(value),))),
    (types.ModuleType, _Walk._module),
    (type, _Walk._class),
)
"""What a value consists of, by its type."""


def _names(code: types.CodeType) -> set[str]:
    """Return the names that a function and those within it may refer to, also by a text."""
    texts = (one for one in _constants(code) if isinstance(one, str) and one.isidentifier())
    inner = (_names(one) for one in code.co_consts if isinstance(one, types.CodeType))
    return {*code.co_names, *texts}.union(*inner)


@functools.lru_cache(maxsize=8192)
def _loaded(code: types.CodeType) -> frozenset[str]:
    """Return the global names that a function and those within it use, without attributes."""
    own = {one.argval for one in dis.get_instructions(code) if one.opname in _LOADS}
    inner = (_loaded(one) for one in code.co_consts if isinstance(one, types.CodeType))
    return frozenset(own).union(*inner)


def _constants(code: types.CodeType) -> list[Any]:
    """Return the constants of a function, without its docstring."""
    found = list(code.co_consts)
    has = code.co_flags & _HAS_DOCSTRING if _HAS_DOCSTRING else not code.co_name.startswith("<")
    if has and found and isinstance(found[0], str):
        found[0] = None
    return found


def _code_digest(code: types.CodeType) -> str:
    """Digest what a function does: neither its docstring nor where it stands in its file."""
    return digest_of(marshal.dumps(_bare(code), 2))  # later versions depend on what is interned


def _bare(code: types.CodeType) -> types.CodeType:
    constants = (_bare(c) if isinstance(c, types.CodeType) else c for c in _constants(code))
    return code.replace(
        co_consts=tuple(constants), co_filename="", co_firstlineno=1, co_linetable=b""
    )


def may_change(module: str, file: Path) -> bool:
    """Whether a module may change without a version, as scripts and editable installs do."""
    if _ELSEWHERE.intersection(file.resolve().parts):
        return False
    return not any(_root_of(module, file).glob(f"{top_level(module)}-*.dist-info"))


def _root_of(module: str, file: Path) -> Path:
    """Return the folder that a module is imported from."""
    depth = len(module.split(".")) - (file.name != "__init__.py")
    return file.absolute().parents[depth]


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
        codes: places of its functions, by their digests.
        imports: that it makes; of a package also those for type checkers, which say where a name
            comes from that the package imports when it is asked for.
        dynamic: whether it imports modules whose names are known only when it runs.
        constants: of the module, by name, that no function of it sets.
        outdated: bytecode that Python takes for its own, and that is of another text.
    """

    digest: str
    codes: Mapping[str, int] = field(default_factory=dict)
    imports: tuple[_Import, ...] = ()
    dynamic: bool = False
    constants: Mapping[str, Any] = field(default_factory=dict)
    outdated: Path | None = None


def _follow(module: str, file: Path, walk: _Walk) -> None:
    """Add the digests of the file of a module and of what it imports of one's own."""
    root = _root_of(module, file)
    waiting = [(file, root)]
    while waiting:
        file, root = waiting.pop()
        if file in walk.files:
            continue
        source = _read(file, _state(file))
        # Of a script only that counts which a class refers to, and what it imports. The name of a
        # single file is not its code.
        key = "" if file.parent == root else file.relative_to(root).as_posix()
        main = file == walk.modules.get("__main__")
        walk.files[file] = ("", "") if main else (key, source.digest)
        if not main:
            walk.changed += _demand_imported(file, root, source)
        waiting += chain.from_iterable(_imported(file, root, one, walk) for one in source.imports)
        if source.dynamic and file.parent != root:
            top = root / file.relative_to(root).parts[0]
            waiting += [(one, root) for one in top.rglob("*.py")]
        elif source.dynamic:
            waiting += [(one, root) for one in root.glob("*.py")]


def _demand_imported(file: Path, root: Path, source: _Source) -> list[Any]:
    """Check that a module, if it is in memory, was made of the text that its file has now.

    Returns:
        Its constants that were set from outside, with their names.

    Raises:
        PluginError: the file was edited since, or Python took its old bytecode for that of the new
            text, because size and time are equal.
    """
    if source.outdated is not None:
        raise PluginError(
            f"{file}: Python takes the bytecode of an earlier text for that of this file, since "
            f"its size and time are the same; remove {source.outdated} and start again"
        )
    name = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and spec is not None:
        then, digest = _IMPORTED.get(name, (None, ""))
        if then is spec and digest != source.digest:  # nor was it reloaded
            raise _edited(file)
        _IMPORTED[name] = spec, source.digest
    now = {} if module is None else vars(module)
    changed = {one for one, was in source.constants.items() if now.get(one, was) != was}
    return [(one, now[one]) for one in sorted(changed)]


def _edited(file: Path) -> PluginError:
    return PluginError(
        f"{file}: was edited after its import, so this process has its old code; reload it "
        "(importlib.reload), or start again"
    )


def _imported(file: Path, root: Path, one: _Import, walk: _Walk) -> Iterable[tuple[Path, Path]]:
    """Return the files of one's own that an import of a file asks for, with their roots."""
    if not one.level:
        found_root = _root_of_import(top_level(one.module), root, walk)
        if found_root is None:
            return ()
        root = found_root
    folder = file.parents[one.level - 1] if one.level else root
    path = folder.joinpath(*filter(None, one.module.split(".")))
    found = (_module_at(path / one.name) if one.name else None) or _module_at(path)
    if found is None or found.name != "__init__.py":
        return () if found is None else ((found, root),)
    for offered in _read(found, _state(found)).imports:
        if found.parent == path and offered.called == one.name:
            return _imported(found, root, offered, walk)
    # The package itself defines the name, or imports it when it is asked for.
    return [(each, root) for each in found.parent.rglob("*.py")]


def _root_of_import(top: str, root: Path, walk: _Walk) -> Path | None:
    """Return the folder that a module of one's own is imported from, importing nothing."""
    loaded = sys.modules.get(top)
    standard = top in sys.stdlib_module_names and (loaded is None or not walk.owns(top))
    if top == "fsframework" or standard:
        return None
    if (found := _module_at(root / top)) is None and not (root / top).is_dir():
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            return None
        if spec is None:
            return None
        places = [*(spec.submodule_search_locations or ()), *filter(None, [spec.origin])]
        root = Path(places[0]).parent
        found = _module_at(root / top)
    file = found or root / top / "__init__.py"
    return root if top == walk.package or may_change(top, file) else None


def _module_at(path: Path) -> Path | None:
    files = (path / "__init__.py", path.with_name(f"{path.name}.py"))
    return next((file for file in files if file.is_file()), None)


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
        {one: place for place, one in enumerate(_codes(code))},
        imports,
        bool(_AT_RUN_TIME.search(text)),
        _constants_of(tree),
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


def _constants_of(tree: ast.Module) -> dict[str, Any]:
    """Return the constants that a module sets once, and that nothing in it sets again."""
    whole = list(ast.walk(tree))
    stored = [one.id for one in whole if isinstance(one, ast.Name) and type(one.ctx) is ast.Store]
    again = {name for one in whole if isinstance(one, ast.Global) for name in one.names}
    found = {}
    for one in tree.body:
        for name in one.targets if isinstance(one, ast.Assign) else ():
            if isinstance(name, ast.Name) and name.id not in again and stored.count(name.id) == 1:
                with contextlib.suppress(ValueError):
                    found[name.id] = ast.literal_eval(one.value)  # type: ignore[attr-defined]
    return found


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
        if ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING":
            node.test, node.body = ast.Constant(value=False), []
        return self.generic_visit(node)
