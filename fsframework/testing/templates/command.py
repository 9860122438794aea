"""A command: how long each stage of a run took.

Try it: fsf my-command RUN
"""

import json
from pathlib import Path

import click
from fsframework.cli.options import command, shared


# Change the docstring, which is the help, and the summary in commands.toml. What is heavy is
# imported inside the function, so that `--help` is fast.
@command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@shared("json")
def my_command(run: Path, as_json: bool) -> None:
    """Show how long each stage of a run took.

    RUN is the folder of a run.
    """
    timings = json.loads((run / "run.json").read_text(encoding="utf-8"))["timings"]
    if as_json:
        click.echo(json.dumps(timings))
        return
    for stage, seconds in timings.items():
        click.echo(f"{stage:<12}{seconds:>8.1f} s")
