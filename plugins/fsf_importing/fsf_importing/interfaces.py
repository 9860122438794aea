"""The contract of importers of checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsframework.interfaces import Configurable

if TYPE_CHECKING:
    from torch import Tensor

    from fsframework.interfaces import FewShotMethod

__all__ = ["CheckpointImporter", "ImportedModel"]


@dataclass(frozen=True)
class ImportedModel:
    """A checkpoint of another library, in the terms of this framework.

    Methods and backbones are named as strings, since an importer imports no other plugin.

    Args:
        source: its name in that library, such as ``LibFewShot's RENet with resnet12``.
        method: name of the method's plugin; ``backbone`` that of the backbone's.
        weights: every parameter and buffer by its name here: ``backbone.`` and its name in the
            backbone, or ``method.`` and its name in the method. The backbone's have this prefix
            even where the method holds the backbone.
        method_options: options of the method, as its constructor takes them; others keep their
            defaults. They express where the other library differs from the paper.
            ``backbone_options`` likewise; they include the normalisation of the images.
        image_size: height and width of the images in pixels.
        n_base_classes: number of classes that the model was trained on, 0 where no weight depends
            on it.
        n_way: classes per task; with ``n_shot`` support images and ``n_query`` queries per class,
            the shape of the tasks it was made for.
        check_method_options: override ``method_options`` for a comparison with outputs of the other
            library, such as noise that was switched off when they were made;
            ``check_backbone_options`` likewise.
        check_scores: how a comparison scores where the outputs were made from starts or noise that
            the other library draws at random, and that lie beside the outputs: a function of the
            method, support, query and the further arrays by name, which returns the scores;
            ``None`` where ``scores`` does.
        check_arrays: names of the arrays that ``check_scores`` needs.
        names: the checkpoint's own name of each weight, for messages.
        notes: what a user must know, one sentence each.
    """

    source: str
    method: str
    backbone: str
    weights: Mapping[str, Tensor]
    method_options: Mapping[str, Any] = field(default_factory=dict)
    backbone_options: Mapping[str, Any] = field(default_factory=dict)
    image_size: int = 84
    n_base_classes: int = 0
    n_way: int = 5
    n_shot: int = 1
    n_query: int = 15
    check_method_options: Mapping[str, Any] = field(default_factory=dict)
    check_backbone_options: Mapping[str, Any] = field(default_factory=dict)
    check_scores: Callable[[FewShotMethod, Tensor, Tensor, Mapping[str, Tensor]], Tensor] | None = (
        None
    )
    check_arrays: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class CheckpointImporter(Configurable, ABC, kind="importer"):
    """Reads what another library has saved, and never runs code from a file."""

    @abstractmethod
    def read(self, folder: Path) -> ImportedModel:
        """Read the checkpoint in a folder; nothing is written.

        The caller finds out whether the weights fit the method and the backbone; an importer
        ensures that no weight it knows of is missing and that none is left over.

        Raises:
            DataError: a file is missing, damaged or of another kind, the model is of a class
                that has no counterpart here, a key of the configuration or a weight is unknown,
                or one is missing; the message names it.
        """

    def example(self, folder: Path) -> None:
        """Write a small synthetic checkpoint of the supported kind into an empty folder.

        Optional: with it, ``fsf plugins check`` tests the importer on a valid checkpoint and on
            damaged ones; without it, only on folders that hold none.
        """
        raise NotImplementedError
