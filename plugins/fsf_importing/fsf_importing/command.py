"""`fsf import`: make runs from models or results from elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import (
    CommandGroup,
    command,
    json_option,
    option_tree,
    plugin_option,
    session_of,
)
from fsframework.errors import OptionError

if TYPE_CHECKING:
    from fsf_importing.checkpoints import Checkpoint
    from fsf_importing.reference import Deviation
    from fsframework.api.running import Run

__all__ = ["import_"]

_SUMMARY = "Import checkpoints of this library."


class _Importers(CommandGroup):
    """A command per importer, and the commands that other packages add."""

    def own_commands(self, ctx: click.Context) -> dict[str, str]:
        """Return the summary of each importer."""
        own = super().own_commands(ctx)
        return {**own, **dict.fromkeys(self.plugins(ctx).names("importer"), _SUMMARY)}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or the one that reads checkpoints with an importer of this name."""
        known = super().get_command(ctx, cmd_name)
        if known is not None or cmd_name.startswith("-"):
            return known
        # The importer may be in a file that only the options name.
        found = copy.copy(checkpoint)
        found.name = cmd_name
        return found


@click.group("import", cls=_Importers)
def import_() -> None:
    """Make runs from models or results from elsewhere.

    \b
    Example:
      fsf import libfewshot ./results/ProtoNet-miniImageNet-Conv64F-5-1

    Importers of checkpoints are plugins: fsf plugins list --kind importer
    """


@command("checkpoint", epilog="Exit code 1 if the comparison fails; no run is written.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--check",
    type=click.Path(path_type=Path),
    metavar="FILE.npz",
    help="Compare with the other library's outputs and, if given, training loss: a file, also in "
    "DIR, with images, output and train_loss.",
)
@click.option(
    "--tolerance",
    type=float,
    default=1e-3,
    show_default=True,
    metavar="X",
    help="Largest allowed difference, for outputs relative to their range; labels must be equal.",
)
@click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the importer, e.g. -o importer.checkpoint=model_last.pth; repeatable.",
)
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    metavar="NAME",
    help="Where to compare: cpu, cuda, cuda:N, mps or auto.",
)
@click.option(
    "--runs-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    envvar="FSF_RUNS",
    show_envvar=True,
    help="Where runs are written.  [default: ./runs]",
)
@plugin_option
@json_option
@click.pass_context
def checkpoint(
    context: click.Context,
    /,
    folder: Path,
    check: Path | None,
    tolerance: float,
    options: tuple[str, ...],
    device: str,
    as_json: bool,
    **_: Any,
) -> None:
    """Make a run from a checkpoint of another library.

    DIR is the folder that the library has written. The run contains the method, the
    backbone, their options and the weights; evaluate it with fsf run --model RUN.
    Every weight must match.

    \b
    Examples:
      fsf import libfewshot ./results/ProtoNet-miniImageNet-Conv64F-5-1
      fsf import libfewshot ./checkpoint --check reference.npz
      fsf run --model runs/protonet-libfewshot-1a2b3c4d --dataset folder:./images
    """
    from fsf_importing.checkpoints import read_checkpoint_in
    from fsf_importing.reference import deviation, read_reference
    from fsframework.cli import render

    if not tolerance > 0:
        raise OptionError(f"--tolerance must be above 0, not {tolerance}")
    importer = _importer(str(context.info_name), options)
    read = read_checkpoint_in(session_of(context), importer, folder)
    found = None
    if check is not None:
        beside = folder / check
        path = beside if beside.exists() and not check.exists() else check
        reference = read_reference(path, read.read)
        found = deviation(read, reference, tolerance=tolerance, device=device)
    run = None
    if found is None or found.agrees:
        run = read.save([] if found is None else [found.described()])
    if as_json:
        render.print_json(_as_json(read, found, run))
    else:
        _print(read, found, run)
    if run is None:
        context.exit(1)


def _importer(name: str, options: tuple[str, ...]) -> dict[str, Any]:
    """Return the importer's name and options as one request."""
    tree = option_tree(options)
    if unknown := sorted(tree.keys() - {"importer"}):
        raise OptionError(
            f"-o {unknown[0]}: only options of the importer can be set, such as "
            "-o importer.checkpoint=model_last.pth"
        )
    return {**tree.get("importer", {}), "name": name}


def _as_json(read: Checkpoint, found: Deviation | None, run: Run | None) -> dict[str, Any]:
    return {
        "folder": None if run is None else str(run.folder),
        "fingerprint": read.fingerprint,
        "source": read.read.source,
        "method": read.method.to_json(),
        "backbone": read.backbone.to_json(),
        "image_size": read.read.image_size,
        "notes": list(read.read.notes if run is None else run.record.notes),
        "check": None if found is None else _check_json(found),
    }


def _check_json(found: Deviation) -> dict[str, Any]:
    reference = found.reference
    return {
        "file": str(reference.path),
        "way": reference.way,
        "shot": reference.shot,
        "query": reference.query,
        "compared": "scores" if reference.labels is None else "labels",
        "output_difference": found.outputs,
        "train_loss": found.loss,
        "given_train_loss": reference.train_loss,
        "train_loss_difference": found.loss_difference,
        "tolerance": found.tolerance,
        "agrees": found.agrees,
    }


def _print(read: Checkpoint, found: Deviation | None, run: Run | None) -> None:
    from fsframework.cli import render

    if found is not None:
        reference = found.reference
        click.echo(
            f"compared with {reference.path}: {reference.way}-way {reference.shot}-shot, "
            f"{reference.query} queries per class"
        )
        render.print_table(("what", "difference", "tolerance", "verdict"), list(_rows(found)))
        click.echo()
    if run is None:
        click.echo(
            f"{read.read.source} as {read.method.name} does not agree with what was given; no run "
            "was written (without --check one is written; --tolerance sets the limit)"
        )
        return
    imported = run.record.imported
    assert imported is not None
    click.echo(
        f"{read.method.name} with {read.backbone.called}, imported from {imported.source} in "
        f"{imported.folder}"
    )
    size = read.read.image_size
    click.echo(
        f"made for {imported.n_way}-way {imported.n_shot}-shot tasks with {imported.n_query} "
        f"queries per class, images of {size} x {size} pixels"
    )
    for note in run.record.notes:
        click.echo(f"note: {note}")
    click.echo(f"evaluate it: fsf run --model {run.folder}")
    click.echo(f"run: {run.folder}")


def _rows(found: Deviation) -> Iterator[tuple[str, str, str, str]]:
    verdicts = {True: "agrees", False: "DIFFERS"}
    reference, limit = found.reference, f"{found.tolerance:g}"
    if reference.labels is None:
        outputs = ("outputs, largest relative to range", f"{found.outputs:.1e}", limit)
    else:
        n = len(reference.labels)
        outputs = ("labels", f"{round(found.outputs * n)} of {n}", "0")
    yield (*outputs, verdicts[found.outputs_agree])
    if found.loss_difference is not None:
        what = f"training loss, {found.loss:.6g} instead of {reference.train_loss:.6g}"
        yield what, f"{found.loss_difference:.1e}", limit, verdicts[found.loss_agrees]
