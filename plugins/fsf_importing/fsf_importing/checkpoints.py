"""Models that were trained elsewhere: checkpoints of other libraries, which become runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fsf_importing.interfaces import ImportedModel
from fsframework.api.components import Component, Given, canonical, component
from fsframework.api.imports import ImportedRecord, RunRecord, save_import
from fsframework.api.models import Model, new_model, save_weights
from fsframework.api.running import Run
from fsframework.api.session import Session, open_session
from fsframework.errors import DataError
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
        model: both together, with the weights of the checkpoint.
        session: where components are looked up and runs are written.
    """

    importer: Component
    folder: Path
    read: ImportedModel
    method: Component
    backbone: Component
    model: Model
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
        return digest_of("import", canonical(identity), self.weights_digest)

    @property
    def weights_digest(self) -> str:
        """Digest of the weights."""
        return self.model.network.weights_digest()

    def model_as_there(self, *, device: str = "cpu") -> Model:
        """Return a new model that does what the other library did when its outputs were saved.

        It has the options that the importer names for a comparison, such as noise that was
        switched off; training it leaves the checkpoint as it is.

        Raises:
            OptionError: the device is unknown or not available.
        """
        read = self.read
        method, backbone = _components(self.session, self.importer, read, compared=True)
        made = new_model(method, backbone, read.image_size, read.n_base_classes, device=device)
        made.network.load_state_dict(self.model.network.state_dict())
        return made

    def save(self, notes: Sequence[str] = ()) -> Run:
        """Write a run of the model, or return the one that an equal import wrote.

        Args:
            notes: what a reader must know besides the notes of the importer and of an equal
                import.
        """
        read, importer = self.read, self.importer
        record = RunRecord(
            fingerprint=self.fingerprint,
            status="imported",
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            given={"importer": importer.to_json(), "folder": str(self.folder)},
            settings={"image_size": read.image_size},
            origins={"image_size": importer.name},
            digests={"weights": self.weights_digest},
            imported=ImportedRecord(
                source=read.source,
                folder=str(self.folder.resolve()),
                n_base_classes=read.n_base_classes,
                n_way=read.n_way,
                n_shot=read.n_shot,
                n_query=read.n_query,
            ),
            notes=(*read.notes, *notes),
        )

        def write(folder: Path) -> None:
            file = folder / "weights.safetensors"
            save_weights(file, self.model.network, read.n_base_classes)

        return save_import(
            self.session,
            f"{self.method.name}-{importer.name}",
            record,
            write,
            roles={"method": self.method, "backbone": self.backbone},
            used=(importer,),
        )


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
    used = component(session.registry, "importer", importer)
    read: ImportedModel = used.create().read(folder)
    method, backbone = _components(session, used, read)
    model = new_model(method, backbone, read.image_size, read.n_base_classes)
    _load(model, read, f"{folder}: {read.source} does not fit {method.name} with {backbone.name}")
    return Checkpoint(used, folder, read, method, backbone, model, session)


def _components(
    session: Session, importer: Component, read: ImportedModel, *, compared: bool = False
) -> tuple[Component, Component]:
    """Resolve method and backbone with the options that the checkpoint asks for."""

    def resolved(kind: str, name: str, options: Mapping[str, Any]) -> Component:
        tree = {key: Given(value, importer.name) for key, value in options.items()}
        named = {"name": Given(name, importer.name), **tree}
        return component(session.registry, kind, named)

    method, backbone = dict(read.method_options), dict(read.backbone_options)
    if compared:
        method |= read.check_method_options
        backbone |= read.check_backbone_options
    return (
        resolved("method", read.method, method),
        resolved("backbone", read.backbone, backbone),
    )


def _load(model: Model, read: ImportedModel, complaint: str) -> None:
    """Copy the weights into the model; every name and every shape must fit."""
    network = model.network
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
