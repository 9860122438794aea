"""The contract of importers of checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsframework.interfaces.component import Configurable

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CheckpointImporter", "ImportedModel"]


@dataclass(frozen=True)
class ImportedModel:
    """What a checkpoint of another library is called and holds here.

    Methods and backbones are named as strings, for an importer imports no other plugin.

    Args:
        source: what it was there, such as ``LibFewShot's RENet with resnet12``.
        method: name of the method's plugin; ``backbone`` that of the backbone.
        weights: every parameter and buffer by its name here: ``backbone.`` and its name in the
            backbone, ``method.`` and its name in the method. The backbone's are called so even
            where the method holds the backbone.
        method_options: values of options of the method, as its constructor takes them; those
            left out keep their defaults. Where the other library differs from the paper, these
            say so. ``backbone_options`` likewise; they include the normalisation of the images.
        image_size: height and width of the images in pixels.
        n_base_classes: classes the model was trained on, 0 where no weight depends on it.
        n_way: classes a task; with ``n_shot`` support images and ``n_query`` queries a class, the
            shape of the tasks it was made for.
        check_method_options: laid over ``method_options`` for a comparison with outputs of the
            other library, such as the noise that was switched off when they were made;
            ``check_backbone_options`` likewise.
        names: the checkpoint's own name of each weight, for messages.
        notes: what a user must know, a sentence each.
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
    names: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class CheckpointImporter(Configurable, ABC):
    """Reads what another library has saved; running code of a file is out of the question."""

    @abstractmethod
    def read(self, folder: Path) -> ImportedModel:
        """Read the checkpoint in a folder; nothing is written.

        Whether the weights fit the method and the backbone is found by who builds them; an
        importer sees to it that none is missing, so far as it knows, and that none is left over.

        Raises:
            DataError: a file is missing, damaged or of another kind, the model is of a class
                that has no counterpart here, a key of the configuration or a weight is unknown,
                or one is missing; the message names it.
        """

    def example(self, folder: Path) -> None:
        """Write a small made-up checkpoint of the kind that is read into an empty folder.

        Optional: with it ``fsf plugins check`` tries the importer on a sound checkpoint and on
        damaged ones, without it on folders that hold none.
        """
        raise NotImplementedError
