"""The program: hosts the commands of every distribution and explains errors."""

from __future__ import annotations

import codecs
import io
import os
import select
import sys
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO, cast

import click
from click.exceptions import NoArgsIsHelpError

from fsframework import __version__
from fsframework._calls import contained, text_of
from fsframework._text import Printed
from fsframework.cli.groups import RootGroup
from fsframework.errors import FsfError, FsfWarning, refusal, speaking

__all__ = ["cli", "main"]

_COMPLETION = "_FSF_COMPLETE"
"""The variable by which click knows that a shell asks for completions."""
_PLAIN = {
    **dict(zip("−–—─·×│├└┤╎●’“”", '----.x||`||#\'""', strict=True)),
    "±": "+/-",
    "…": "...",
    "→": "->",
}
"""What stands for a character that a terminal cannot encode; a question mark for all others."""


@click.group(
    cls=RootGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="fsf")
@click.option(
    "--verbose", is_flag=True, expose_value=False, help="Show tracebacks; accepted anywhere."
)
def cli() -> None:
    """Measure how much few-shot image classifiers lean on spurious attributes.

    \b
    Start here:
      fsf run --method renet --sampler fewstab      the main job on the embedded data set
      fsf run --dataset folder:./images --attributes words.csv
      fsf plugins list                              what can be named in such a command
    """


def main() -> None:
    """Run the command line; every error a user can fix is one line and exit code 2."""
    arguments = sys.argv[1:]
    verbose = "--verbose" in arguments
    arguments = [a for a in arguments if a != "--verbose"]
    _write_any_text()
    out, err = (cast("TextIO", Printed(stream)) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        code = _run(arguments, verbose=verbose)
    sys.exit(code)


def _run(arguments: list[str], *, verbose: bool) -> int:
    """Run a command and return the exit code."""
    try:
        with speaking(_as_option), warnings.catch_warnings():
            warnings.simplefilter("once", FsfWarning)
            warnings.showwarning = _show_warning
            with contained():
                code = cli.main(args=arguments, prog_name="fsf", standalone_mode=False)
        sys.stdout.flush()
    except BaseException as error:
        if isinstance(error, SystemExit) and _COMPLETION in os.environ:
            raise  # click ends the process itself after it has completed a word
        if verbose and not isinstance(error, (click.Abort, NoArgsIsHelpError)):
            traceback.print_exception(error)
        return _explain(error)
    return code if isinstance(code, int) else 0


def _write_any_text() -> None:
    """Let the standard streams replace what they cannot encode; closed ones lead nowhere."""
    codecs.register_error("fsframework", _plain)
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="fsframework")


def _nowhere() -> TextIO:
    """Return a stream that leads nowhere, for good."""
    return Path(os.devnull).open("w")


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    failed = error.object[error.start : error.end]
    return "".join(_PLAIN.get(character, "?") for character in failed), error.end


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    text = f"note: {message}\n"
    if not issubclass(category, FsfWarning):
        text = warnings.formatwarning(message, category, filename, lineno, line)
    print(text, end="", file=file or sys.stderr)


def _as_option(name: str, value: Any) -> str:
    """Name an argument as the command line does; the import is deferred because few calls fail."""
    from fsframework.cli.options import option_of

    return option_of(name, value)


def _explain(error: BaseException) -> int:
    """Print one line for an error and return the exit code."""
    if isinstance(error, NoArgsIsHelpError):  # from a group that is not a PluginGroup
        click.echo(error.ctx.get_help())
        return 0
    if isinstance(error, click.ClickException):
        usage = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else ""
        hint = f" (see {usage} --help)" if usage else ""
        return _fail(error.format_message().rstrip(".") + hint, 2)
    if isinstance(error, click.Abort) and isinstance(error.__cause__, EOFError):
        error = error.__cause__  # click takes it for the end of what a user types
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return _fail("interrupted; run the same command again to resume", 130)
    if isinstance(error, FsfError):
        return _fail(error, 2, error.picture)
    # Click turns the error of a broken pipe into an exit.
    if isinstance(error, BrokenPipeError) or (isinstance(error, SystemExit) and _reader_is_gone()):
        # The reader (head, less) has gone; Python must not report it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if (refused := refusal(error)) is not None:
        return _fail(refused, 2)
    return _fail(f"a bug in fsframework: {text_of(error)} (--verbose shows where)", 1)


def _reader_is_gone() -> bool:
    """Return whether standard output is a pipe that nobody reads."""
    poll = select.poll()
    poll.register(1, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _fail(message: Any, code: int, below: str = "") -> int:
    print(f"fsf: {' '.join(str(message).split())}", file=sys.stderr)
    if below:
        print(f"\n{below}", file=sys.stderr)
    return code
