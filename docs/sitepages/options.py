"""What is read from the schema of options: the reference page and the types of arguments.

Run ``python docs/sitepages/options.py`` after an option changes, which writes the types of the
arguments of ``fsframework.run`` and other calls; a test fails until then.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from fsframework.components.conversion import describe_type
from fsframework.components.options import SECTIONS, Option, options_of
from fsframework.components.registry import Registry
from fsframework.engine.options import ARGUMENTS, LISTS, WordChoice
from fsframework.engine.stages import Stage

STUB = Path(__file__).resolve().parents[2] / "fsframework" / "api" / "arguments.pyi"
"""The file with the types."""

HEAD = (
    "# Options of a run\n\n"
    "An option means the same on the command line, in a TOML file for `--config`, in "
    "`fsf.run(...)` and with `-o KEY=VALUE`. The key is what `--dry-run` and the record of a run "
    "call it; it is named beside the flag where it is spelt differently. "
    "Options of a component follow its name: `-o method.temperature=0.2`, or a table "
    "`[method]` in a file; `fsf plugins show NAME` lists them. Options of a single command are in "
    "its `--help`."
)
STAGES = (
    "\n## Stages of training\n\n"
    "These are set for all stages with `-o training.OPTION=VALUE` or a table `[training]`, and for "
    "single stages in a list of tables `[[training.stages]]`. The defaults are those of training "
    "without a recipe.\n"
)
SIGNATURE = '''"""Types of the options of a run, made by docs/sitepages/options.py.

There is no such module when a program runs: import it under ``typing.TYPE_CHECKING``.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

from torch.nn import Module

from fsframework import interfaces

_T = TypeVar("_T")

Component: TypeAlias = str | Mapping[str, Any] | type[_T] | _T
"""A name, a mapping of a name and options, a class or an instance."""

Axis: TypeAlias = _T | Sequence[_T] | None
"""A value for all experiments of a grid, or one for each."""

'''

KINDS = ("method", "sampler", "dataset", "backbone", "detector", "statistic", "launcher")
"""Kinds of plugins that an option of a run names."""


def page() -> str:
    """Return the reference page."""
    named = [option for option in ARGUMENTS.values() if option.of_run]
    lines = [HEAD]
    for title in SECTIONS:
        own = [option for option in named if option.section == title]
        rows = ([_spellings(o), *_described(o)] for o in own)
        lines += [f"\n## {title}\n", *_table(("option",), rows)]
    other = [option for option in named if not option.section]
    rows = ([f"`{o.name}`", *_described(o)] for o in other)
    lines += ["\n## Without a flag\n", *_table(("argument",), rows), STAGES]
    stage = options_of(Stage).values()
    rows = ([f"`training.{o.name}`", *_described(o)] for o in stage)
    return "\n".join([*lines, *_table(("key",), rows), ""])


def _spellings(option: Option) -> str:
    """Return the flag, and the argument and the key where they are spelt in another way."""
    flag = f"--{option.flag}"
    names = dict.fromkeys((flag, option.name, option.key))
    if option.name == option.flag.replace("-", "_"):
        names.pop(option.name if option.name != option.key else option.key)
    return " ".join(f"`{name}`" for name in names)


def _described(option: Option) -> Iterator[str]:
    kind = describe_type(option.type)
    if option.names:
        kind = "a run or a file" if option.names == "run" else f"a {option.names}"
    if option.word:
        kind = kind.replace("none", option.word)
    yield f"{kind}, {option.rule}" if option.rule else kind
    yield "none" if option.default is None and not option.usual else option.usual
    environment = f" Also `{option.env}`." if option.env else ""
    yield f"{option.help}{environment}"


def _table(heads: Iterable[str], rows: Iterable[list[str]]) -> list[str]:
    heads = [*heads, "value", "default", "meaning"]
    cells = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in cells]


def signature() -> str:
    """Return the stub with the types of options."""
    lines = [SIGNATURE]
    for kind in KINDS:
        module = " | Module" if kind == "backbone" else ""
        interface = Registry().kinds[kind].target.partition(":")[2]
        lines.append(f"{kind.title()}: TypeAlias = Component[interfaces.{interface}]{module}")
    lines += _fields("Stage(TypedDict", "Options of a stage of training.", options_of(Stage))
    lines += _fields("Training(Stage", "Options of all stages, and of single ones.", {})
    lines.append("    stages: Sequence[Stage]")
    own = {name: one for name, one in ARGUMENTS.items() if name != "launcher"}
    words = {name: own.pop(name) for name in options_of(WordChoice) if name != "attributes"}
    lines += _fields("Dropping(TypedDict", "Which words images are not to have.", words, none=True)
    lines += _fields("Arguments(Dropping", "Options of ``fsframework.run``.", own, none=True)
    lines += _fields("Grid(TypedDict", "Options of ``fsframework.sweep``, as in ``Arguments``.", {})
    lines += [f"    {name}: {_axis(one)}" for name, one in ARGUMENTS.items() if name != "name"]
    lines.append("    seeds: Iterable[int] | int | str | None")
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(STUB), "-"]
    text = "\n".join(lines)
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _fields(
    head: str, summary: str, options: Mapping[str, Option], *, none: bool = False
) -> Iterator[str]:
    """Yield the lines of a dictionary of options, each with its help.

    Args:
        none: whether ``None`` stands for an option that is not given.
    """
    yield f'class {head}, total=False):\n    """{summary}"""\n'
    for name, option in options.items():
        yield f"    {name}: {_typed(option, none=none)}"
        told = textwrap.fill(f'"""{option.help}"""', 96, break_on_hyphens=False)
        yield textwrap.indent(told, "    ") + "\n"


def _axis(option: Option) -> str:
    """Return the type of an option that may have several values; for a list, several lists."""
    several = {
        "training": "Training | Sequence[Stage | Sequence[Stage]] | None",
        "statistics": "Statistic | Sequence[Statistic] | Sequence[Sequence[Statistic]] | None",
        "drop_words": "str | Sequence[str] | Sequence[Sequence[str]] | None",
    }
    return several.get(option.name) or f"Axis[{_typed(option)}]"


def _typed(option: Option, *, none: bool = False) -> str:
    union = get_origin(option.type) in (Union, types.UnionType)
    told = list(map(_spelt, get_args(option.type) if union else (option.type,)))
    if option.name == "training":
        told = ["Training", "Sequence[Stage]"]
    elif option.names and option.names != "run":
        kind = option.names.title()
        told = [kind, f"Sequence[{kind}]"] if option.name in LISTS else [kind]
    told += ["Path"] if option.metavar == "SOURCE" else []
    told += [f'Literal["{option.word}"]'] if option.word else []
    told += ["None"] if none else []
    return " | ".join(sorted(dict.fromkeys(told), key="None".__eq__))


def _spelt(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"Literal[{', '.join(map(repr, get_args(kind)))}]"
    if get_origin(kind) is tuple:  # texts may be separated by commas
        one = _spelt(get_args(kind)[0])
        return f"Sequence[{one}]" if one == "int" else f"{one} | Sequence[{one}]"
    return {type(None): "None", Path: "str | Path"}.get(kind) or str(kind.__name__)


if __name__ == "__main__":
    STUB.write_text(signature(), encoding="utf-8")
