"""`fsf completion`, and the completion of names of plugins, runs and data sets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from fsframework.components.registry import Registry
from fsframework.errors import FsfError

__all__ = [
    "Complete",
    "added_names",
    "any_plugin_name",
    "completion",
    "dataset_names",
    "plugin_names",
    "run_names",
]

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
"""A function for click's ``shell_complete``; none of those below imports a plugin."""

_VARIABLE = "_FSF_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, /, shell: str) -> None:
    """Print the script that completes commands, options and names in your shell.

    Methods, samplers, data sets, other plugins and runs are completed by name. Install the script
    once, and open a new shell:

    \b
      bash   fsf completion bash > ~/.fsf-complete.bash
             echo '. ~/.fsf-complete.bash' >> ~/.bashrc
      zsh    fsf completion zsh > ~/.fsf-complete.zsh
             echo '. ~/.fsf-complete.zsh' >> ~/.zshrc
      fish   fsf completion fish > ~/.config/fish/completions/fsf.fish

    bash must be version 4.4 or newer, and zsh must have run compinit.
    """
    found = get_completion_class(shell)
    assert found is not None  # click has all three
    # The template, not ``source()``: that of bash checks the version of bash on the machine that
    # prints the script, which need not be the one that uses it.
    script = found(context.find_root().command, {}, "fsf", _VARIABLE)
    click.echo(script.source_template % script.source_vars())


def plugin_names(kind: str) -> Complete:
    """Return a function that completes the name of a plugin of one kind."""

    def complete(
        context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        del context, parameter
        return _starting(Registry().names(kind), incomplete)

    return complete


def any_plugin_name(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a plugin of the kind given with ``--kind``, or of any kind."""
    del parameter
    kind = context.params.get("kind")
    return _starting({p.name for p in Registry().plugins(kind)}, incomplete)


def dataset_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a data set: a plugin, or one added with ``fsf data add``."""
    del parameter
    return _starting({*Registry().names("dataset"), *_added(context)}, incomplete)


def added_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a data set that was added with ``fsf data add``."""
    del parameter
    return _starting(_added(context), incomplete)


def run_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a run in the folder of runs, or the path of a file or folder."""
    del parameter
    folder = context.params.get("runs_dir") or Path(os.environ.get("FSF_RUNS") or "runs")
    found = _starting({record.parent.name for record in folder.glob("*/run.json")}, incomplete)
    return found or [CompletionItem(incomplete, type="file")]


def _added(context: click.Context) -> set[str]:
    from fsframework.components.catalogue import read_added

    try:
        return set(read_added(context.params.get("data_dir")))
    except FsfError:
        return set()  # the commands that read a damaged list report it


def _starting(names: set[str] | list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]
