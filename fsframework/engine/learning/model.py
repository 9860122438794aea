"""A backbone and a method as one module, which is trained, saved and evaluated."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes
from torch import Tensor, nn

from fsframework._calls import checked, named, seeded
from fsframework._files import atomic_write
from fsframework._reading import check_file, parse_json
from fsframework.components.resolution import Component
from fsframework.engine.learning.augmentation import augmented
from fsframework.engine.learning.memory import keep_freed_memory
from fsframework.engine.names import demand_text
from fsframework.engine.options import Settings
from fsframework.engine.stages import Precision
from fsframework.errors import DataError, OptionError, RecordError, naming
from fsframework.interfaces.backbone import Backbone
from fsframework.interfaces.method import FewShotMethod
from fsframework.records import RunRecord
from fsframework.values import BoolArray, IntArray, UInt8Array, digest_of
from fsframework.values.weights import fit_weights, read_weights

__all__ = [
    "WEIGHTS_NAME",
    "FewShotModel",
    "base_classes_of",
    "build_model",
    "load_tensors",
    "lowered",
    "on_device",
    "save_tensors",
    "save_weights",
    "weights_digest",
    "weights_from",
    "weights_of_run",
]

WEIGHTS_NAME = "weights.safetensors"


_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def lowered(device: torch.device, precision: Precision) -> torch.autocast:
    """Return a context in which convolutions and products use a precision."""
    dtype = _DTYPES.get(precision, torch.bfloat16)
    return torch.autocast(device.type, dtype, enabled=precision != "fp32")


class FewShotModel(nn.Module):
    """Pixels in, items out; scores are the method's.

    Args:
        backbone: its maps, or their pooled vectors, are the items, unless the method
            ``consumes`` images and runs the backbone itself. The method then holds it, as one
            that ``trains_on_images`` does.
        size: height and width of the images in pixels.
        n_base_classes: classes of the training split, 0 without training.
    """

    mean: Tensor
    std: Tensor
    embedding_identity: str
    """Identifies what, besides the weights, determines an image's embedded item."""

    preprocessing_identity: str
    """Identifies the preparation of an image for the backbone."""

    def __init__(
        self, backbone: Backbone, method: FewShotMethod, size: int, n_base_classes: int
    ) -> None:
        super().__init__()
        self.method = method
        self.size = size
        self.interpolation = backbone.preprocessing.interpolation
        self.embedding_identity = ""
        self._sees_images = method.consumes == "images"
        # In a tuple, so that PyTorch does not count it twice where the method holds it.
        self._extractor = (backbone,)
        if not (self._sees_images or method.trains_on_images):
            self.backbone = backbone
        pre = backbone.preprocessing
        if not (all(0 <= v <= 1 for v in pre.mean) and all(0 < v <= 1 for v in pre.std)):
            raise OptionError(
                f"{named(backbone)}: mean and std must be those of RGB channels in 0..1, std above "
                f"0, not {pre.mean} and {pre.std}; divide those of channels in 0..255 by 255"
            )
        self.preprocessing_identity = f"{size} {pre.interpolation} {pre.mean} {pre.std}"
        self.register_buffer("mean", 255 * torch.tensor(pre.mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", 255 * torch.tensor(pre.std).view(3, 1, 1), persistent=False)
        method.read_with(backbone)
        method.build(self._item_shape(backbone), n_base_classes, backbone)

    def _item_shape(self, backbone: Backbone) -> tuple[int, ...]:
        if self._sees_images:
            return (3, self.size, self.size)
        training = backbone.training
        backbone.eval()
        with torch.no_grad():
            shape = self.items(torch.zeros(1, self.size, self.size, 3, dtype=torch.uint8)).shape
        backbone.train(training)
        return tuple(shape[1:])

    @property
    def has_features(self) -> bool:
        """Whether what ``scores`` sees is computed once per image, without pixels in every task."""
        return self.method.consumes != "images" or self.method.embeds

    @property
    def extractor(self) -> Backbone:
        """The backbone, whether this module or the method holds it."""
        return self._extractor[0]

    def images(self, pixels: Tensor) -> Tensor:
        """Map uint8 images ``(n, H, W, 3)`` to normalised float images ``(n, 3, H, W)``."""
        return self.normalised(self.plain(pixels))

    def plain(self, pixels: Tensor, augment: Sequence[str] = ()) -> Tensor:
        """Map uint8 images ``(n, H, W, 3)`` to float ones ``(n, 3, H, W)`` of values in 0..255.

        Args:
            augment: augmentations of each image; see ``learning.augmentation``.
        """
        # Moving the channels is free and leaves the tensor in the channels-last memory format.
        images = pixels.permute(0, 3, 1, 2).to(self.mean.dtype)
        return augmented(images, augment) if augment else images

    def normalised(self, images: Tensor) -> Tensor:
        """Normalise float images ``(n, 3, H, W)`` of values in 0..255."""
        return (images - self.mean) / self.std

    def encode(self, images: Tensor) -> Tensor:
        """Map normalised images ``(n, 3, H, W)`` to items ``(n, *item)``."""
        if self._sees_images:
            return images
        if self.method.consumes == "vectors":
            return self.extractor.encode(images)
        maps: Tensor = self.extractor(images)
        return checked(self.extractor, "forward", maps, Tensor)

    def items(self, pixels: Tensor) -> Tensor:
        """Map uint8 images ``(n, H, W, 3)`` to items ``(n, *item)``."""
        return self.encode(self.images(pixels))

    def weights_digest(self) -> str:
        """Digest of every parameter and buffer that is saved."""
        return weights_digest(self.state_dict())


def weights_digest(state: Mapping[str, Tensor]) -> str:
    """Return the digest of the tensors of a model, by their names."""
    tensors = (state[key].detach().cpu() for key in sorted(state))
    # NumPy has no bfloat16, whose values float32 has all.
    plain = (one.float() if one.dtype == torch.bfloat16 else one for one in tensors)
    parts = [np.ascontiguousarray(one.numpy()) for one in plain]
    return digest_of("weights", sorted(state), *parts)


def build_model(
    backbone: Component,
    method: Component,
    size: int,
    n_base_classes: int,
    seed: int = 0,
    settings: Settings | None = None,
) -> FewShotModel:
    """Create a model whose initial weights depend only on the seed and the pretrained weights.

    Args:
        settings: of an experiment, whose backbone has its pretrained weights unless those of a run
            replace them; ``None`` where all weights will be replaced.

    Raises:
        DataError: the pretrained weights are missing, cannot be read or do not fit.
    """
    keep_freed_memory()
    with seeded(seed):
        extractor: Backbone = backbone.create()
        if settings is not None and settings.model is None:
            extractor.load_pretrained(offline=settings.offline)
        head: FewShotMethod = method.create()
        demand_text(head, extractor, (method.called, backbone.called))
        model = FewShotModel(extractor, head, size, n_base_classes)
    # Methods that embed nothing share the features of their backbone.
    own = method.fingerprint if model.method.embeds else ""
    model.embedding_identity = digest_of(backbone.fingerprint, model.method.consumes, own)
    return model


def on_device(array: UInt8Array | IntArray | BoolArray, device: torch.device) -> Tensor:
    """Return an array as a tensor on a device, without waiting for earlier work of a GPU."""
    tensor = torch.from_numpy(array)
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


def save_tensors(path: Path, tensors: dict[str, Tensor], header: dict[str, object]) -> None:
    """Write tensors and a JSON header as safetensors, atomically."""
    # Copies, since safetensors refuses tensors that share their memory.
    ready = {k: v.detach().to("cpu", copy=True).contiguous() for k, v in tensors.items()}
    atomic_write(path, safetensors_bytes(ready, metadata={"fsframework": json.dumps(header)}))


def save_weights(path: Path, model: FewShotModel, n_base_classes: int) -> None:
    """Write the weights of a model as a run holds them, whole or not at all."""
    header: dict[str, object] = {"what": "weights", "n_base_classes": n_base_classes}
    save_tensors(path, model.state_dict(), header)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Read what ``save_tensors`` wrote.

    Raises:
        DataError: the file is missing or damaged.
    """
    try:
        check_file(path)
        with safe_open(path, framework="pt") as file:
            header = parse_json((file.metadata() or {}).get("fsframework", "{}"))
            return {key: file.get_tensor(key) for key in file.keys()}, header  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read as weights ({reason})") from None


def base_classes_of(folder: Path) -> int:
    """Return the number of base classes that the weights in the folder of a run are for.

    Raises:
        DataError: the file is missing or damaged.
    """
    found = load_tensors(folder / WEIGHTS_NAME)[1].get("n_base_classes")
    return found if isinstance(found, int) else 0


def weights_of_run(folder: Path, record: RunRecord) -> dict[str, Tensor]:
    """Return the weights in the folder of a run by their names.

    Raises:
        DataError: they are missing or damaged, or are not those that the run wrote.
    """
    file = folder / WEIGHTS_NAME
    tensors = load_tensors(file)[0]
    written = record.digests.get("weights")
    if written is not None and written != weights_digest(tensors):
        raise DataError(f"{file}: its weights are not those that the run wrote")
    return tensors


def weights_from(source: Path, model: FewShotModel) -> dict[str, Tensor]:
    """Return the weights of a run folder or of a file, by their names.

    Of a file that another program wrote, these are the weights of the model's backbone.

    Raises:
        DataError: they are missing or damaged, do not fit the backbone, or are not those that the
            run wrote.
    """
    if not source.is_dir():
        entries = read_weights(source)
        if any(name.startswith(("backbone.", "method.")) for name in entries.get("", ())):
            return entries[""]
        with naming(source):
            found = fit_weights(entries, model.extractor.state_dict())
        return {f"backbone.{name}": tensor for name, tensor in found.items()}
    try:
        return weights_of_run(source, RunRecord.load(source))
    except RecordError:
        return load_tensors(source / WEIGHTS_NAME)[0]  # nothing is known about them
    except DataError as error:
        raise DataError(f"{error}; run the command that made it, or install it, again") from None
