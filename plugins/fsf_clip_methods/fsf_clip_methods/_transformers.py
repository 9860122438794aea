"""The backbone that is any image-text model of Transformers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from fsf_clip_methods._tower import ImageTextTower, needed, trained_on
from fsframework.interfaces import DataError, OptionError, Preprocessing, check_at_least

__all__ = ["Clip"]

_BICUBIC = 3
_NOT_STATED = "not stated"


class Clip(ImageTextTower):
    """An image-text model of Transformers: CLIP, SigLIP, SigLIP 2, MetaCLIP 2, ALIGN and others.

    A vector is the image feature that the model compares with text features. Both towers are
    frozen, in float32. Source: Radford et al. 2021, "Learning Transferable Visual Models From
    Natural Language Supervision", and the paper of each model.

    Of SigLIP 2, only the models of a fixed size are read: those called ``naflex`` take images as
    lists of patches.

    Args:
        model: a folder, or a name on the hub such as ``openai/clip-vit-base-patch32``. Weights are
            read as safetensors where there are such; code in the folder is never run.
        revision: branch, tag or commit on the hub.
        image_size: height and width in pixels; ``none`` for the model's own. Position embeddings
            are resampled.
        pretrained_on: name of the data that the weights were trained on; ``none`` to read it from
            the name on the hub, where it says so.

    Raises:
        DataError: there is no such model, or it has no image tower and text tower of one space.
        OptionError: an option is outside its range, or the model takes no images of another size.
    """

    argument: ClassVar[str] = "model"
    catalogue: ClassVar[str] = "Transformers"
    reads: ClassVar[tuple[str, ...]] = ("model",)

    def __init__(
        self,
        *,
        model: str,
        revision: str | None = None,
        image_size: int | None = None,
        pretrained_on: str | None = None,
    ) -> None:
        super().__init__()
        transformers = needed("transformers", "transformers")
        from fsf_detectors.hub import (
            ModelFolder,
            check_model,
            load_config,
            load_image_processor,
            load_tokenizer,
            shut_up,
        )

        check_model(model)
        if image_size is not None:
            check_at_least(1, image_size=image_size)
        self.model = model
        self.revision = revision
        self.image_size = image_size
        try:
            folder = ModelFolder.find(model, revision, offline=True, weights=False)
            self._config = load_config(folder)
        except DataError:
            folder = ModelFolder.find(model, revision, offline=False, weights=False)
            self._config = load_config(folder)
        with shut_up():
            net = transformers.AutoModel.from_config(self._config, dtype=torch.float32)
        self.net = _two_towers(net, str(folder)).eval().requires_grad_(False)
        self._tokenizer = load_tokenizer(folder)
        own = _vision(self._config)
        self._patch = int(getattr(own, "patch_size", None) or 1)
        taken = inspect.signature(self.net.get_image_features).parameters
        self._resampled = "interpolate_pos_encoding" in taken
        if image_size is not None and not self._resampled and self._patch > 1:
            raise OptionError(f"image_size must be none, as {model} takes images of one size only")
        self.preprocessing = _preprocessing(
            load_image_processor(folder), image_size or getattr(own, "image_size", None)
        )
        published = folder.name if folder.commit else ""
        self.pretrained_on = pretrained_on or trained_on(published)
        self.licence = _licence(folder.path) or _NOT_STATED
        self._provenance: dict[str, str] = {}

    def load_pretrained(self, *, offline: bool = False) -> None:
        """Load the weights of the folder, or those of the hub.

        Raises:
            DataError: the weights are missing, damaged or incomplete.
        """
        from transformers import AutoModel

        from fsf_detectors.hub import ModelFolder, load_model

        folder = ModelFolder.find(self.model, self.revision, offline=offline)
        self.net = load_model(folder, AutoModel, self._config, torch.float32, "cpu")
        self._provenance = {**folder.provenance(), "licence": self.licence}

    def provenance(self) -> Mapping[str, str]:
        """Return the model, its commit, digests of its files, Transformers' version, licence."""
        return self._provenance

    def forward(self, images: Tensor) -> Tensor:
        """Map float images ``(n, 3, H, W)`` to maps ``(n, C, h, w)``.

        Raises:
            OptionError: the images are too small to leave a map, or the model takes only others.
        """
        found: Tensor = self._image(images).last_hidden_state
        if found.ndim == 4:
            return found
        height, width = (side // self._patch for side in images.shape[2:])
        return self._map(found, height, width)

    def encode(self, images: Tensor) -> Tensor:
        """Map normalised images ``(n, 3, H, W)`` to image features ``(n, D)``, not normalised."""
        return _pooled(self._image(images))

    def _image(self, images: Tensor) -> Any:
        height, width = images.shape[2:]
        if min(height, width) < self._patch:
            raise OptionError(
                f"{self.model} needs images of at least {self._patch} x {self._patch} pixels to "
                f"leave a map, got {height} x {width}"
            )
        more = {"interpolate_pos_encoding": True} if self._resampled else {}
        return self.net.get_image_features(pixel_values=images.contiguous(), **more)

    @property
    def logit_scale(self) -> Tensor:
        """The factor of cosines that was learned with the model, a scalar."""
        scale: Tensor = self.net.logit_scale.exp()
        return scale.reshape(())

    def _ids(self, texts: Sequence[str], room: int = 0, length: int | None = None) -> Tensor:
        positions = _text(self._config).max_position_embeddings
        if positions - room < 4:
            raise OptionError(
                f"{self.model} reads {positions} tokens, which leaves too few beside a context of "
                f"{room}"
            )
        # SigLIP was trained on texts padded to the full length; CLIP masks padding.
        longest = positions - room
        if self._config.model_type != "siglip":
            longest = min(length or longest, longest)
        padding = "max_length" if length or self._config.model_type == "siglip" else True
        found = self._tokenizer(
            list(texts),
            padding=padding,
            truncation=True,
            max_length=longest,
            return_tensors="pt",
        )
        rows = [found["input_ids"], *([found[_MASK]] if _MASK in found else [])]
        return torch.stack(rows, dim=1)

    def _features(self, tokens: Tensor) -> Tensor:
        mask = {_MASK: tokens[:, 1]} if tokens.shape[1] > 1 else {}
        return _pooled(self.net.get_text_features(input_ids=tokens[:, 0], **mask))


_MASK = "attention_mask"


def _two_towers(net: Any, folder: str) -> Any:
    """Return a model with an image tower and a text tower of one space."""
    has = all(hasattr(net, name) for name in ("get_image_features", "get_text_features"))
    if not has or not hasattr(net, "logit_scale") or net.config.model_type == "siglip2":
        hint = (
            "; of SigLIP 2, take one of a fixed size, such as google/siglip2-base-patch16-224"
            if net.config.model_type == "siglip2"
            else ""
        )
        raise DataError(
            f"{folder}: must contain a model with an image tower and a text tower of one space, "
            f"such as CLIP or SigLIP, not {type(net).__name__}{hint}"
        )
    return net


def _pooled(found: Any) -> Tensor:
    """Return the features that a tower gives, whichever version of Transformers wraps them."""
    features: Tensor = getattr(found, "pooler_output", found)
    return features


def _vision(config: Any) -> Any:
    return getattr(config, "vision_config", config)


def _text(config: Any) -> Any:
    return getattr(config, "text_config", config)


def _preprocessing(processor: Any, size: int | None) -> Preprocessing:
    """Return how a model's image processor prepares images."""
    cropped = getattr(processor, "crop_size", None)
    sides = cropped if getattr(processor, "do_center_crop", False) and cropped else processor.size
    asked = size or sides.get("height") or sides["shortest_edge"]
    plain = not getattr(processor, "do_normalize", True)
    mean, std = ((0.0,) * 3, (1.0,) * 3) if plain else (processor.image_mean, processor.image_std)
    return Preprocessing(
        size=int(asked),
        mean=tuple(mean),
        std=tuple(std),
        interpolation="bicubic" if processor.resample == _BICUBIC else "bilinear",
        binding=True,
    )


def _licence(folder: Any) -> str:
    """Return the licence that the model card names; empty where it names none."""
    from huggingface_hub import ModelCard

    card = folder / "README.md"
    if not card.is_file():
        return ""
    try:
        return str(ModelCard.load(card).data.license or "")
    # Anything may come of a file that anyone wrote.
    except Exception:
        return ""
