"""Weights of relation networks that their authors published, imported as runs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from fsf_importing.interfaces import CheckpointImporter, ImportedModel
from fsf_importing.weights import read_named
from fsframework.interfaces import DataError, check_at_least, check_one_of

__all__ = ["RelationNet"]

_WHITE = 0.92206
_DEVIATION = 0.08426
_ENCODER, _RELATION = "feature_encoder", "relation_network"
_QUERIES = {(5, 1): 19, (5, 5): 15, (20, 1): 5}
"""Queries per class with which the weights of a shape were published."""


class RelationNet(CheckpointImporter):
    """Reads the weights of Omniglot that Sung et al. 2018 published: two `.pkl` files.

    The folder may contain the files of several shapes of tasks, which end in
    `feature_encoder_5way_1shot.pkl` and `relation_network_5way_1shot.pkl`; ``n_way`` and ``n_shot``
    choose among them. The model expects black drawings on white, 28 x 28 pixels.

    Source: Sung, Yang, Zhang, Xiang, Torr and Hospedales 2018, "Learning to Compare: Relation
    Network for Few-Shot Learning", and their code.

    Args:
        n_way: ways of the tasks that the weights were trained on, at least 2.
        n_shot: shots of these tasks, at least 1.
        batch_norm: ``batch`` for the statistics of each task, as the authors' code runs, so that
            queries influence each other; ``running`` for those in the files, which are the last
            training task's.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        n_way: int = 5,
        n_shot: int = 1,
        batch_norm: Literal["batch", "running"] = "batch",
    ) -> None:
        check_at_least(2, n_way=n_way)
        check_at_least(1, n_shot=n_shot)
        check_one_of(("batch", "running"), batch_norm=batch_norm)
        self.n_way = n_way
        self.n_shot = n_shot
        self.batch_norm = batch_norm

    def read(self, folder: Path) -> ImportedModel:
        """Read the two files; every weight must be known.

        Raises:
            DataError: a file is missing, there more than once, or damaged, or a weight is unknown
                or missing.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise DataError(
                f"{folder}: {'is not a folder' if folder.exists() else 'no such folder'}"
            )
        weights: dict[str, Tensor] = {}
        names: dict[str, str] = {}
        for part, layers in ((_ENCODER, _encoder_layers()), (_RELATION, _relation_layers())):
            file = self._file(folder, part)
            layer_names = _names(layers)
            stored = read_named(file, layer_names)
            for theirs, ours in layer_names.items():
                names[ours] = f"{file.name}: {theirs}"
                weights[ours] = stored[theirs]
        first = "backbone.blocks.0.conv.weight"
        weights[first] = _of_colours(weights[first], names[first])
        # The authors' PyTorch counted no steps.
        for name in [name for name in weights if name.endswith(".norm.weight")]:
            weights[f"{name.removesuffix('weight')}num_batches_tracked"] = torch.tensor(0)
        notes = [
            f"the drawings must be black on white; normalised with mean {_WHITE} and standard "
            f"deviation {_DEVIATION}"
        ]
        if self.batch_norm == "batch":
            notes.append("BatchNorm uses the statistics of each task: queries influence each other")
        return ImportedModel(
            source=f"Sung et al.'s RelationNet, {self.n_way}-way {self.n_shot}-shot",
            method="relationnet",
            backbone="conv64f-unpadded",
            weights=weights,
            method_options={"batch_norm": self.batch_norm},
            backbone_options={
                "mean": (_WHITE,) * 3,
                "std": (_DEVIATION,) * 3,
            },
            image_size=28,
            n_way=self.n_way,
            n_shot=self.n_shot,
            n_query=_QUERIES.get((self.n_way, self.n_shot), 15),
            names=names,
            notes=tuple(notes),
        )

    def example(self, folder: Path) -> None:
        """Write both networks with random weights."""
        generator = torch.Generator().manual_seed(0)
        for part, widths in ((_ENCODER, (1, 64, 64, 64)), (_RELATION, (128, 64))):
            state: dict[str, Tensor] = {}
            for i, width in enumerate(widths, 1):
                block = nn.Sequential(nn.Conv2d(width, 64, 3), nn.BatchNorm2d(64))
                state |= {f"layer{i}.{name}": value for name, value in block.state_dict().items()}
            if part == _RELATION:
                for layer, module in (("fc1", nn.Linear(64, 8)), ("fc2", nn.Linear(8, 1))):
                    state |= {f"{layer}.{name}": v for name, v in module.state_dict().items()}
            state = {name: v for name, v in state.items() if "num_batches" not in name}
            for name, value in state.items():
                if value.ndim > 1:
                    nn.init.normal_(value, std=0.05, generator=generator)
                elif name.endswith(".bias"):
                    nn.init.zeros_(value)
            torch.save(state, folder / f"omniglot_{part}_{self._shape}.pkl")

    @property
    def _shape(self) -> str:
        return f"{self.n_way}way_{self.n_shot}shot"

    def _file(self, folder: Path, part: str) -> Path:
        """Return the only file of a part."""
        ending = f"{part}_{self._shape}.pkl"
        found = sorted(path for path in folder.iterdir() if path.name.endswith(ending))
        if not found:
            raise DataError(
                f"{folder}: no file ends in {ending}; -o importer.n_way and -o importer.n_shot "
                "choose the shape of the tasks"
            )
        if len(found) > 1:
            several = ", ".join(path.name for path in found)
            raise DataError(f"{folder}: several files end in {ending}: {several}")
        return found[0]


def _encoder_layers() -> dict[str, str]:
    """Return our names of the encoder's layers by theirs."""
    blocks = range(4)
    convolutions = {f"layer{i + 1}.0": f"backbone.blocks.{i}.conv" for i in blocks}
    return convolutions | {f"layer{i + 1}.1": f"backbone.blocks.{i}.norm" for i in blocks}


def _relation_layers() -> dict[str, str]:
    """Return our names of the relation network's layers by theirs."""
    layers = {"fc1": "method.combine", "fc2": "method.relate"}
    for i, ours in ((1, "first"), (2, "second")):
        layers |= {f"layer{i}.0": f"method.{ours}.conv", f"layer{i}.1": f"method.{ours}.norm"}
    return layers


def _names(layers: dict[str, str]) -> dict[str, str]:
    """Return our name of every weight of a file by theirs."""
    names = {}
    for theirs, ours in layers.items():
        kinds = ["weight", "bias"]
        if ours.endswith(".norm"):
            kinds += ["running_mean", "running_var"]
        names |= {f"{theirs}.{kind}": f"{ours}.{kind}" for kind in kinds}
    return names


def _of_colours(weight: Tensor, name: str) -> Tensor:
    """Return the kernels of grey images for red, green and blue, which are equal: red's alone."""
    if weight.ndim != 4 or weight.shape[1] != 1:
        raise DataError(f"{name} must be for one channel, but its shape is {tuple(weight.shape)}")
    return torch.cat([weight, torch.zeros_like(weight).expand(-1, 2, -1, -1)], dim=1)
