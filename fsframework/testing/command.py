"""What every command of ``fsf`` must keep.

A check is given a callable that returns the description of a command; ``installed_command`` makes
one from the name of its entry point.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from typing import Any
from unittest.mock import patch

import click

from fsframework.components.registry import Registry
from fsframework.interfaces.command import Command
from fsframework.testing._fresh import other_circumstances
from fsframework.testing._suite import ConformanceError, Make, Suite, require

suite = Suite(Command, has_options=False)

_LONGEST = 100
"""Characters of a summary, which fill two lines of help on a terminal of 80 columns."""

_WIDE = {"COLUMNS": "80"}

_HEAVY = ("matplotlib", "pandas", "sklearn", "torch", "transformers")
"""Packages that take long to import."""

_SHOW_HELP = f"""
import importlib, json, sys
module, _, attribute = sys.argv[1].partition(":")
found = importlib.import_module(module)
for name in attribute.split("."):
    found = getattr(found, name)
code = found.main(args=["--help"], prog_name=sys.argv[2], standalone_mode=False)
loaded = [name for name in {_HEAVY!r} if name in sys.modules]
print()
print(json.dumps({{"code": code, "heavy": loaded}}))
"""


def installed_command(name: str) -> Make:
    """Return what the checks of a command take, by the name of its entry point.

    Raises:
        PluginError: when called: the command is not installed, or its description is damaged.
    """
    return functools.partial(_installed, name=name)


def _installed(*, name: str) -> Command:
    return Registry().describe_command(name)


def _load(command: Command) -> Any:
    module, _, attribute = command.target.partition(":")
    found = importlib.import_module(module)
    return functools.reduce(getattr, attribute.split("."), found)


def _all(make: Make) -> Iterator[tuple[str, click.Command]]:
    """Yield how a command is called and the command, then those of its own below it."""
    described = make()
    waiting = [(f"fsf {' '.join(described.path)}", _load(described))]
    while waiting:
        call, command = waiting.pop(0)
        yield call, command
        if isinstance(command, click.Group):
            waiting += [(f"{call} {name}", below) for name, below in command.commands.items()]


def _options(command: click.Command) -> list[click.Option]:
    return [p for p in command.params if isinstance(p, click.Option) and not p.hidden]


@suite.check()
def check_loads(make: Make) -> None:
    """The target can be imported and is a click command."""
    command = make()
    try:
        found = _load(command)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit is what a script raises that is no module
        raise ConformanceError(
            f"{command.target} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    require(
        isinstance(found, click.Command),
        f"{command.target} must be a click command, not of type {type(found).__name__}",
    )


@suite.check(after=[check_loads])
def check_path(make: Make) -> None:
    """Its path leads to it: the command above it is a group, and has none of this name itself."""
    command = make()
    above = [c.command for c in Registry().commands if c.command.path == command.path[:-1]]
    for outer in map(_load, above):
        call, name = " ".join(command.path[:-1]), command.path[-1]
        require(
            isinstance(outer, click.Group),
            f"its path is below {call!r}, which is not a group; change it in commands.toml",
        )
        require(
            name not in outer.commands,
            f"the group {call!r} has a command {name!r} of its own; change the path in "
            "commands.toml",
        )


@suite.check()
def check_summary(make: Make) -> None:
    """The summary is a sentence of at most 100 characters, from a capital letter to a period."""
    summary = make().summary
    require(summary[:1].isupper(), f"the summary must begin with a capital letter: {summary!r}")
    require(summary.endswith("."), f"the summary must end with a period: {summary!r}")
    require(". " not in summary, f"the summary must be one sentence: {summary!r}")
    require(
        len(summary) <= _LONGEST,
        f"the summary must have at most {_LONGEST} characters, not {len(summary)}",
    )


@suite.check(after=[check_loads])
def check_described(make: Make) -> None:
    """The command and those of its own below it say in their help what they do."""
    for call, command in _all(make):
        require(command.help, f"{call} must have a docstring, which is its help")


@suite.check(after=[check_loads])
def check_options_described(make: Make) -> None:
    """Every option has a help text."""
    for call, command in _all(make):
        silent = [option.opts[0] for option in _options(command) if not option.help]
        require(not silent, f"{call} must say what {', '.join(silent)} is for")


@suite.check(after=[check_loads])
def check_options_unique(make: Make) -> None:
    """No two options of a command have the same name."""
    for call, command in _all(make):
        names = Counter(n for p in _options(command) for n in (*p.opts, *p.secondary_opts))
        twice = sorted(name for name, count in names.items() if count > 1)
        require(not twice, f"{call} has {', '.join(twice)} more than once")


@suite.check(after=[check_loads])
def check_parameters_taken(make: Make) -> None:
    """The function behind a command takes every parameter of the command, and no others."""
    for call, command in _all(make):
        if command.callback is None:
            continue
        signature = inspect.signature(command.callback)
        names = {p.name for p in command.params if p.expose_value and p.name}
        # A decorator may pass a context, and an object of the group above, by position.
        decorated = inspect.unwrap(command.callback) is not command.callback
        if not any(_takes(signature, count, names) for count in range(3 if decorated else 1)):
            require(
                False,
                f"{call} has the parameters {', '.join(sorted(names)) or 'none'}, but its function "
                f"takes {signature}",
            )


def _takes(signature: inspect.Signature, count: int, names: set[str]) -> bool:
    by_position = (None,) * count
    try:
        bound = signature.bind(*by_position, **dict.fromkeys(names))
    except TypeError:
        return False
    return len(bound.args) >= count


@functools.lru_cache(maxsize=64)
def _help(target: str, path: tuple[str, ...]) -> tuple[int, str, str]:
    """Return exit status, output and complaints of ``--help`` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _SHOW_HELP, target, f"fsf {' '.join(path)}"],
        env={**os.environ, **other_circumstances(), **_WIDE},
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@suite.check(after=[check_loads])
def check_help(make: Make) -> None:
    """``--help`` prints how the command is used and ends without an error."""
    command = make()
    code, output, complaint = _help(command.target, command.path)
    last = " ".join(complaint.strip().splitlines()[-1:])
    require(code == 0, f"--help must end without an error, it ended with: {last}")
    told = json.loads(output.splitlines()[-1])
    require(not told["code"], f"--help must give the exit code 0, not {told['code']}")
    require(
        f"fsf {' '.join(command.path)}" in output,
        "--help must print how the command is used",
    )


@suite.check(after=[check_help, check_options_unique])
def check_help_same(make: Make) -> None:
    """``--help`` says the same in another folder and time zone."""
    command = make()
    _, output, _ = _help(command.target, command.path)
    here = io.StringIO()
    with redirect_stdout(here), suppress(SystemExit), patch.dict(os.environ, _WIDE):
        _load(command).main(
            args=["--help"], prog_name=f"fsf {' '.join(command.path)}", standalone_mode=False
        )
    there = output.splitlines()[:-1]
    apart = [line for line in here.getvalue().splitlines() if line not in there]
    require(not apart, f"in another folder and time zone, --help lacks the line {apart[:1]}")


@suite.check(after=[check_help])
def check_help_light(make: Make) -> None:
    """``--help`` imports nothing heavy; what takes long is imported when the command runs."""
    command = make()
    _, output, _ = _help(command.target, command.path)
    heavy = json.loads(output.splitlines()[-1])["heavy"]
    require(not heavy, f"--help must not import {' or '.join(heavy)}")
