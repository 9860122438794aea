"""From a checkpoint of another library to a run of ours, and its comparison with given outputs."""

from __future__ import annotations

import dataclasses
import json
import platform
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import fsframework
from fsframework.components.registry import Registry
from fsframework.components.resolution import Component, Given, canonical, resolve_component
from fsframework.errors import DataError, RecordError
from fsframework.interfaces.importer import ImportedModel
from fsframework.interfaces.method import Batch
from fsframework.pipeline.cache.workspace import Workspace
from fsframework.pipeline.experiment.stages import Stage
from fsframework.pipeline.learning.model import (
    FewShotModel,
    build_model,
    pixels_to,
    save_tensors,
    seeded,
)
from fsframework.records import RunRecord
from fsframework.values import UInt8Array, digest_of

__all__ = [
    "Comparison",
    "Episode",
    "Imported",
    "compare",
    "read_checkpoint",
    "read_episode",
    "write_run",
]


@dataclass(frozen=True)
class Imported:
    """A checkpoint that was read and fits: its components and the model with its weights."""

    importer: Component
    folder: Path
    read: ImportedModel
    method: Component
    backbone: Component
    model: FewShotModel

    @property
    def fingerprint(self) -> str:
        """Digest of what decides the model's scores, code apart."""
        identity = [self.method.to_json(), self.backbone.to_json(), self.read.image_size]
        return digest_of("import", canonical(identity), self.model.weights_digest())


@dataclass(frozen=True)
class Episode:
    """Images of one task, and what the other library made of them.

    Args:
        path: where it was read.
        pixels: uint8 ``(way * (shot + query), H, W, 3)``, way by way, the support first.
        scores: float64 ``(way * query, way)``; ``None`` where ``labels`` are given.
        labels: int64 ``(way * query,)``, the ways predicted.
        train_loss: of the same images with the model in training mode, if given.
    """

    path: Path
    pixels: UInt8Array
    way: int
    shot: int
    query: int
    scores: npt.NDArray[np.float64] | None
    labels: npt.NDArray[np.int64] | None
    train_loss: float | None


@dataclass(frozen=True)
class Comparison:
    """How far a model is from given outputs.

    Args:
        outputs: largest absolute difference of a score, divided by the mean over the queries of
            their largest less their smallest score; for labels the share that differs.
        loss: training loss here, ``None`` where none is given.
        loss_difference: relative to the given loss.
        tolerance: of both; labels must be equal.
    """

    episode: Episode
    outputs: float
    loss: float | None
    loss_difference: float | None
    tolerance: float

    @property
    def outputs_agree(self) -> bool:
        """Whether scores are within the tolerance, or all labels equal."""
        return self.outputs <= (self.tolerance if self.episode.labels is None else 0)

    @property
    def loss_agrees(self) -> bool:
        """Whether the training loss, if one is given, is within the tolerance."""
        return self.loss_difference is None or self.loss_difference <= self.tolerance

    @property
    def agrees(self) -> bool:
        """Whether everything compared agrees."""
        return self.outputs_agree and self.loss_agrees


def read_checkpoint(registry: Registry, importer: Component, folder: Path) -> Imported:
    """Read the checkpoint in a folder and give its weights to a model of ours.

    Raises:
        DataError: it cannot be read, or a weight is missing, superfluous or of another shape.
        PluginError: no plugin is installed under the name of its method or backbone.
    """
    read: ImportedModel = importer.create().read(folder)
    method, backbone = _components(registry, importer, read)
    model = build_model(backbone, method, read.image_size, read.n_base_classes, 0)
    _load(model, read, f"{folder}: {read.source} does not fit {method.name} with {backbone.name}")
    return Imported(importer, folder, read, method, backbone, model.eval())


def _components(
    registry: Registry, importer: Component, read: ImportedModel, *, checking: bool = False
) -> tuple[Component, Component]:
    """Resolve method and backbone with the options that the checkpoint asks for."""

    def resolved(kind: str, name: str, *options: Mapping[str, Any]) -> Component:
        merged = {key: value for part in options for key, value in part.items()}
        tree = {key: Given(value, importer.name) for key, value in {"name": name, **merged}.items()}
        return resolve_component(registry, kind, tree)

    more = (read.check_method_options, read.check_backbone_options) if checking else ({}, {})
    return (
        resolved("method", read.method, read.method_options, more[0]),
        resolved("backbone", read.backbone, read.backbone_options, more[1]),
    )


def _load(model: FewShotModel, read: ImportedModel, complaint: str) -> None:
    """Copy the weights into the model; every name and every shape must fit."""
    own = model.state_dict()
    held = "method.backbone." if model.method.consumes == "images" else "backbone."
    given = {_placed(name, held): tensor for name, tensor in read.weights.items()}
    names = {_placed(name, held): theirs for name, theirs in read.names.items()}

    def listed(keys: Iterable[str]) -> str:
        return ", ".join(names.get(key, key) for key in sorted(keys))

    faults = []
    if missing := own.keys() - given.keys():
        faults.append(f"missing: {listed(missing)}")
    if superfluous := given.keys() - own.keys():
        faults.append(f"superfluous: {listed(superfluous)}")
    unfit = [k for k in sorted(own.keys() & given.keys()) if own[k].shape != given[k].shape]
    if unfit:
        shapes = (
            f"{names.get(k, k)} is {tuple(given[k].shape)}, must be {tuple(own[k].shape)}"
            for k in unfit
        )
        faults.append(f"of another shape: {', '.join(shapes)}")
    if faults:
        raise DataError(f"{complaint}; weights {'; '.join(faults)}")
    model.load_state_dict(given)


def _placed(name: str, held: str) -> str:
    """Find the backbone's weights where the model holds the backbone."""
    inner = name.removeprefix("backbone.")
    return name if inner == name else held + inner


def read_episode(path: Path, read: ImportedModel) -> Episode:
    """Read images and outputs from an ``.npz`` file: ``images``, ``output``, ``train_loss``.

    Images are uint8 ``(way * (shot + query), 3, H, W)``. The output's shape tells way, shot and
    query where it is that of scores, ``(way * query, way)``; labels, ``(way * query,)`` or
    ``(1, way * query)``, are of as many ways as the checkpoint was made for.

    Raises:
        DataError: the file cannot be read or its arrays do not fit each other or the model.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            stored = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise DataError(f"--check {path}: no such file") from None
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise DataError(f"--check {path}: cannot be read as .npz ({error})") from None
    for name in ("images", "output"):
        if name not in stored:
            raise DataError(f"--check {path}: has no array {name!r}")
    images, output = stored["images"], stored["output"]
    size = read.image_size
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (3, size, size):
        raise DataError(
            f"--check {path}: images must be uint8 (n, 3, {size}, {size}), the size this model is "
            f"made for, not {images.dtype} {images.shape}"
        )
    labels = scores = None
    if output.ndim == 1 or (output.ndim == 2 and len(output) == 1):
        labels, way = _labels(output, read.n_way, path), read.n_way
        n_queries = len(labels)
    elif output.ndim == 2:
        scores = output.astype(np.float64)
        n_queries, way = output.shape
    else:
        raise DataError(f"--check {path}: output must be (queries, way), not {output.shape}")
    query, left = divmod(n_queries, way)
    shot, too = divmod(len(images) - n_queries, way)
    if way < 2 or left or too or query < 1 or shot < 1:
        raise DataError(
            f"--check {path}: {len(images)} images and {n_queries} queries do not make "
            f"{way} ways of equal support and queries"
        )
    pixels = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    loss = _loss(stored["train_loss"], path) if "train_loss" in stored else None
    return Episode(path, pixels, way, shot, query, scores, labels, loss)


def _labels(output: npt.NDArray[Any], way: int, path: Path) -> npt.NDArray[np.int64]:
    given: npt.NDArray[np.int64] = output.reshape(-1).astype(np.int64)
    if not np.array_equal(given, output.reshape(-1)) or given.min() < 0 or given.max() >= way:
        raise DataError(f"--check {path}: labels must be whole numbers from 0 to {way - 1}")
    return given


def _loss(stored: npt.NDArray[Any], path: Path) -> float:
    if stored.size != 1 or not np.issubdtype(stored.dtype, np.floating):
        raise DataError(f"--check {path}: train_loss must be a number, not of {stored.shape}")
    return float(stored.reshape(()))


def compare(
    imported: Imported,
    episode: Episode,
    registry: Registry,
    device: torch.device,
    tolerance: float,
) -> Comparison:
    """Compare scores and training loss with those given; the model itself is left alone.

    Each is computed by a model of its own: training mode changes BatchNorm's statistics.
    """
    loss = difference = None
    cudnn = torch.backends.cudnn
    # On a GPU, convolutions round to 10 bits unless they are told not to.
    with cudnn.flags(
        enabled=cudnn.enabled,
        benchmark=cudnn.benchmark,
        deterministic=cudnn.deterministic,
        allow_tf32=False,
    ):
        outputs = _difference(_scores(_checked(imported, registry, device), episode), episode)
        if episode.train_loss is not None:
            loss = _training_loss(_checked(imported, registry, device), episode)
            difference = abs(loss - episode.train_loss) / (abs(episode.train_loss) or 1.0)
    return Comparison(episode, outputs, loss, difference, tolerance)


def _checked(imported: Imported, registry: Registry, device: torch.device) -> FewShotModel:
    """Build a model anew, with the options of a comparison."""
    read = imported.read
    method, backbone = _components(registry, imported.importer, read, checking=True)
    model = build_model(backbone, method, read.image_size, read.n_base_classes, 0)
    model.load_state_dict(imported.model.state_dict())
    return model.to(device)


@torch.no_grad()
def _scores(model: FewShotModel, episode: Episode) -> npt.NDArray[np.float64]:
    """Return scores float64 ``(way * query, way)`` in evaluation mode."""
    model.eval()
    embedded = model.method.embed(model.items(pixels_to(episode.pixels, model.mean.device)))
    with seeded(0, model.mean.device):
        scores = model.method.scores(*_split(embedded, episode))
    found: npt.NDArray[np.float64] = scores[0].double().cpu().numpy()
    return found


def _training_loss(model: FewShotModel, episode: Episode) -> float:
    """Return the loss in training mode, the images being the episode and the batch at once."""
    model.train()
    device = model.mean.device
    ways = torch.arange(episode.way, device=device)
    of_support = ways[:, None].expand(-1, episode.shot)[None]
    of_query = ways.repeat_interleave(episode.query)[None]
    of_images = ways.repeat_interleave(episode.shot + episode.query)
    # Gradients stay on: methods that adapt may need them for the loss itself.
    with seeded(0, device):
        items = model.items(pixels_to(episode.pixels, device))
        support, query = _split(items, episode)
        loss = model.method.loss(
            Batch(
                support=support,
                query=query,
                query_labels=of_query,
                support_classes=of_support,
                query_classes=of_query,
                items=items,
                classes=of_images,
            )
        )
    return float(loss.detach())


def _split(items: Tensor, episode: Episode) -> tuple[Tensor, Tensor]:
    """Part items of one task into ``(1, way, shot, *item)`` and ``(1, way * query, *item)``."""
    by_way = items.reshape(1, episode.way, episode.shot + episode.query, *items.shape[1:])
    return by_way[:, :, : episode.shot], by_way[:, :, episode.shot :].flatten(1, 2)


def _difference(scores: npt.NDArray[np.float64], episode: Episode) -> float:
    if episode.labels is not None:
        return float((scores.argmax(axis=1) != episode.labels).mean())
    assert episode.scores is not None
    given = episode.scores
    spread = float((given.max(axis=1) - given.min(axis=1)).mean())
    # Scores that are all the same have no spread to relate to.
    return float(np.abs(scores - given).max()) / (spread or 1.0)


def write_run(
    imported: Imported, workspace: Workspace, comparison: Comparison | None = None
) -> tuple[Path, RunRecord]:
    """Write a run folder of the model, or find the one that an equal import has written."""
    name = f"{imported.method.name}-{imported.importer.name}-{imported.fingerprint[:8]}"
    folder = workspace.runs / name
    record = _record(imported, comparison)
    try:
        earlier = RunRecord.load(folder)
    except RecordError:
        earlier = None
    new = not folder.exists()
    try:
        weights = {**imported.model.state_dict()}
        header = {"what": "weights", "n_base_classes": imported.read.n_base_classes}
        save_tensors(folder / "weights.safetensors", weights, header)
        if earlier is not None and comparison is None:
            # What an earlier comparison found still holds.
            record = dataclasses.replace(record, created=earlier.created, notes=earlier.notes)
        # Last, for a folder is a run by its record.
        record.save(folder)
    except BaseException:
        if new:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder, record


def _record(imported: Imported, comparison: Comparison | None) -> RunRecord:
    read, importer = imported.read, imported.importer.name
    stage = json.loads(canonical(vars(Stage(epochs=0))))
    facts = {
        "source": read.source,
        "folder": str(imported.folder.resolve()),
        "n_way": read.n_way,
        "n_shot": read.n_shot,
        "n_query": read.n_query,
    }
    parts = (imported.importer, imported.method, imported.backbone)
    plugins = {dataclasses.astuple(c.loaded.plugin): c for p in parts for c in p.walk()}
    return RunRecord(
        fingerprint=imported.fingerprint,
        status="imported",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        given={"importer": imported.importer.to_json(), "folder": str(imported.folder)},
        resolved={
            "method": imported.method.to_json(),
            "backbone": imported.backbone.to_json(),
            "image_size": read.image_size,
            "n_base_classes": read.n_base_classes,
            "training": [stage],
            "imported": facts,
        },
        origins={
            "method": imported.method.origins_json(),
            "backbone": imported.backbone.origins_json(),
            "image_size": importer,
            "n_base_classes": importer,
            "training": [dict.fromkeys(stage, "default")],
            "imported": dict.fromkeys(facts, importer),
        },
        plugins=tuple(dataclasses.asdict(c.loaded.plugin) for _, c in sorted(plugins.items())),
        environment={
            "fsframework": fsframework.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        digests={"weights": imported.model.weights_digest()},
        notes=(*read.notes, *_findings(comparison)),
    )


def _findings(comparison: Comparison | None) -> list[str]:
    if comparison is None:
        return []
    episode = comparison.episode
    found = f"compared with {episode.path.name}: "
    if episode.labels is not None:
        found += f"all {len(episode.labels)} labels are equal"
    else:
        found += f"largest difference {comparison.outputs:.1e} of the spread"
    if comparison.loss_difference is not None:
        found += f", training loss {comparison.loss_difference:.1e} apart"
    return [found]
