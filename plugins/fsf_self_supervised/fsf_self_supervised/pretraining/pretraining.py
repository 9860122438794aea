"""Training backbones that other methods start from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

import fsframework
from fsframework.api.experiments import Experiment, resolved, tree_of_call
from fsframework.api.session import Session, open_session
from fsframework.api.training import Epoch, save_tensors, train_experiment

if TYPE_CHECKING:
    from fsframework.api.arguments import Arguments

__all__ = ["Pretrained", "pretrain", "pretrain_experiment"]


@dataclass(frozen=True)
class Pretrained:
    """A trained backbone.

    Args:
        file: safetensors file of its weights, for ``training={"init_from": file}``.
        n_images: number of training images.
        history: the epochs of the training.
        best_accuracy: validation accuracy of the epoch that was kept; ``None`` without validation.
        notes: what a reader must know.
        reused: whether an equal training was found in the cache.
    """

    file: Path
    n_images: int
    history: tuple[Epoch, ...]
    best_accuracy: float | None
    notes: tuple[str, ...]
    reused: bool

    def __repr__(self) -> str:
        epochs = "1 epoch" if len(self.history) == 1 else f"{len(self.history)} epochs"
        return f"<Pretrained {self.file}: {epochs} on {self.n_images:,} images>"


def pretrain(
    output: str | Path,
    *,
    config: str | Path | Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
    cache_dir: str | Path | None = None,
    progress: bool = True,
    **arguments: Unpack[Arguments],
) -> Pretrained:
    """Train a backbone with a method, and write its weights for other methods to start from.

    No tasks are drawn, so the data set needs only a split ``train``, and no labels for a method
    that learns without. An interrupted call resumes where it stopped, and an equal training is
    taken from the cache, be it of a run.

    Args:
        output: safetensors file to write; it is replaced if it exists.
        config: a TOML file, or a mapping of the same shape; other arguments take precedence.
        plugins: Python files whose plugin classes are loaded too.
        cache_dir: where images and weights are cached; by default ``FSF_CACHE``, else the user's
            cache folder.
        progress: whether progress is shown on standard error.
        **arguments: those of ``fsframework.run`` that concern the training: ``method``,
            ``dataset``, ``backbone``, ``training``, ``recipe``, ``training_seed``, ``image_size``,
            ``device`` and others.

    Raises:
        FsfError: an argument or the data are wrong; the message is one sentence.

    >>> import tempfile
    >>> from fsf_self_supervised import pretrain
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pretrain(
    ...         f"{folder}/weights.safetensors", method="baseline", progress=False,
    ...         dataset={"name": "planted", "n_per_class": 8, "size": 16}, recipe="none",
    ...         training={"epochs": 1, "steps": 1, "validation_tasks": 0},
    ...     ).n_images
    512
    """
    session = open_session(cache_dir=cache_dir, plugins=plugins, progress=progress)
    return pretrain_experiment(
        resolved(tree_of_call(arguments, config), session), session, Path(output)
    )


def pretrain_experiment(experiment: Experiment, session: Session, output: Path) -> Pretrained:
    """Train the model of an experiment."""
    made = train_experiment(experiment, session)
    trained = made.trained
    weights = {f"backbone.{k}": v for k, v in made.model.extractor.state_dict().items()}
    options = {role: made.options[role] for role in ("method", "backbone", "dataset", "training")}
    save_tensors(
        output,
        weights,
        {
            "what": "weights",
            "version": fsframework.__version__,
            **options,
            "data": msgspec.to_builtins(made.data),
            "training_seed": made.options["training_seed"],
            "n_images": made.n_images,
            "best_accuracy": trained.best_accuracy,
            "notes": trained.notes,
        },
    )
    return Pretrained(
        output,
        made.n_images,
        trained.history,
        trained.best_accuracy,
        trained.notes,
        trained.reused,
    )
