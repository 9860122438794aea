"""`fsf import`: checkpoints of other libraries, and what other packages import."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import CommandGroup, command, json_option, plugin_option, registry_with
from fsframework.errors import OptionError

if TYPE_CHECKING:
    from fsframework.pipeline.importing import Comparison, Imported
    from fsframework.records import RunRecord

__all__ = ["import_", "print_imported"]

_runs_dir = click.option(
    "--runs-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    envvar="FSF_RUNS",
    show_envvar=True,
    help="Where runs are written.  [default: ./runs]",
)


class _Sources(CommandGroup):
    """Beside its commands, any name is that of an importer."""

    def own_commands(self, ctx: click.Context) -> dict[str, str]:
        """Return the group's commands, and each importer as a command."""
        own = super().own_commands(ctx)
        return {**own, **dict.fromkeys(self.plugins(ctx).names("importer"), _SUMMARY)}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or the one that reads checkpoints with an importer of this name."""
        known = super().get_command(ctx, cmd_name)
        if known is not None:
            return known
        command = copy.copy(checkpoint)
        command.name = cmd_name
        return command


_SUMMARY = "Import checkpoints of this library."


@click.group("import", cls=_Sources)
def import_() -> None:
    """Make runs of what was made elsewhere: checkpoints of other libraries, accuracies.

    \b
    Examples:
      fsf import libfewshot ./results/ProtoNet-miniImageNet-Conv64F-5-1
      fsf import accuracies results.csv --task-set cub-5-shot

    An importer of checkpoints is a plugin: fsf plugins list --kind importer
    """


@command("checkpoint", epilog="Exit code 1 where the comparison fails; then no run is written.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--check",
    type=click.Path(path_type=Path),
    metavar="FILE.npz",
    help="Compare with the outputs, and the training loss if given, of the other library: a file, "
    "also in DIR, with images, output and train_loss.",
)
@click.option(
    "--tolerance",
    type=float,
    default=1e-3,
    show_default=True,
    metavar="X",
    help="Largest difference of the comparison, of outputs relative to their spread; labels must "
    "be equal.",
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
@_runs_dir
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
    runs_dir: Path | None,
    plugin_files: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Make a run of a checkpoint of another library.

    \b
    DIR is the folder that the library has written. The run holds method, backbone,
    their options and the weights; evaluate it with fsf run --model RUN. Every
    weight must fit.

    \b
    Examples:
      fsf import libfewshot ./results/ProtoNet-miniImageNet-Conv64F-5-1
      fsf import libfewshot ./checkpoint --check episode.npz
      fsf run --model runs/protonet-libfewshot-1a2b3c4d --dataset folder:./images
    """
    from fsframework.cli import render
    from fsframework.components.resolution import Given, resolve_component, set_dotted
    from fsframework.pipeline.cache.workspace import Workspace
    from fsframework.pipeline.importing import compare, read_checkpoint, read_episode, write_run
    from fsframework.pipeline.learning.model import resolve_device

    name = context.info_name
    if not tolerance > 0:
        raise OptionError(f"--tolerance must be above 0, not {tolerance}")
    chosen = resolve_device(device)
    registry = registry_with(plugin_files)
    tree: dict[str, Any] = {"name": Given(name, "command line")}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise OptionError(f"-o {option}: must be KEY=VALUE")
        set_dotted(tree, key.strip().removeprefix("importer."), Given(value, "command line"))
    importer = resolve_component(registry, "importer", tree)
    imported = read_checkpoint(registry, importer, folder)
    found = None
    if check is not None:
        beside = folder / check
        path = beside if beside.exists() and not check.exists() else check
        episode = read_episode(path, imported.read)
        found = compare(imported, episode, registry, chosen, tolerance)
    run = record = None
    if found is None or found.agrees:
        run, record = write_run(imported, Workspace.default(runs_dir), found)
    if as_json:
        render.print_json(_as_json(imported, found, run, record))
    else:
        _print(imported, found, run, record)
    if run is None:
        context.exit(1)


def _as_json(
    imported: Imported, found: Comparison | None, run: Path | None, record: RunRecord | None
) -> dict[str, Any]:
    return {
        "folder": None if run is None else str(run),
        "fingerprint": imported.fingerprint,
        "source": imported.read.source,
        "method": imported.method.to_json(),
        "backbone": imported.backbone.to_json(),
        "image_size": imported.read.image_size,
        "notes": list(imported.read.notes if record is None else record.notes),
        "check": None if found is None else _check_json(found),
    }


def _check_json(found: Comparison) -> dict[str, Any]:
    episode = found.episode
    return {
        "file": str(episode.path),
        "way": episode.way,
        "shot": episode.shot,
        "query": episode.query,
        "compared": "scores" if episode.labels is None else "labels",
        "output_difference": found.outputs,
        "train_loss": found.loss,
        "given_train_loss": episode.train_loss,
        "train_loss_difference": found.loss_difference,
        "tolerance": found.tolerance,
        "agrees": found.agrees,
    }


def _print(
    imported: Imported, found: Comparison | None, run: Path | None, record: RunRecord | None
) -> None:
    from fsframework.cli import render

    if found is not None:
        episode = found.episode
        click.echo(
            f"compared with {episode.path}: {episode.way}-way {episode.shot}-shot, "
            f"{episode.query} queries a class"
        )
        render.print_table(
            ("what", "difference", "tolerance", "verdict"), list(_rows(found, found.tolerance))
        )
        click.echo()
    if run is None or record is None:
        click.echo(f"{imported.read.source} as {imported.method.name} does not agree with what")
        click.echo(
            "was given; no run was written (without --check one is, --tolerance is the limit)"
        )
        return
    print_imported(run, record)


def _rows(found: Comparison, tolerance: float) -> list[tuple[str, str, str, str]]:
    verdicts = {True: "agrees", False: "DIFFERS"}
    episode = found.episode
    if episode.labels is None:
        rows = [
            (
                "outputs, largest, of their spread",
                f"{found.outputs:.1e}",
                f"{tolerance:g}",
                verdicts[found.outputs_agree],
            )
        ]
    else:
        n = len(episode.labels)
        rows = [
            (
                "labels",
                f"{round(found.outputs * n)} of {n}",
                "0",
                verdicts[found.outputs_agree],
            )
        ]
    if found.loss_difference is not None:
        rows.append(
            (
                f"training loss, {found.loss:.6g} for {episode.train_loss:.6g}",
                f"{found.loss_difference:.1e}",
                f"{tolerance:g}",
                verdicts[found.loss_agrees],
            )
        )
    return rows


def print_imported(folder: Path, record: RunRecord) -> None:
    """Print an imported run as a researcher reads it."""
    resolved = record.resolved
    facts = resolved["imported"]
    size = resolved["image_size"]
    click.echo(
        f"{resolved['method']['name']} with {resolved['backbone']['name']}, imported from "
        f"{facts['source']} in {facts['folder']}"
    )
    click.echo(
        f"made for {facts['n_way']}-way {facts['n_shot']}-shot, {facts['n_query']} queries a "
        f"class, images of {size} x {size} pixels"
    )
    for note in record.notes:
        click.echo(f"note: {note}")
    click.echo(f"evaluate it: fsf run --model {folder}")
    click.echo(f"run: {folder}")
