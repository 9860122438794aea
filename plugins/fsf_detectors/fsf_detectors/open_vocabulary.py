"""Words that an open-vocabulary detection model finds somewhere in an image."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

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
    load_image_processor,
    load_model,
    load_tokenizer,
    pictures,
    resolve_dtype,
    shut_up,
)
from fsframework.interfaces import AttributeDetector, DataError, OptionError
from fsframework.values import FloatArray, UInt8Array

if TYPE_CHECKING:
    import torch

__all__ = ["OpenVocabulary"]

_TEXTS_PER_CALL = 256


class OpenVocabulary(UsesModel["_Loaded"], AttributeDetector):
    """Words that an open-vocabulary detection model finds, of a list that you choose.

    An image has a word if the model finds it with a score above ``threshold`` in at least one box;
    how many and where does not matter. OWL-ViT and OWLv2 judge each word separately, and a box may
    carry several. Grounding DINO reads the words together with the image: a word's score depends a
    little on the other words of the list.

    The scale of the scores depends on the model. Check ``scores`` of some images before you trust a
    threshold.

    Sources: Minderer et al. 2022, "Simple Open-Vocabulary Object Detection with Vision
    Transformers", and 2023, "Scaling Open-Vocabulary Object Detection" (OWLv2): the sigmoid of a
    box's logit for the word's text. Liu et al. 2023, "Grounding DINO": a box's score for a word is
    the mean of its sigmoids for the word's tokens, as in the authors' evaluation on COCO; words are
    separated by full stops and do not attend to each other. A list that is longer than the model
    can read is read in parts.

    Args:
        model: OWL-ViT, OWLv2, Grounding DINO or MM Grounding DINO, name on the hub or path of a
            folder.
        revision: branch, tag or commit on the hub; by default the main branch.
        words: what to look for; by default the words of ``vocabulary``.
        vocabulary: UTF-8 text, one word or phrase per line; empty lines and those that begin with
            ``#`` are ignored. By default about 200 colours, textures, materials, places and
            objects.
        template: the text that the model reads for a word, with ``{}`` in its place; by default
            ``a photo of a {}`` for OWL-ViT and OWLv2, and the word itself for Grounding DINO.
        threshold: score that a word must exceed, 0 to 1.
        dtype: number format of the weights; ``auto`` is float32 on a CPU and float16 elsewhere.

    Raises:
        OptionError: an option is outside its range, or words come from a list and from a file.
    """

    argument: ClassVar[str] = "model"

    def __init__(
        self,
        *,
        model: str,
        revision: str | None = None,
        words: tuple[str, ...] = (),
        vocabulary: Path | None = None,
        template: str | None = None,
        threshold: float = 0.25,
        dtype: DtypeName = "auto",
    ) -> None:
        check_model(model)
        words = tuple(word.strip() for word in words)
        if "" in words or len(set(words)) < len(words):
            raise OptionError(f"words must be different and not empty, not {', '.join(words)!r}")
        if words and vocabulary is not None:
            raise OptionError("words and vocabulary must not both be set")
        if template is not None and template.count("{}") != 1:
            raise OptionError(f"template must contain {{}} exactly once, not {template!r}")
        if not 0 <= threshold <= 1:
            raise OptionError(f"threshold must be a score between 0 and 1, not {threshold}")
        check_dtype(dtype)
        self.model = model
        self.revision = revision
        self.words = words
        self.vocabulary = vocabulary
        self.template = template
        self.threshold = threshold
        self.dtype = dtype

    def detect(self, images: Sequence[UInt8Array]) -> list[frozenset[str]]:
        """Return the words of each uint8 RGB image ``(H, W, 3)``, of any size."""
        words = self.looked_for
        return [
            frozenset(words[i] for i in np.flatnonzero(row > self.threshold))
            for row in self.scores(images)
        ]

    def scores(self, images: Sequence[UInt8Array]) -> FloatArray:
        """Return the best score of each word over all boxes, float32 ``(n_images, n_words)``.

        The words are in the order of ``looked_for``.
        """
        loaded = self._ready()
        found = loaded.scores_of(images) if len(images) else []
        return np.array(found, np.float32).reshape(-1, len(loaded.words))

    @property
    def looked_for(self) -> tuple[str, ...]:
        """The words of the list or of the file, in its order."""
        return self._ready().words

    def provenance(self) -> Mapping[str, str]:
        """Return model, commit, digests, words, template, threshold and number format."""
        loaded = self._ready()
        return {
            **loaded.provenance,
            "dtype": str(loaded.dtype).removeprefix("torch."),
            "words": describe_words(loaded.words),
            "template": loaded.template,
            "threshold": repr(self.threshold),
        }

    def _load(self, device: str, offline: bool) -> _Loaded:
        return _Loaded(self, device, offline)


class _Loaded:
    """A model on a device, with the words it looks for."""

    def __init__(self, options: OpenVocabulary, device: str, offline: bool) -> None:
        self.words = options.words or read_vocabulary(options.vocabulary)
        folder = ModelFolder.find(options.model, options.revision, offline=offline)
        config = load_config(folder)
        reader = _READERS.get(config.model_type)
        if reader is None:
            built = ", ".join(getattr(config, "architectures", None) or [])
            raise DataError(
                f"{folder}: must contain an OWL-ViT, OWLv2 or Grounding DINO model, not "
                f"{built or f'a {config.model_type} model'}"
            )
        self.device = device
        self.dtype = resolve_dtype(options.dtype, device)
        self.template = reader.template if options.template is None else options.template
        self.image_processor = load_image_processor(folder)
        tokenizer = load_tokenizer(folder)
        self.provenance = folder.provenance()
        with shut_up():
            from transformers import AutoModelForZeroShotObjectDetection as Model
        model = load_model(folder, Model, config, self.dtype, device)
        texts = [self.template.replace("{}", word) for word in self.words]
        with shut_up():
            self.read = reader(model, tokenizer, texts)
        self.scores_of = Batched(self._scores_of)

    def _scores_of(self, images: Sequence[UInt8Array]) -> list[FloatArray]:
        """Return the scores of each image; images of one size, once scaled, share a batch.

        Padding to a common size would change what the model finds.
        """
        import torch

        scaled = [self._scaled(image) for image in images]
        sizes: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for i, pixels in enumerate(scaled):
            sizes[tuple(pixels.shape)].append(i)
        found = np.empty((len(images), len(self.words)), np.float32)
        with torch.inference_mode(), shut_up():
            for rows in sizes.values():
                batch = torch.stack([scaled[i] for i in rows]).to(self.device, self.dtype)
                found[rows] = self.read(batch).float().cpu().numpy()
        return list(found)

    def _scaled(self, image: UInt8Array) -> torch.Tensor:
        """Return an image as the model sees it, float32 ``(3, height, width)``."""
        with shut_up():
            try:
                inputs = self.image_processor(pictures([image]), return_tensors="pt")
            except ValueError as error:  # no pixel is left of a side once it is scaled
                what = f"an image of {image.shape[0]} x {image.shape[1]} pixels"
                raise DataError(f"{what} cannot be scaled for the model: {error}") from error
        found: torch.Tensor = inputs["pixel_values"][0]
        return found


class _Owl:
    """OWL-ViT or OWLv2: the texts are embedded once for all images."""

    template = "a photo of a {}"

    def __init__(self, model: Any, tokenizer: Any, texts: Sequence[str]) -> None:
        import torch

        self.model, parts = model, []
        with torch.inference_mode():
            for start in range(0, len(texts), _TEXTS_PER_CALL):
                inputs = tokenizer(
                    list(texts[start : start + _TEXTS_PER_CALL]),
                    padding="max_length",
                    truncation=True,
                    max_length=model.config.text_config.max_position_embeddings,
                    return_tensors="pt",
                ).to(model.device)
                ids, mask = inputs["input_ids"], inputs["attention_mask"]
                found = model.base_model.get_text_features(input_ids=ids, attention_mask=mask)
                parts.append(found.pooler_output)
        self.queries = torch.cat(parts)

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the scores, ``(n, words)``, of images ``(n, 3, height, width)``."""
        maps, _ = self.model.image_embedder(pixels)
        queries = self.queries.expand(len(pixels), -1, -1)
        logits, _ = self.model.class_predictor(maps.flatten(1, 2), queries)
        scores: torch.Tensor = logits.float().sigmoid().amax(dim=1)
        return scores


class _GroundingDino:
    """Grounding DINO: image and words, in as few texts as they fit into, are read together."""

    template = "{}"

    def __init__(self, model: Any, tokenizer: Any, texts: Sequence[str]) -> None:
        self.model = model
        self.texts = [
            _Text(part, tokenizer, model.device)
            for part in _parts(texts, tokenizer, model.config.max_text_len)
        ]

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the scores, ``(n, words)``, of images ``(n, 3, height, width)``."""
        import torch

        return torch.cat([text.scores(self.model, pixels) for text in self.texts], dim=1)


class _Text:
    """Words as one text for Grounding DINO.

    Args:
        words: the tokens of each word.
    """

    def __init__(self, words: Sequence[Sequence[int]], tokenizer: Any, device: Any) -> None:
        import torch

        stop = _stop(tokenizer)
        ids, owners = [tokenizer.cls_token_id], [-1]
        for number, tokens in enumerate(words):
            ids += [*tokens, stop]
            owners += [*(number for _ in tokens), -1]
        self.ids = torch.tensor([[*ids, tokenizer.sep_token_id]], device=device)
        owner = torch.tensor([*owners, -1], device=device)
        of_word = (owner[:, None] == torch.arange(len(words), device=device)).float()
        self.shares = of_word / of_word.sum(dim=0)

    def scores(self, model: Any, pixels: torch.Tensor) -> torch.Tensor:
        """Return the scores, ``(n, words)``, of images ``(n, 3, height, width)``."""
        ids = self.ids.expand(len(pixels), -1)
        logits = model(pixel_values=pixels, input_ids=ids).logits[..., : ids.shape[1]]
        scores: torch.Tensor = (logits.float().sigmoid() @ self.shares).amax(dim=1)
        return scores


def _stop(tokenizer: Any) -> int:
    found: int = tokenizer.convert_tokens_to_ids(".")
    return found


def _parts(texts: Sequence[str], tokenizer: Any, longest: int) -> list[list[list[int]]]:
    """Return the tokens of texts, in parts that the model can read, as few as their order allows.

    Raises:
        OptionError: a text has a full stop, no known token, or too many for the model.
    """
    parts: list[list[list[int]]] = []
    size = longest
    for text in texts:
        tokens = tokenizer(text.lower(), add_special_tokens=False)["input_ids"]
        if not tokens or _stop(tokenizer) in tokens or len(tokens) + 3 > longest:
            raise OptionError(
                f"words for Grounding DINO must have 1 to {longest - 3} tokens and no full stop, "
                f"not {text!r}"
            )
        if size + len(tokens) + 1 > longest:
            parts.append([])
            size = 2  # the tokens that begin and end a text
        parts[-1].append(tokens)
        size += len(tokens) + 1
    return parts


_READERS: Mapping[str, type[_Owl] | type[_GroundingDino]] = {
    "owlvit": _Owl,
    "owlv2": _Owl,
    "grounding-dino": _GroundingDino,
    "mm-grounding-dino": _GroundingDino,
}
"""How a model of a type reads words and images."""
