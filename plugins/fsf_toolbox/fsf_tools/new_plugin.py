"""New plugins: a small one of each kind that works, for its author to change.

The plugin itself is the file ``testing/templates/KIND.py`` of the package that has the kind: a
class ``MyKIND`` that works as it is. All that surrounds it is the same for every kind and lies in
the folder ``template``; ``testing/templates/KIND`` has what a kind needs besides, or instead.
"""

from __future__ import annotations

import ast
import importlib.util
import keyword
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions, version
from importlib.resources import files
from pathlib import Path
from string import Template

from fsf_tools.publishing import staging
from fsframework.api.components import Registry
from fsframework.errors import OptionError, PluginError

__all__ = ["new_plugin", "template_of"]

_SHARED = Path(__file__).with_name("template")
_USE = "Try it: "
"""With this begins the line of a template that has the first command to give."""
_LONGEST = 30
"""Characters of a name, with which no line becomes too long."""


def template_of(kind: str) -> str:
    """Return the plugin of a kind that new ones begin as.

    Raises:
        PluginError: the package of the kind has none.

    >>> "class MyStatistic(Statistic)" in template_of("statistic")
    True
    """
    path = _templates_of(kind) / f"{kind}.py"
    if not path.is_file():
        raise PluginError(f"no {kind} can be begun: its package has no file {path}")
    return path.read_text(encoding="utf-8")


def _templates_of(kind: str) -> Path:
    package = re.split("[.:]", Registry().kinds[kind].target)[0]
    return Path(str(files(package))) / "testing" / "templates"


def new_plugin(
    kind: str, name: str, folder: Path = Path(), *, script: bool = False
) -> tuple[Path, list[str]]:
    """Write a new plugin: a package, or one file.

    Args:
        kind: of the plugin.
        name: of the plugin and of the package, in lower-case kebab.
        folder: where the package's folder, or the file, is written; made if it is not there.
        script: whether to write one file, to be used with ``--plugin``.

    Returns:
        What was written, and the commands to give next.

    Raises:
        OptionError: the name is not allowed or taken, the path exists, or the kind cannot be used
            from a file.
        PluginError: the package of the kind has no template.
        DataError: the folder cannot be written.
    """
    if script and kind == "command":
        raise OptionError("--script: a command needs a package, from which help reads its summary")
    text = template_of(kind)
    words = _words(kind, name)
    _check_name(kind, name, words, text)
    path = folder / (f"{words['module']}.py" if script else name)
    if path.exists() or path.is_symlink():
        raise OptionError(f"{path} exists already; nothing was written")
    text = _renamed(text, kind, words)
    use = next(one.removeprefix(_USE) for one in text.splitlines() if one.startswith(_USE))
    check = f"fsf plugins check {name}"
    if script:
        _write(path, {"": text.replace(_USE, f"Try it, with --plugin {path.name}:\n")})
        with_file = f" --plugin {shlex.quote(str(path))}"
        return path, [f"{check}{with_file}", f"{use}{with_file}"]
    words.update(
        name=name,
        summary=text.removeprefix('"""').partition("\n")[0],
        use=use,
        group=Registry().kinds[kind].group,
        dependencies=", ".join(f'"{one}"' for one in _dependencies(text)),
    )
    _write(path, {**_shared(kind, words), f"{words['module']}/__init__.py": text})
    return path, [f"pip install -e {shlex.quote(str(path))}", check, use]


def _words(kind: str, name: str) -> dict[str, str]:
    """Return the names that a plugin's name becomes in Python."""
    module = name.replace("-", "_")
    of_class = "".join(part.capitalize() for part in name.split("-"))
    return {"module": module, "target": module if kind == "command" else of_class}


def _check_name(kind: str, name: str, words: Mapping[str, str], text: str) -> None:
    """Refuse a name that is none, or that something else has."""
    module, target = words["module"], words["target"]
    parts = re.fullmatch(r"[a-z][a-z0-9]*(-[a-z][a-z0-9]*)*", name)
    if not parts or len(name) > _LONGEST or keyword.iskeyword(module):
        raise OptionError(
            f"{name!r} cannot be the name of a package: it must be words of lower-case letters and "
            f"digits, each beginning with a letter, joined by hyphens, with at most {_LONGEST} "
            "characters, and no keyword of Python"
        )
    if name in Registry().names(kind):
        raise OptionError(f"there is a {kind} {name!r} already (fsf plugins show {name})")
    if importlib.util.find_spec(module) is not None:
        raise OptionError(f"{name!r} would hide the installed module {module}; use another name")
    test = (_SHARED / "tests" / "test_$module.py.template").read_text(encoding="utf-8")
    used = set(re.findall(r"\w+", text + test)) - {_words(kind, f"my-{kind}")["target"]}
    if target in used:
        raise OptionError(f"{name!r} would become {target}, which its own code uses otherwise")


def _renamed(text: str, kind: str, words: Mapping[str, str]) -> str:
    ours = _words(kind, f"my-{kind}")
    name = words["module"].replace("_", "-")
    new = {ours["target"]: words["target"], ours["module"]: words["module"], f"my-{kind}": name}
    return re.sub("|".join(new), lambda found: new[found[0]], text)


def _dependencies(text: str) -> Iterator[str]:
    """Yield the distributions that a module imports, from the installed versions on."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
    entries = [(entry.value, one.name) for one in distributions() for entry in one.entry_points]
    named = {re.split("[.:]", value)[0]: name for value, name in entries}
    for module in sorted(found - sys.stdlib_module_names):
        distribution = named.get(module, module.replace("_", "-"))
        # No upper bounds: a contract that has changed is found when the plugin is loaded.
        yield f"{distribution}>={'.'.join(version(distribution).split('.')[:2])}"


def _shared(kind: str, words: Mapping[str, str]) -> dict[str, str]:
    """Return the files that surround a plugin in its package, by path."""
    found = {}
    for folder in (_SHARED, _templates_of(kind) / kind):
        for file in sorted(folder.rglob("*.template")):
            name = file.relative_to(folder).as_posix().removesuffix(".template")
            text = file.read_text(encoding="utf-8")
            found[Template(name).substitute(words)] = Template(text).substitute(words)
    return found


def _write(path: Path, contents: Mapping[str, str]) -> None:
    """Write all files below a path, or none; an empty name is that of the path itself."""
    with staging(path) as folder:
        whole = folder / path.name
        for name, text in contents.items():
            file = whole / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        whole.rename(path)
