"""Models that were trained elsewhere: checkpoints of other libraries, which become runs."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from fsframework.api._session import open_session
from fsframework.api.models import Model
from fsframework.api.running import Run
from fsframework.components.objects import named
from fsframework.components.registry import Registry
from fsframework.components.resolution import (
    Component,
    Given,
    canonical,
    resolve_component,
)
from fsframework.errors import DataError, RecordError
from fsframework.interfaces.importer import ImportedModel
from fsframework.pipeline.experiment.configuration import plain
from fsframework.pipeline.experiment.stages import Stage
from fsframework.pipeline.learning.model import (
    FewShotModel,
    build_model,
    resolve_device,
    save_tensors,
)
from fsframework.pipeline.recording import component_record, environment, plugin_records
from fsframework.pipeline.session import Session
from fsframework.records import ImportedRecord, RunRecord, StageRecord
from fsframework.values import digest_of

__all__ = ["Checkpoint", "read_checkpoint", "read_checkpoint_in"]


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """A checkpoint of another library, read into a model of this one.

    Args:
        importer: that read it, with its options.
        folder: that holds it.
        read: what the importer found there.
        method: with the options that the checkpoint asks for; ``backbone`` likewise.
        network: both as one module, with the weights of the checkpoint.
        session: where components are looked up and runs are written.
    """

    importer: Component
    folder: Path
    read: ImportedModel
    method: Component
    backbone: Component
    network: FewShotModel
    session: Session

    def __repr__(self) -> str:
        return (
            f"<Checkpoint: {self.read.source} as {self.method.name} with {self.backbone.called}, "
            f"{self.read.image_size} pixels>"
        )

    @property
    def fingerprint(self) -> str:
        """Digest of everything that decides the model's scores, except code."""
        identity = [self.method.to_json(), self.backbone.to_json(), self.read.image_size]
        return digest_of("import", canonical(identity), self.network.weights_digest())

    def model_as_there(self, *, device: str = "cpu") -> Model:
        """Return a new model that does what the other library did when its outputs were saved.

        It has the options that the importer names for a comparison, such as noise that was
        switched off; training it leaves the checkpoint as it is.

        Raises:
            OptionError: the device is unknown or not available.
        """
        read = self.read
        method, backbone = _components(self.session.registry, self.importer, read, compared=True)
        network = build_model(backbone, method, read.image_size, read.n_base_classes, 0)
        network.load_state_dict(self.network.state_dict())
        return Model(network.to(resolve_device(device)), method.name, backbone.called)

    def save(self, notes: Sequence[str] = ()) -> Run:
        """Write a run of the model, or return the one that an equal import wrote.

        Args:
            notes: what a reader must know besides the importer's notes. Without any, those of an
                equal import are kept.
        """
        name = f"{self.method.name}-{self.importer.name}-{self.fingerprint[:8]}"
        folder = self.session.workspace.runs / name
        record = _record(self, notes)
        try:
            earlier = RunRecord.load(folder)
        except RecordError:
            earlier = None
        if earlier is not None and not notes:
            record = dataclasses.replace(record, created=earlier.created, notes=earlier.notes)
        new = not folder.exists()
        try:
            header: dict[str, object] = {
                "what": "weights",
                "n_base_classes": self.read.n_base_classes,
            }
            save_tensors(folder / "weights.safetensors", self.network.state_dict(), header)
            # Last: the record is what makes a folder a run.
            record.save(folder)
        except BaseException:
            if new:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return Run(folder, record, earlier is not None)


def read_checkpoint(
    importer: Any,
    folder: str | Path,
    *,
    plugins: Sequence[str | Path] = (),
    runs_dir: str | Path | None = None,
) -> Checkpoint:
    """Read a checkpoint of another library into a model of this one.

    ``read_checkpoint("libfewshot", "./results/ProtoNet").save()`` makes a run of it, whose model
    ``fsframework.run(model=...)`` evaluates.

    Args:
        importer: a name, a mapping of a name and options, a class or an instance.
        folder: that the other library has written.
        plugins: Python files whose plugin classes are loaded too.
        runs_dir: where ``save`` writes; by default ``FSF_RUNS``, else ``./runs``.

    Raises:
        DataError: it cannot be read, or a weight is missing, unexpected or of another shape.
        PluginError: no plugin is installed under the name of its method or backbone.
    """
    session = open_session(runs_dir=runs_dir, plugins=plugins, progress=False)
    return read_checkpoint_in(session, importer, Path(folder))


def read_checkpoint_in(session: Session, importer: Any, folder: Path) -> Checkpoint:
    """Read a checkpoint in a given session; see ``read_checkpoint``."""
    registry = session.registry
    component = resolve_component(registry, "importer", named(registry, "importer", importer))
    read: ImportedModel = component.create().read(folder)
    method, backbone = _components(registry, component, read)
    network = build_model(backbone, method, read.image_size, read.n_base_classes, 0)
    complaint = f"{folder}: {read.source} does not fit {method.name} with {backbone.name}"
    _load(network, read, complaint)
    return Checkpoint(component, folder, read, method, backbone, network.eval(), session)


def _components(
    registry: Registry, importer: Component, read: ImportedModel, *, compared: bool = False
) -> tuple[Component, Component]:
    """Resolve method and backbone with the options that the checkpoint asks for."""

    def resolved(kind: str, name: str, options: Mapping[str, Any]) -> Component:
        tree = {key: Given(value, importer.name) for key, value in options.items()}
        return resolve_component(registry, kind, {"name": Given(name, importer.name), **tree})

    method, backbone = dict(read.method_options), dict(read.backbone_options)
    if compared:
        method |= read.check_method_options
        backbone |= read.check_backbone_options
    return (
        resolved("method", read.method, method),
        resolved("backbone", read.backbone, backbone),
    )


def _load(network: FewShotModel, read: ImportedModel, complaint: str) -> None:
    """Copy the weights into the model; every name and every shape must fit."""
    own = network.state_dict()
    held = "method.backbone." if network.method.consumes == "images" else "backbone."
    given = {_placed(name, held): tensor for name, tensor in read.weights.items()}
    names = {_placed(name, held): theirs for name, theirs in read.names.items()}

    def listed(keys: Iterable[str]) -> str:
        return ", ".join(names.get(key, key) for key in sorted(keys))

    faults = []
    if missing := own.keys() - given.keys():
        faults.append(f"missing: {listed(missing)}")
    if left_over := given.keys() - own.keys():
        faults.append(f"not in the model: {listed(left_over)}")
    unfit = [k for k in sorted(own.keys() & given.keys()) if own[k].shape != given[k].shape]
    if unfit:
        shapes = (
            f"{names.get(k, k)} is {tuple(given[k].shape)}, must be {tuple(own[k].shape)}"
            for k in unfit
        )
        faults.append(f"of another shape: {', '.join(shapes)}")
    if faults:
        raise DataError(f"{complaint}; weights {'; '.join(faults)}")
    network.load_state_dict(given)


def _placed(name: str, held: str) -> str:
    """Return the name of a weight in the model, which may hold the backbone elsewhere."""
    inner = name.removeprefix("backbone.")
    return name if inner == name else held + inner


def _record(checkpoint: Checkpoint, notes: Sequence[str]) -> RunRecord:
    read, importer = checkpoint.read, checkpoint.importer
    stage = {key: plain(value) for key, value in vars(Stage(epochs=0)).items()}
    parts = {"method": checkpoint.method, "backbone": checkpoint.backbone}
    used = [c for part in (importer, *parts.values()) for c in part.walk()]
    return RunRecord(
        fingerprint=checkpoint.fingerprint,
        status="imported",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        given={"importer": importer.to_json(), "folder": str(checkpoint.folder)},
        settings={"image_size": read.image_size},
        origins={"image_size": importer.name},
        components={role: component_record(part) for role, part in parts.items()},
        stages=(StageRecord(stage, dict.fromkeys(stage, "default")),),
        plugins=plugin_records(used),
        environment=environment(torch.device("cpu")),
        digests={"weights": checkpoint.network.weights_digest()},
        imported=ImportedRecord(
            source=read.source,
            folder=str(checkpoint.folder.resolve()),
            n_base_classes=read.n_base_classes,
            n_way=read.n_way,
            n_shot=read.n_shot,
            n_query=read.n_query,
        ),
        notes=(*read.notes, *notes),
    )
