"""Words of a vocabulary that match an image, by the similarity of CLIP's embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fsf_detectors._vocabulary import describe_words, read_vocabulary
from fsf_detectors.hub import (
    Batched,
    DtypeName,
    ModelFolder,
    UsesModel,
    check_dtype,
    check_model,
    load_config,
    load_model,
    load_processor,
    pictures,
    resolve_dtype,
    shut_up,
)
from fsframework.interfaces import AttributeDetector, DataError, ImageTextModel, OptionError
from fsframework.values import FloatArray, UInt8Array

__all__ = ["ClipWords"]

_KINDS = ("clip", "siglip")
_TEXTS_A_CALL = 256


class ClipWords(UsesModel["_Loaded"], AttributeDetector, ImageTextModel):
    """Words of a vocabulary whose CLIP embedding is similar to that of the image.

    An image has a word if the cosine of the angle between the embeddings of the image and of
    ``template`` with the word is at least ``threshold``; each word is judged separately. The scale
    depends on the model: cosines of CLIP ViT-B/32 are mostly between 0.15 and 0.35, those of other
    models in other ranges. Check ``similarities`` of some images before you trust a threshold.

    Source: zero-shot prediction of Radford et al. 2021, "Learning Transferable Visual Models From
    Natural Language Supervision" (ICML), section 3.1.2, with a threshold instead of the softmax
    over classes, because any number of attributes may be present.

    Args:
        model: CLIP or SigLIP, name on the hub or path of a folder.
        revision: branch, tag or commit on the hub; by default a pinned commit of the default
            model, and the main branch of others.
        vocabulary: UTF-8 text, one word or phrase per line; empty lines and those that begin with
            ``#`` are ignored. By default about 200 colours, textures, materials, places and
            objects.
        template: the text to embed for a word, with ``{}`` in its place.
        threshold: minimum cosine similarity, -1 to 1.
        top: maximum number of words per image, the most similar ones; ``None`` for no limit.
        dtype: number format of the weights; ``auto`` is float32 on a CPU and float16 elsewhere.

    Raises:
        OptionError: an option is outside its range.
    """

    argument: ClassVar[str] = "model"

    def __init__(
        self,
        *,
        model: str = "openai/clip-vit-base-patch32",
        revision: str | None = None,
        vocabulary: Path | None = None,
        template: str = "a photo of a {}",
        threshold: float = 0.25,
        top: int | None = None,
        dtype: DtypeName = "auto",
    ) -> None:
        check_model(model)
        if template.count("{}") != 1:
            raise OptionError(f"template must contain {{}} exactly once, not {template!r}")
        if not -1 <= threshold <= 1:
            raise OptionError(f"threshold must be a cosine between -1 and 1, not {threshold}")
        if top is not None and top < 1:
            raise OptionError(f"top must be none or at least 1, not {top}")
        check_dtype(dtype)
        self.model = model
        self.revision = revision
        self.vocabulary = vocabulary
        self.template = template
        self.threshold = threshold
        self.top = top
        self.dtype = dtype

    def detect(self, images: Sequence[UInt8Array]) -> list[frozenset[str]]:
        """Return the words of each uint8 RGB image ``(H, W, 3)``, of any size."""
        words = self._ready().words
        return [
            frozenset(words[i] for i in self._chosen(cosines))
            for cosines in self.similarities(images)
        ]

    def similarities(self, images: Sequence[UInt8Array]) -> FloatArray:
        """Return the cosines, float32 ``(n_images, n_words)``, from which to choose a threshold.

        The words are in the order of ``words``.
        """
        return np.asarray(self.image_features(images) @ self._ready().embedded.T)

    def image_features(self, images: Sequence[UInt8Array]) -> FloatArray:
        """Return a unit vector for each uint8 RGB image ``(H, W, 3)``, float32 ``(n, d)``."""
        loaded = self._ready()
        found = loaded.image_features(images) if len(images) else []
        return np.array(found, np.float32).reshape(-1, loaded.embedded.shape[1])

    def text_features(self, texts: Sequence[str]) -> FloatArray:
        """Return a unit vector for each text, float32 ``(n, d)``; long texts are truncated."""
        loaded = self._ready()
        if not len(texts):
            return np.zeros((0, loaded.embedded.shape[1]), np.float32)
        return loaded.text_features(texts)

    @property
    def words(self) -> tuple[str, ...]:
        """The vocabulary, in the order of its file."""
        return self._ready().words

    def provenance(self) -> Mapping[str, str]:
        """Return model, commit, digests, vocabulary, threshold and number format."""
        loaded = self._ready()
        return {
            **loaded.provenance,
            "dtype": str(loaded.dtype).removeprefix("torch."),
            "vocabulary": describe_words(loaded.words),
            "template": self.template,
            "threshold": repr(self.threshold),
            "top": str(self.top),
        }

    def _load(self, device: str, offline: bool) -> _Loaded:
        return _Loaded(self, device, offline)

    def _chosen(self, cosines: FloatArray) -> list[int]:
        order = np.argsort(-cosines, kind="stable")[: self.top]
        return [int(i) for i in order if cosines[i] >= self.threshold]


class _Loaded:
    """A model on a device, with the embedded vocabulary."""

    def __init__(self, options: ClipWords, device: str, offline: bool) -> None:
        self.words = read_vocabulary(options.vocabulary)
        folder = ModelFolder.find(options.model, options.revision, offline=offline)
        config = load_config(folder)
        if config.model_type not in _KINDS:
            built = ", ".join(getattr(config, "architectures", None) or [])
            raise DataError(
                f"{folder}: must contain a CLIP or SigLIP model with both towers, not "
                f"{built or f'a {config.model_type} model'}"
            )
        self.device = device
        self.dtype = resolve_dtype(options.dtype, device)
        processor = load_processor(folder)
        self.image_processor = processor.image_processor
        self.provenance = folder.provenance()
        from transformers import AutoModel

        self.model = load_model(folder, AutoModel, config, self.dtype, device)
        self.tokenizer = processor.tokenizer
        self.embedded = self.text_features([options.template.replace("{}", w) for w in self.words])
        self.image_features = Batched(self._image_features)

    def text_features(self, texts: Sequence[str]) -> FloatArray:
        """Return unit vectors of texts, float32 ``(n, d)``."""
        import torch

        length = self.model.config.text_config.max_position_embeddings
        # SigLIP was trained on texts padded to the full length; CLIP masks padding.
        padding = "max_length" if self.model.config.model_type == "siglip" else True
        parts = []
        with torch.inference_mode(), shut_up():
            for start in range(0, len(texts), _TEXTS_A_CALL):
                inputs = self.tokenizer(
                    list(texts[start : start + _TEXTS_A_CALL]),
                    padding=padding,
                    truncation=True,
                    max_length=length,
                    return_tensors="pt",
                ).to(self.device)
                parts.append(_unit(self.model.get_text_features(**inputs)))
        return np.asarray(torch.cat(parts).cpu().numpy())

    def _image_features(self, images: Sequence[UInt8Array]) -> list[FloatArray]:
        import torch

        with torch.inference_mode(), shut_up():
            pixels = self.image_processor(pictures(images), return_tensors="pt")["pixel_values"]
            features = self.model.get_image_features(pixels.to(self.device, self.dtype))
        return list(_unit(features).cpu().numpy())


def _unit(features: Any) -> Any:
    """Return float32 vectors of length 1 from the output of a tower."""
    from torch.nn.functional import normalize

    return normalize(getattr(features, "pooler_output", features).float(), dim=-1)
