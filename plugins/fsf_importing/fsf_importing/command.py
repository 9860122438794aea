"""`fsf import`: make runs from models or results from elsewhere."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import CommandGroup, command, key_values, session_of, shared
from fsframework.errors import OptionError

if TYPE_CHECKING:
    from fsf_importing.checkpoints import Checkpoint
    from fsf_importing.deviation import Deviation, Difference
    from fsframework.api.running import Run

__all__ = ["import_"]

_SUMMARY = "Import checkpoints of this library."


class _Importers(CommandGroup):
    """A command per importer, and the commands that other packages add."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands and of the installed importers."""
        from fsframework.api.components import Registry

        return sorted({*super().list_commands(ctx), *Registry().names("importer")})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or the one that reads checkpoints with an importer of this name."""
        known = super().get_command(ctx, cmd_name)
        if known is not None or cmd_name.startswith("-"):
            return known
        # The importer may be in a file that only the options name.
        found = copy.copy(checkpoint)
        found.name, found.short_help = cmd_name, _SUMMARY
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
    help="Largest allowed difference, for outputs relative to their range, unless rounding alone "
    "moves them as far; labels must be equal.",
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
@shared("runs-dir", "plugin", "json")
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
    from fsf_importing.deviation import deviation
    from fsf_importing.reference import read_reference
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
        render.print_json(_as_json(read, found, run, tolerance))
    else:
        _print(read, found, run)
    if run is None:
        context.exit(1)


def _importer(name: str, options: tuple[str, ...]) -> dict[str, Any]:
    """Return the importer's name and options as one request."""
    from fsframework.api.experiments import given_tree

    tree = given_tree(key_values(options), "command line")
    if unknown := sorted(tree.keys() - {"importer"}):
        raise OptionError(
            f"-o {unknown[0]}: only options of the importer can be set, such as "
            "-o importer.checkpoint=model_last.pth"
        )
    return {**tree.get("importer", {}), "name": name}


def _as_json(
    read: Checkpoint, found: Deviation | None, run: Run | None, tolerance: float
) -> dict[str, Any]:
    return {
        "folder": None if run is None else str(run.folder),
        "fingerprint": read.fingerprint,
        "source": read.read.source,
        "method": read.method.to_json(),
        "backbone": read.backbone.to_json(),
        "image_size": read.read.image_size,
        "notes": list(read.read.notes if run is None else run.record.notes),
        "check": None if found is None else _check_json(found, tolerance),
    }


def _check_json(found: Deviation, tolerance: float) -> dict[str, Any]:
    reference, loss = found.reference, found.loss_difference
    return {
        "file": str(reference.path),
        "way": reference.way,
        "shot": reference.shot,
        "query": reference.query,
        "compared": "scores" if reference.labels is None else "labels",
        "output_difference": found.outputs.value,
        "output_rounding": found.outputs.rounding,
        "output_limit": found.outputs.limit,
        "undecided_labels": found.undecided,
        "train_loss": found.loss,
        "given_train_loss": reference.train_loss,
        "train_loss_difference": None if loss is None else loss.value,
        "train_loss_rounding": None if loss is None else loss.rounding,
        "train_loss_limit": None if loss is None else loss.limit,
        "tolerance": tolerance,
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
        render.print_table(
            ("what", "difference", "by rounding", "limit", "verdict"), list(_rows(found))
        )
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
    click.echo(f"evaluate it: fsf run --model {shlex.quote(str(run.folder))}")
    click.echo(f"run: {run.folder}")


def _rows(found: Deviation) -> Iterator[tuple[str, str, str, str, str]]:
    reference = found.reference
    if reference.labels is None:
        yield _row("outputs, largest relative to range", found.outputs)
    else:
        decided = len(reference.labels) - found.undecided
        different = f"{round(found.outputs.value * decided)} of {decided}"
        left_out = f"{found.undecided} left out"
        yield "labels", different, left_out, "0", _verdict(found.outputs)
    if found.loss_difference is not None:
        what = f"training loss, {found.loss:.6g} instead of {reference.train_loss:.6g}"
        yield _row(what, found.loss_difference)


def _row(what: str, found: Difference) -> tuple[str, str, str, str, str]:
    moved, limit = f"{found.rounding:.1e}", f"{found.limit:.2g}"
    return what, f"{found.value:.1e}", moved, limit, _verdict(found)


def _verdict(found: Difference) -> str:
    return "agrees" if found.agrees else "DIFFERS"
