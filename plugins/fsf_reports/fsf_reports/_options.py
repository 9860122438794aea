"""Options that the commands of this package share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fsframework.cli.options import plugin_names, run_names

__all__ = ["outputs_option", "question_option", "runs_argument", "statistic_option"]


def runs_argument(*, required: bool = True) -> Any:
    """Return the argument that names runs."""
    metavar = "RUN..." if required else "[RUN]..."
    return click.argument(
        "run_list", metavar=metavar, nargs=-1, required=required, shell_complete=run_names
    )


def outputs_option(told: str) -> Any:
    """Return the repeatable option of files to write."""
    return click.option(
        "--output",
        "outputs",
        type=click.Path(path_type=Path),
        multiple=True,
        metavar="FILE",
        help=told,
    )


statistic_option = click.option(
    "--statistic",
    metavar="NAME",
    default="wacc",
    show_default=True,
    shell_complete=plugin_names("statistic"),
    help="Statistic whose values and gap are shown; in the figures intervals, pairs and ablations "
    "also a measure, such as wacc-drop or acc-gap.",
)

question_option = click.option(
    "--question",
    type=click.Choice(["tied", "present"]),
    help="For words: tied to a class in the support, or present in a query.  [default: tied; "
    "both for harm]",
)
