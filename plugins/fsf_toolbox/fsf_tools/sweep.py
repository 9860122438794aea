"""`fsf sweep`: many experiments, each once, on one machine or many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from fsframework.api.experiments import ALLOWANCES, ARGUMENTS, LISTS, OF_RUN, tree_of_call
from fsframework.cli.options import (
    CONFIGURATION,
    group,
    key_values,
    plugin_names,
    section,
    session_of,
    shared,
    tree_of,
)
from fsframework.errors import FsfError

if TYPE_CHECKING:
    from fsf_tools.searching import SearchedSweep
    from fsf_tools.sweeping import Finished
    from fsf_tools.sweeps import Sweep

__all__ = ["sweep"]

_SINGLE = (
    *("device", "level", "interval", "decoding", "broken"),
    *(one.flag for one in ARGUMENTS.values() if one.of_run and one.section and one.type is bool),
    *(ARGUMENTS[name].flag for name in LISTS if ARGUMENTS[name].section),
)
"""Options of a run with one value, or one list, for all experiments."""
_NOT_OF_SWEEPS = ("name", "task-file", "training-seed")
_OF_SEARCH = ("search", "trials", "objective")
_AXES = tuple(flag for flag in OF_RUN if flag not in (*_SINGLE, *_NOT_OF_SWEEPS))
"""Options with one or more values."""


@group(
    invoke_without_command=True,
    epilog="Options left out come from --config, then from the defaults.",
)
@shared(*_AXES, several=True)
@shared(*_SINGLE, "seeds", "workers", "launcher")
@click.option("--name", metavar="NAME", help="Name of the sweep.  [default: from its experiments]")
@section(
    "Search",
    click.option(
        "--search",
        metavar="NAME",
        shell_complete=plugin_names("searcher"),
        help="Search for the best values of options instead of trying all: optuna, ...; set its "
        "options with -o search.KEY=VALUE.",
    ),
    click.option(
        "--space",
        multiple=True,
        metavar="KEY=VALUES",
        help="What to search: KEY=LOW:HIGH, KEY=LOW:HIGH:log, KEY=LOW:HIGH:STEP or "
        "KEY=VALUE,VALUE,...; repeatable.",
    ),
    click.option("--trials", metavar="N", help="Configurations to try.  [default: 20]"),
    click.option(
        "--objective",
        metavar="ESTIMATE",
        help="What to choose by on validation tasks, such as wacc-biased.  [default: the accuracy "
        "on tasks of the control]",
    ),
)
@shared(*CONFIGURATION, "runs-dir", "cache-dir", "dry-run", "json")
@click.pass_context
def sweep(
    context: click.Context, /, name: str | None, dry_run: bool, as_json: bool, **_: Any
) -> None:
    """Run every combination of the values of several options, then print one table.

    Values are separated by commas; \\, is a comma within a value. Every experiment is a run, as
    fsf run makes it: what is finished is reused, and after an interruption the same command goes
    on. A failing experiment keeps its reason and hinders no other; the exit code is then 1 (2 if
    none finished), and the same command tries it again. The same sweep started in a second
    terminal, or on another machine with the same folder of runs, shares the work.

    \b
    A file for --config has options of all experiments, and may have
      [grid]                        lists of values: method = ["protonet", "renet"]
      [[exclude]]                   experiments to leave out: method = "renet", shot = 1
      [[overrides]]                 options of some: conditions as in [[exclude]], and
      [overrides.set.training]      the options below set
      [space]                       what --search searches: lists, or tables with low and high

    With --search every combination tries --trials configurations of the space on tasks of the
    validation classes. Only the best is run on the tasks; its record says among how many.

    \b
    Examples:
      fsf sweep --method protonet,renet --shot 1,5 --seeds 0-2
      fsf sweep --method r2d2 -o training.learning_rate=1e-3,1e-2 --dry-run
      fsf sweep --method protonet,renet --search optuna --space training.learning_rate=1e-4:0.1:log
      fsf sweep --config grid.toml --name table-1 --launcher local -o launcher.processes=4
      fsf sweep status table-1
    """
    if context.invoked_subcommand is not None:
        return
    from fsframework.cli import render

    planned = _planned(context, name)
    if dry_run:
        _print_listed(planned.name, planned.listed(), as_json)
        return
    from fsf_tools.sweeping import Finished

    found = Finished(planned.name, tuple(planned.run()))
    if as_json:
        render.print_json(found.to_json())
    elif found.runs:
        _print_finished(found)
    if not found.runs:
        name, reason = next(iter(found.failures.items()))
        raise FsfError(f"no experiment of the sweep finished; {name}: {reason}")
    if found.failures:
        context.exit(1)


def _planned(context: click.Context, name: str | None) -> Sweep | SearchedSweep:
    """Return the sweep that the options of the command describe."""
    from fsf_tools.grids import split_values
    from fsf_tools.sweeping import plan_sweep

    given = context.params
    axes: dict[str, list[Any]] = {}
    for option in (*_AXES, "seeds"):
        key = option.replace("-", "_")
        if (text := given[key]) is not None:
            axes[key] = [text] if key == "seeds" else split_values(text)
    single = [f"{key}={given[key]}" for key in _OF_SEARCH if given[key] is not None]
    single += [f"space.{one}" for one in given["space"]]
    for key, value in key_values(given["options"]).items():
        whole = key in LISTS or key.startswith(("launcher.", "search.", "space."))
        values = [value] if whole else split_values(value)
        if len(values) > 1:
            axes[key] = values
        else:
            single.append(f"{key}={values[0]}")
    return plan_sweep(
        axes,
        tree_of(context, config=False, leaving=(*axes, "name"), options=single),
        tree_of_call({name: given[name] for name in ALLOWANCES}, given["config"]),
        session_of(context),
        name=name,
        plugins=given["plugin_files"],
    )


def _print_listed(name: str, listed: Sequence[Mapping[str, str]], as_json: bool) -> None:
    """Print the state of each experiment."""
    from fsframework.cli import render

    if as_json:
        render.print_json({"sweep": name, "experiments": listed})
        return
    rows = [(str(n), *one.values()) for n, one in enumerate(listed, start=1)]
    render.print_table(("", "experiment", "state", "detail"), rows)
    click.echo()
    number = Counter(one["state"] for one in listed)
    counts = ", ".join(f"{times} {state}" for state, times in number.items())
    click.echo(f"sweep {name}: {len(listed)} experiments: {counts}")


def _print_finished(found: Finished) -> None:
    from fsframework.cli import render

    render.print_table(*found.table())
    click.echo()
    for warning in found.warnings:
        click.echo(warning)
    for note in found.notes:
        click.echo(f"note: {note}")
    for name, reason in found.failures.items():
        click.echo(f"failed: {name}: {reason}")
    click.echo()
    reused = sum(one.run.reused for one in found.results if one.run)
    failed = len(found.failures)
    done = len(found.results) - failed
    click.echo(
        f"sweep {found.name}: {done} of {len(found.results)} experiments finished"
        + (f", {reused} of them before" if reused else "")
        + (f", {failed} failed" if failed else "")
    )


@sweep.command("status")
@click.argument("name")
@shared("runs-dir", "cache-dir", "json")
@click.pass_context
def sweep_status(context: click.Context, /, name: str, as_json: bool, **_: Any) -> None:
    """Show which experiments of a sweep are done, running, failed or left.

    NAME is the name of the sweep, which it prints at its end.
    """
    from fsf_tools.sweeps import sweep_status

    _print_listed(name, sweep_status(name, session_of(context).workspace.runs), as_json)
