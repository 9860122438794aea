"""`fsf completion`: the script that completes commands and names in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]

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
