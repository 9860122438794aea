"""Captions by image-to-text models, the first half of FewSTAB's text-based attribute detection.

Zheng et al. 2024, section 4.2, step 1; a ``WordSelector`` selects the words from the captions.
Transformers runs the models; it is imported when a model is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

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
    load_processor,
    load_tokenizer,
    pictures,
    resolve_dtype,
    shut_up,
)
from fsframework.interfaces import Captioner, DataError, OptionError, WordSelector
from fsframework.values import UInt8Array

__all__ = ["Blip", "ImageToText", "VitGpt2"]

_ENCODER_DECODER = "vision-encoder-decoder"


class ImageToText(UsesModel["_Loaded"], Captioner):
    """Captions by any image-to-text model of Transformers, from the hub or a folder.

    Captions are found by beam search without sampling, with the settings given here and never
    those supplied with the model; only the ids of the model's special tokens are used. In float32
    a caption does not depend on the other images, except for rounding, which can decide between
    equally likely captions.

    Args:
        model: name on the hub or path of a folder.
        revision: branch, tag or commit on the hub. By default the models of ``vit-gpt2`` and
            ``blip`` are used at a pinned commit, others at the head of their main branch. The
            provenance contains the commit that was used.
        prompt: start of each caption, or the question to a model that answers questions; it is not
            part of the caption.
        max_tokens: maximum number of tokens in a caption; as for ``max_length`` of Transformers,
            the start token counts but a prompt does not.
        num_beams: width of the beam search; 1 always takes the most likely token.
        dtype: number format of the weights; ``auto`` is float32 on a CPU and float16 elsewhere.
        selector: selects words from captions; by default ``SpacySelector()``.

    Raises:
        OptionError: an option is outside its range.
    """

    argument: ClassVar[str] = "model"
    usual_components: ClassVar[Mapping[str, str]] = {"selector": "spacy"}
    model_type: ClassVar[str | None] = None
    """The only accepted ``model_type`` of a model's configuration; ``None`` accepts any."""

    def __init__(
        self,
        *,
        model: str,
        revision: str | None = None,
        prompt: str = "",
        max_tokens: int = 16,
        num_beams: int = 4,
        dtype: DtypeName = "auto",
        selector: WordSelector | None = None,
    ) -> None:
        check_model(model)
        if max_tokens < 2:
            raise OptionError(
                f"max_tokens must be at least 2 (the start token and one more), not {max_tokens}"
            )
        if num_beams < 1:
            raise OptionError(f"num_beams must be at least 1, not {num_beams}")
        check_dtype(dtype)
        self.model = model
        self.revision = revision
        self.prompt = prompt
        self.max_tokens = max_tokens
        self.num_beams = num_beams
        self.dtype = dtype
        self.selector = selector if selector is not None else _default_selector()

    def describe(self, images: Sequence[UInt8Array]) -> list[str]:
        """Return a caption for each uint8 RGB image ``(H, W, 3)``, of any size.

        All images are one batch; a batch that does not fit into GPU memory is halved.
        """
        return self._ready().captions(images) if len(images) else []

    def provenance(self) -> Mapping[str, str]:
        """Return model, commit, digests, generation settings, number format and selector."""
        loaded = self._ready()
        return {
            **loaded.provenance,
            "dtype": str(loaded.dtype).removeprefix("torch."),
            "prompt": self.prompt,
            "generation": json.dumps(self._generation(), sort_keys=True),
            **{f"selector.{name}": text for name, text in self.selector.provenance().items()},
        }

    def _load(self, device: str, offline: bool) -> _Loaded:
        return _Loaded(self, device, offline)

    def _generation(self) -> dict[str, Any]:
        """Return the settings of ``GenerationConfig``, with neutral penalties."""
        return {
            "do_sample": False,
            "num_beams": self.num_beams,
            "max_new_tokens": self.max_tokens - 1,
            "repetition_penalty": 1.0,
            "no_repeat_ngram_size": 0,
            # Transformers warns about these with one beam.
            **({"length_penalty": 1.0, "early_stopping": False} if self.num_beams > 1 else {}),
        }


class VitGpt2(ImageToText):
    """Captions by ViT-GPT2, the captioner of FewSTAB's main results, with its settings.

    Source: NLP Connect 2022, "vit-gpt2-image-captioning (Revision 0e334c7)", which is reference 32
    of Zheng, Ye and Zhang 2024, "Benchmarking Spurious Bias in Few-Shot Image Classifiers" (ECCV),
    section 5.1; the revision is a shortened commit. Four beams and ``max_length=16`` are the
    model's published settings.

    Args:
        model: name on the hub or path of a folder.
        revision: as for ``ImageToText``.
        max_tokens: maximum number of tokens in a caption, including its start token.
        num_beams: width of the beam search.
        dtype: number format of the weights.
        selector: selects words from captions; by default ``SpacySelector()``.
    """

    model_type = _ENCODER_DECODER

    def __init__(
        self,
        *,
        model: str = "nlpconnect/vit-gpt2-image-captioning",
        revision: str | None = None,
        max_tokens: int = 16,
        num_beams: int = 4,
        dtype: DtypeName = "auto",
        selector: WordSelector | None = None,
    ) -> None:
        super().__init__(
            model=model,
            revision=revision,
            max_tokens=max_tokens,
            num_beams=num_beams,
            dtype=dtype,
            selector=selector,
        )


class Blip(ImageToText):
    """Captions by BLIP (large), FewSTAB's second captioner.

    Source: Li, Li, Xiong and Hoi 2022, "BLIP: Bootstrapping Language-Image Pre-training for Unified
    Vision-Language Understanding and Generation" (ICML), as used by Zheng, Ye and Zhang 2024,
    "Benchmarking Spurious Bias in Few-Shot Image Classifiers" (ECCV), section 5.1. Beams and length
    are those of the authors of BLIP for captions of COCO; their minimum length of five tokens is
    not imposed.

    Args:
        model: name on the hub or path of a folder.
        revision: as for ``ImageToText``.
        prompt: start of each caption, such as ``a picture of``; it is not part of the caption.
        max_tokens: maximum number of tokens in a caption; the start token counts but a prompt does
            not.
        num_beams: width of the beam search.
        dtype: number format of the weights.
        selector: selects words from captions; by default ``SpacySelector()``.
    """

    model_type = "blip"

    def __init__(
        self,
        *,
        model: str = "Salesforce/blip-image-captioning-large",
        revision: str | None = None,
        prompt: str = "",
        max_tokens: int = 20,
        num_beams: int = 3,
        dtype: DtypeName = "auto",
        selector: WordSelector | None = None,
    ) -> None:
        super().__init__(
            model=model,
            revision=revision,
            prompt=prompt,
            max_tokens=max_tokens,
            num_beams=num_beams,
            dtype=dtype,
            selector=selector,
        )


def _default_selector() -> WordSelector:
    from fsf_detectors.selection import SpacySelector

    return SpacySelector()


class _Loaded:
    """A model with its processors on a device."""

    def __init__(self, options: ImageToText, device: str, offline: bool) -> None:
        folder = ModelFolder.find(options.model, options.revision, offline=offline)
        config = load_config(folder)
        self.kind: str = config.model_type
        _demand_captioner(folder, config, options.model_type)
        if self.kind == _ENCODER_DECODER:
            self.processor = None
            self.image_processor = load_image_processor(folder)
            self.tokenizer = load_tokenizer(folder)
        else:
            self.processor = load_processor(folder)
            self.image_processor = self.processor.image_processor
            self.tokenizer = self.processor.tokenizer
        # Generation continues at the right end of a prompt.
        self.tokenizer.padding_side = "left"
        if not options.prompt and getattr(self.processor, "chat_template", None):
            raise OptionError(
                f"{folder} answers questions and needs the option prompt, such as "
                "'Describe the image in one sentence.'"
            )
        self.prompt = options.prompt
        self.device = device
        self.dtype = resolve_dtype(options.dtype, device)
        self.provenance = folder.provenance()
        from transformers import AutoModelForImageTextToText

        self.model = load_model(folder, AutoModelForImageTextToText, config, self.dtype, device)
        self.generation = self._set_generation(options._generation())
        self.captions = Batched(self._captions)

    def _set_generation(self, settings: Mapping[str, Any]) -> Any:
        """Replace the model's generation settings and return those of the whole model.

        The settings of its parts are replaced too, because some models delegate to a part, and
        values that a configuration leaves open are taken from the part's.
        """
        from transformers import GenerationConfig

        known = {
            f"{name}_token_id": getattr(self.tokenizer, f"{name}_token_id", None)
            for name in ("bos", "eos", "pad")
        }
        if known["pad_token_id"] is None:
            known["pad_token_id"] = known["eos_token_id"]
        for module in self.model.modules():
            own = getattr(module, "generation_config", None)
            if isinstance(own, GenerationConfig):
                ids = {k: v for k, v in own.to_dict().items() if k.endswith("_token_id")}
                ids = {**known, **{k: v for k, v in ids.items() if v is not None}}
                module.generation_config = GenerationConfig(**settings, **ids)
        return self.model.generation_config

    def _captions(self, images: Sequence[UInt8Array]) -> list[str]:
        import torch

        inputs, prompt = self._inputs(images)
        moved = {
            name: tensor.to(self.device, self.dtype if tensor.is_floating_point() else None)
            for name, tensor in inputs.items()
        }
        with torch.inference_mode(), shut_up():
            tokens = self.model.generate(**moved, generation_config=self.generation).cpu()
            texts = self._decoded(tokens)
            if prompt is not None and torch.equal(tokens[:, : prompt.shape[1]], prompt):
                behind = self._decoded(tokens[:, prompt.shape[1] :])
                # As text if possible: a token that continues a word of the prompt is decoded
                # differently at the beginning of a text.
                texts = [
                    whole.removeprefix(begun) if whole.startswith(begun) else rest
                    for whole, begun, rest in zip(texts, self._decoded(prompt), behind, strict=True)
                ]
        # Line ends stay: they separate the items of a list.
        lines = ([" ".join(line.split()) for line in text.split("\n")] for text in texts)
        return ["\n".join(filter(None, each)) for each in lines]

    def _decoded(self, tokens: Any) -> list[str]:
        texts: list[str] = self.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return texts

    def _inputs(self, images: Sequence[UInt8Array]) -> tuple[dict[str, Any], Any]:
        """Return the inputs of ``generate``, and the tokens at the start of its outputs."""
        import torch

        shown = pictures(images)
        if self.kind not in (_ENCODER_DECODER, "blip", "git"):
            return self._general_inputs(shown)
        inputs = dict(self.image_processor(shown, return_tensors="pt"))
        if not self.prompt:
            return inputs, None
        start = self.generation.decoder_start_token_id
        if start is None or self.kind != _ENCODER_DECODER:
            start = self.generation.bos_token_id
        asked = self.tokenizer(self.prompt, add_special_tokens=False)["input_ids"]
        prompt = torch.tensor([[start, *asked]]).repeat(len(shown), 1)
        if self.kind == _ENCODER_DECODER:
            return {**inputs, "decoder_input_ids": prompt}, prompt
        # BLIP removes the last token, which its tokenizer would have added.
        end = [prompt[:, :1]] if self.kind == "blip" else []
        ids = torch.cat([prompt, *end], dim=1)
        return {**inputs, "input_ids": ids, "attention_mask": torch.ones_like(ids)}, prompt

    def _general_inputs(self, shown: Sequence[Any]) -> tuple[dict[str, Any], Any]:
        assert self.processor is not None
        nested: list[Any] = [[picture] for picture in shown]
        if not self.prompt:
            return dict(self.processor(images=list(shown), return_tensors="pt")), None
        text, special = self.prompt, True
        if getattr(self.processor, "chat_template", None):
            content = [{"type": "image"}, {"type": "text", "text": self.prompt}]
            talk = [{"role": "user", "content": content}]
            text = self.processor.apply_chat_template(talk, add_generation_prompt=True)
            # Many templates contain the token that begins a text; it must not be added again.
            special = not (self.tokenizer.bos_token and text.startswith(self.tokenizer.bos_token))
        else:
            nested = list(shown)
        texts = [text] * len(shown)
        inputs = dict(
            self.processor(
                images=nested,
                text=texts,
                padding=True,
                add_special_tokens=special,
                return_tensors="pt",
            )
        )
        return inputs, inputs.get("input_ids")


def _demand_captioner(folder: ModelFolder, config: Any, wanted: str | None) -> None:
    """Refuse a model that does not produce text from images, or one of another type."""
    with shut_up():
        from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    kind = config.model_type
    built = ", ".join(getattr(config, "architectures", None) or []) or f"a {kind} model"
    if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        raise DataError(f"{folder}: must produce text from images, which {built} does not")
    if wanted is not None and kind != wanted:
        raise DataError(
            f"{folder}: must contain a {wanted} model, not {built}; use the detector captioner "
            "for it"
        )
