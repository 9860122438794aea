"""What is read from the schema of options: the reference page and the typed arguments.

Run ``python docs/sitepages/options.py`` after an option changes, which writes the typed arguments
of ``fsframework.run``; a test fails until then.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from fsframework.components.conversion import describe_type
from fsframework.components.options import SECTIONS, Option, options_of
from fsframework.engine.options import ARGUMENTS
from fsframework.engine.stages import Stage

STUB = Path(__file__).resolve().parents[2] / "fsframework" / "api" / "arguments.pyi"
"""The file with the typed arguments."""

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
SIGNATURE = '''"""The arguments of ``fsframework.run``, made by docs/sitepages/options.py."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

Component = Any
"""A name, a mapping of a name and options, a class or an instance."""

class Arguments(TypedDict, total=False):
'''


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
    """Return the stub with the typed arguments."""
    fields = [f"    {o.name}: {_typed(o)}" for o in ARGUMENTS.values() if o.name != "launcher"]
    return SIGNATURE + "\n".join([*fields, ""])


def _typed(option: Option) -> str:
    if option.name == "training":
        return "Mapping[str, Any] | Sequence[Mapping[str, Any]] | None"
    if option.names and option.names != "run":
        return "Component"
    union = get_origin(option.type) in (Union, types.UnionType)
    told = list(map(_spelt, get_args(option.type) if union else (option.type,)))
    told += ["Path"] if option.metavar == "SOURCE" else []
    told += [f'Literal["{option.word}"]'] if option.word else []
    return " | ".join([*(one for one in told if one != "None"), "None"])


def _spelt(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"Literal[{', '.join(map(repr, get_args(kind)))}]".replace("'", '"')
    if get_origin(kind) is tuple:
        return "str | Sequence[str]"
    return {type(None): "None", Path: "str | Path"}.get(kind) or str(kind.__name__)


if __name__ == "__main__":
    STUB.write_text(signature(), encoding="utf-8")
