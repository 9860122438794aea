"""`fsf run`: the main job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fsframework.cli.options import CONFIGURATION, command, experiment_of, shared
from fsframework.engine.options import OF_RUN

if TYPE_CHECKING:
    from fsframework.api.running import Run

__all__ = ["run"]


@command(epilog="Options left out come from --config, then from the defaults.")
@shared(*OF_RUN, "seeds", "workers", *CONFIGURATION)
@shared("runs-dir", "cache-dir", "dry-run", "explain", "json")
@click.pass_context
def run(
    context: click.Context,
    /,
    seeds: str | None,
    dry_run: bool,
    explain: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Train a method, evaluate it on the tasks of every arm, print how they differ.

    With the sampler fewstab it prints wAcc-R (worst-class accuracy on random
    tasks), wAcc-A (on tasks whose support ties each class to a spurious attribute
    and whose queries break the tie) and their difference, the gap. With the
    sampler context it prints the accuracies on queries in the contexts of their
    support and in others. Finished work is reused; an interrupted run resumes when
    the same command is run again. With --dry-run it prints every option with its
    origin.

    With --seeds it trains one model per seed, evaluates all on the same tasks, and
    prints the estimates over seeds and tasks first. With --explain every estimate
    is printed with its interval, its tasks and its images.

    \b
    Examples:
      fsf run --method renet --sampler fewstab
      fsf run --method protonet --shot 1 --tasks 3000 --placebo
      fsf run --method renet --seeds 0-4
      fsf run --dataset folder:./images --attributes words.csv --backbone resnet12
      fsf run --dataset folder:./images --detector vit-gpt2 --drop-class-words
      fsf run --method ncc --sampler depleting --tasks all --queries 5
      fsf run --method ncc --backbone timm:tf_efficientnet_lite0 --dataset folder:./images \\
              --detector appearance
      fsf run --plugin ./mine.py --method mine -o method.temperature=0.2
      fsf run --method leo --init-from method=baseline
      fsf run --model method=renet --dataset folder:./images
      fsf run --config exp.toml --dry-run
    """
    from fsframework.api.experiments import read_seeds
    from fsframework.api.running import run_resolved
    from fsframework.cli import render

    experiment, session = experiment_of(context)
    chosen = None if seeds is None else read_seeds(seeds)
    if dry_run:
        options, origins = dict(experiment.options), dict(experiment.origins)
        if chosen is not None:
            options["training_seed"], origins["training_seed"] = list(chosen), "--seeds"
        render.print_options(options, origins, as_json=as_json)
        return
    made = run_resolved(experiment, session, chosen)
    if as_json:
        told = [_as_json(one) for one in made.runs]
        render.print_json(told[0] if chosen is None else {**made.to_json(), "runs": told})
        return
    if made.reused:
        what = "this run is" if chosen is None else "these runs are"
        click.echo(f"nothing to do: {what} already finished", err=True)
    render.print_run(made, explain=explain)


def _as_json(run: Run) -> dict[str, Any]:
    record = run.record
    return {
        "folder": str(run.folder),
        "name": run.name,
        "fingerprint": record.fingerprint,
        "reused": run.reused,
        "arms": list(record.arms),
        "estimates": {name: e.to_json() for name, e in record.estimates.items()},
        "notes": list(record.notes),
        "timings": dict(record.timings),
    }
