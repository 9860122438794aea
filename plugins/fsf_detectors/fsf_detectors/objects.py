"""Words for the objects that a detection model finds in an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from fsf_detectors.hub import (
    Batched,
    DtypeName,
    ModelFolder,
    UsesModel,
    check_dtype,
    check_model,
    load_config,
    load_image_processor,
    load_model,
    pictures,
    resolve_dtype,
    shut_up,
)
from fsframework.interfaces import AttributeDetector, DataError, OptionError
from fsframework.values import UInt8Array

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Objects"]

_NO_LABELS = {"", "n/a"}
"""Names of the numbers that COCO leaves out, in models that count them."""


class Objects(UsesModel["_Loaded"], AttributeDetector):
    """The labels of the objects that a detection model finds.

    An image has a word, the label in lower case, if the model finds at least one object of that
    label with a score above ``threshold``; how many and where does not matter. Most published
    models have the 80 labels of COCO: places, materials and colours are not among them.

    Labels name objects, among them that of the image's own class: remove it with
    ``--drop-class-words``.

    Args:
        model: a model of Transformers for object detection (DETR, YOLOS, RT-DETR, ...), name on
            the hub or path of a folder.
        revision: branch, tag or commit on the hub; by default the main branch.
        threshold: score that an object must exceed, 0 to 1.
        dtype: number format of the weights; ``auto`` is float32 on a CPU and float16 elsewhere.

    Raises:
        OptionError: an option is outside its range.
    """

    argument: ClassVar[str] = "model"

    def __init__(
        self,
        *,
        model: str,
        revision: str | None = None,
        threshold: float = 0.5,
        dtype: DtypeName = "auto",
    ) -> None:
        check_model(model)
        if not 0 <= threshold <= 1:
            raise OptionError(f"threshold must be a score between 0 and 1, not {threshold}")
        check_dtype(dtype)
        self.model = model
        self.revision = revision
        self.threshold = threshold
        self.dtype = dtype

    def detect(self, images: Sequence[UInt8Array]) -> list[frozenset[str]]:
        """Return the labels of each uint8 RGB image ``(H, W, 3)``, of any size."""
        return self._ready().labels_of(images)

    def provenance(self) -> Mapping[str, str]:
        """Return model, commit, digests, threshold and number format."""
        loaded = self._ready()
        return {
            **loaded.provenance,
            "dtype": str(loaded.dtype).removeprefix("torch."),
            "threshold": repr(self.threshold),
        }

    def _load(self, device: str, offline: bool) -> _Loaded:
        return _Loaded(self, device, offline)


class _Loaded:
    """A model on a device."""

    def __init__(self, options: Objects, device: str, offline: bool) -> None:
        folder = ModelFolder.find(options.model, options.revision, offline=offline)
        config = load_config(folder)
        with shut_up():
            from transformers import MODEL_FOR_OBJECT_DETECTION_MAPPING, AutoModelForObjectDetection
        if type(config) not in MODEL_FOR_OBJECT_DETECTION_MAPPING:
            built = ", ".join(getattr(config, "architectures", None) or [])
            raise DataError(
                f"{folder}: must contain a model for object detection, not "
                f"{built or f'a {config.model_type} model'}"
            )
        self.device = device
        self.dtype = resolve_dtype(options.dtype, device)
        self.threshold = options.threshold
        self.processor = load_image_processor(folder)
        self.model = load_model(folder, AutoModelForObjectDetection, config, self.dtype, device)
        self.provenance = folder.provenance()
        self.labels_of = Batched(self._labels_of)

    def _labels_of(self, images: Sequence[UInt8Array]) -> list[frozenset[str]]:
        return [self._labels(image) for image in pictures(images)]

    def _labels(self, picture: Image) -> frozenset[str]:
        """Return the labels of one image: padding in a batch would change its scores."""
        import torch

        with torch.inference_mode(), shut_up():
            try:
                inputs = self.processor([picture], return_tensors="pt")
            except ValueError as error:  # no pixel is left of a side once it is scaled
                what = f"an image of {picture.height} x {picture.width} pixels"
                raise DataError(f"{what} cannot be scaled for the model: {error}") from error
            moved = {
                name: tensor.to(self.device, self.dtype if tensor.is_floating_point() else None)
                for name, tensor in inputs.items()
            }
            found = self.processor.post_process_object_detection(
                self.model(**moved), threshold=self.threshold
            )
        names = self.model.config.id2label
        labels = {names[int(label)].strip().lower() for label in found[0]["labels"]}
        return frozenset(labels - _NO_LABELS)
