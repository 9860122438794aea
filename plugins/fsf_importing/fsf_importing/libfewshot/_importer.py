"""The importer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from fsf_importing.interfaces import CheckpointImporter, ImportedModel
from fsf_importing.libfewshot._backbones import BACKBONES, MEAN, STD
from fsf_importing.libfewshot._classifiers import CLASSIFIERS
from fsf_importing.libfewshot._files import read_config
from fsf_importing.libfewshot._here import Tasks
from fsf_importing.libfewshot._section import Section
from fsf_importing.weights import read_named
from fsframework.interfaces import DataError

__all__ = ["LibFewShot"]

_CONFIG = "config.yaml"


class LibFewShot(CheckpointImporter):
    """Reads checkpoints of LibFewShot: `config.yaml` and `model_best.pth`.

    The folder is a results folder of a training, with the weights in it or in `checkpoints`. Of the
    configuration, `classifier`, `backbone`, `image_size`, `way_num`, `shot_num` and `query_num` are
    read, and every key of the first two must be known; the rest concerns training and is ignored.
    Where LibFewShot's method differs from the paper's, options of the method are set so that the
    run scores as LibFewShot does.

    Source: Li et al. 2021, "LibFewShot: A Comprehensive Library for Few-shot Learning", and its
    code, for the names of classes, keys and weights.

    Args:
        checkpoint: name of the weights file, such as ``model_last.pth``.
    """

    def __init__(self, *, checkpoint: str = "model_best.pth") -> None:
        self.checkpoint = checkpoint

    def read(self, folder: Path) -> ImportedModel:
        """Read the configuration, then the weights; every key and weight must be known.

        Raises:
            DataError: a file is missing or damaged, a class, key or weight unknown or missing.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise DataError(
                f"{folder}: {'is not a folder' if folder.exists() else 'no such folder'}"
            )
        path = folder / _CONFIG
        config = read_config(path)
        size = _image_size(config, path)
        shape = Section(
            {key: config.get(key) for key in ("way_num", "shot_num", "query_num")},
            str(path),
            ("way_num", "shot_num", "query_num"),
        )
        tasks = Tasks(
            way=shape.whole("way_num", 5, least=2),
            shot=shape.whole("shot_num", 1, least=1),
            query=shape.whole("query_num", 15, least=1),
        )
        name, kwargs = _class(config, "classifier", path, CLASSIFIERS)
        classifier = CLASSIFIERS[name](kwargs, f"{path}: classifier.kwargs", tasks)
        where = f"{path}: backbone.kwargs"
        backbone_name, kwargs = _class(config, "backbone", path, BACKBONES)
        backbone = BACKBONES[backbone_name](kwargs, where, classifier.items, size)

        names = {**backbone.names, **classifier.names}
        shaped = {**backbone.shaped, **classifier.shaped}
        file = self._file(folder)
        stored = read_named(file, names, classifier.ignored)
        weights = {
            ours: shaped.get(ours, _as_it_is)(stored[theirs]) for theirs, ours in names.items()
        }
        return ImportedModel(
            source=f"LibFewShot's {name} with {backbone_name}",
            method=classifier.method,
            backbone=backbone.name,
            weights={**weights, **backbone.more},
            method_options={**classifier.options, **backbone.method_options},
            backbone_options={**backbone.options, "mean": MEAN, "std": STD},
            image_size=size,
            n_base_classes=classifier.n_base_classes,
            n_way=tasks.way,
            n_shot=tasks.shot,
            n_query=tasks.query,
            check_method_options=classifier.check_options,
            check_backbone_options=backbone.check_options,
            check_scores=classifier.check_scores,
            check_arrays=classifier.check_arrays,
            names={ours: theirs for theirs, ours in names.items()},
            notes=classifier.notes,
        )

    def example(self, folder: Path) -> None:
        """Write a ProtoNet with Conv64F and random weights."""
        config = {
            "backbone": {"name": "Conv64F", "kwargs": {"is_flatten": True}},
            "classifier": {"name": "ProtoNet", "kwargs": None},
            "image_size": 84,
            "way_num": 5,
            "shot_num": 1,
            "query_num": 15,
        }
        (folder / _CONFIG).write_text(yaml.safe_dump(config), encoding="utf-8")
        state: dict[str, Tensor] = {}
        generator = torch.Generator().manual_seed(0)
        for i in range(4):
            block = torch.nn.Sequential(
                torch.nn.Conv2d(64 if i else 3, 64, 3), torch.nn.BatchNorm2d(64)
            ).state_dict()
            torch.nn.init.normal_(block["0.weight"], std=0.05, generator=generator)
            torch.nn.init.zeros_(block["0.bias"])
            state |= {f"emb_func.layer{i + 1}.{key}": value for key, value in block.items()}
        torch.save(state, folder / self.checkpoint)

    def _file(self, folder: Path) -> Path:
        """Return the weights file, either where a training leaves it or in the folder itself."""
        beside = folder / self.checkpoint
        within = folder / "checkpoints" / self.checkpoint
        return within if within.exists() and not beside.exists() else beside


def _image_size(config: Mapping[str, Any], path: Path) -> int:
    size = config.get("image_size")
    if isinstance(size, list) and len(size) == 2 and size[0] == size[1]:
        size = size[0]
    return Section({"image_size": size}, str(path), ["image_size"]).whole("image_size", 84, least=8)


def _class(
    config: Mapping[str, Any], part: str, path: Path, known: Collection[str]
) -> tuple[str, object]:
    """Return name and ``kwargs`` of a class that the configuration names."""
    given = config.get(part)
    name = given.get("name") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(name, str):
        raise DataError(f"{path}: {part}.name: is missing")
    # The whole section may have only name and kwargs.
    Section(given, f"{path}: {part}", ("name", "kwargs"))
    if name not in known:
        raise DataError(
            f"{path}: {part}.name: LibFewShot's {name} has no counterpart here; known: "
            f"{', '.join(sorted(known, key=str.lower))}"
        )
    return name, given.get("kwargs")


def _as_it_is(weight: Tensor) -> Tensor:
    return weight
