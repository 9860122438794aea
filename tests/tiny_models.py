"""Tiny models of real classes, made from configurations and saved like downloaded ones.

No weights can be downloaded where the tests run; from the folder on, all is as with real ones.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fsf_detectors._torchvision import mend_torchvision
from fsframework.interfaces import WordSelector
from fsframework.values import UInt8Array

COLOURS = {"red": (220, 30, 30), "blue": (30, 60, 220), "yellow": (235, 220, 40)}
GROUNDS = {"grass": (60, 150, 60), "sand": (215, 185, 130), "snow": (245, 245, 250)}
SIDE = 32


class EveryWord(WordSelector):
    """Every word of a caption, for tests that need no tagger."""

    def select(self, captions: Sequence[str]) -> list[frozenset[str]]:
        return [frozenset(caption.split()) for caption in captions]

    def provenance(self) -> dict[str, str]:
        return {"kind": "every word"}


def scenes(count: int, seed: int = 0, side: int = SIDE) -> tuple[list[UInt8Array], list[str]]:
    """Return square RGB images of a ball on some ground, and what there is to say of each."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side] / side
    images, captions = [], []
    for _ in range(count):
        colour, ground = (list(names)[rng.integers(len(names))] for names in (COLOURS, GROUNDS))
        centre_y, centre_x = rng.uniform(0.35, 0.65, 2)
        ball = np.hypot(y - centre_y, x - centre_x) < rng.uniform(0.2, 0.3)
        clean = np.where(ball[..., None], COLOURS[colour], GROUNDS[ground])
        noisy = clean + rng.normal(0, 8, clean.shape)
        images.append(np.clip(noisy, 0, 255).astype(np.uint8))
        captions.append(f"a {colour} ball on the {ground}")
    return images, captions


def tiny_path(kind: str) -> Path:
    """Return the folder where ``tiny_model`` puts a kind, which may not be there yet."""
    return Path(tempfile.gettempdir()) / f"fsf-tiny-models-{os.getpid()}" / kind


@functools.cache
def tiny_model(kind: str) -> Path:
    """Return the folder of a kind, made once a process.

    Kinds are ``vit-gpt2``, ``blip``, ``git``, ``llava``, ``clip``, ``siglip``, ``yolos``, ``owlv2``
    and ``grounding-dino``. The folder is removed when the process ends; who changes anything in it
    works on a copy.
    """
    mend_torchvision()  # Transformers imports it wherever it is installed
    folder = tiny_path(kind)
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    _SAVERS[kind](folder)
    return folder


def save_tiny_vit_gpt2(folder: Path, steps: int = 120) -> None:
    """Save a ViT-GPT2 that has learnt to describe ``scenes``, nearly without a fault.

    Args:
        folder: made if it is not there.
        steps: of training; 0 for random weights.
    """
    import transformers as hf

    tokenizer = hf.GPT2TokenizerFast(
        tokenizer_object=_byte_level("<|endoftext|>"),
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
        unk_token="<|endoftext|>",
    )
    processor = hf.ViTImageProcessorPil(size={"height": SIDE, "width": SIDE})
    end = tokenizer.eos_token_id
    config = hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        hf.ViTConfig(**_TRANSFORMER, **_VISION),
        hf.GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=64,
            n_embd=32,
            n_layer=2,
            n_head=2,
            bos_token_id=end,
            eos_token_id=end,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        ),
    )
    config.decoder_start_token_id = config.pad_token_id = config.eos_token_id = end
    with _seeded():
        model = hf.VisionEncoderDecoderModel(config)
        _train(model, tokenizer, processor, steps)
    _save(folder, model, processor, tokenizer)


def save_tiny_blip(folder: Path) -> None:
    """Save a BLIP captioner with random weights: what it says are words, in no sensible order."""
    import transformers as hf

    tokenizer = _bert()
    config = hf.BlipConfig(
        text_config={
            **_TRANSFORMER,
            **_words(tokenizer),
            "encoder_hidden_size": 32,
            "sep_token_id": tokenizer.sep_token_id,
            "initializer_range": 0.5,
        },
        vision_config={**_TRANSFORMER, **_VISION, "initializer_range": 0.5},
        projection_dim=16,
        image_text_hidden_size=16,
    )
    with _seeded():
        model = hf.BlipForConditionalGeneration(config).eval()
    size = {"height": SIDE, "width": SIDE}
    _save(folder, model, hf.BlipProcessor(hf.BlipImageProcessorPil(size=size), tokenizer))


def save_tiny_git(folder: Path) -> None:
    """Save a GIT captioner with random weights."""
    import transformers as hf

    tokenizer = _bert()
    config = hf.GitConfig(
        **_TRANSFORMER,
        vision_config={**_TRANSFORMER, **_VISION, "initializer_range": 0.5},
        **_words(tokenizer),
        initializer_range=0.5,
    )
    with _seeded():
        model = hf.GitForCausalLM(config).eval()
    _save(folder, model, hf.GitProcessor(_clip_images(), tokenizer))


def save_tiny_llava(folder: Path) -> None:
    """Save a LLaVA with random weights and a chat template: a model that answers."""
    import transformers as hf

    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=_byte_level("<s>", "</s>", "<pad>", "<image>"),
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        additional_special_tokens=["<image>"],
    )
    sizes = {k: v for k, v in _TRANSFORMER.items() if "dropout" not in k}
    config = hf.LlavaConfig(
        vision_config=hf.CLIPVisionConfig(**sizes, **_VISION),
        text_config=hf.LlamaConfig(
            **sizes,
            **_words(tokenizer, 2048),
            num_key_value_heads=2,
            initializer_range=0.5,
        ),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
    )
    with _seeded():
        model = hf.LlavaForConditionalGeneration(config).eval()
    processor = hf.LlavaProcessor(
        _clip_images(),
        tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=(
            "{% for message in messages %}USER: {% for part in message['content'] %}"
            "{{ '<image> ' if part['type'] == 'image' else part['text'] }}{% endfor %}{% endfor %}"
            "{% if add_generation_prompt %} ASSISTANT:{% endif %}"
        ),
    )
    _save(folder, model, processor)


def save_tiny_siglip(folder: Path) -> None:
    """Save a SigLIP with random weights."""
    import transformers as hf

    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=_byte_level("</s>"), eos_token="</s>", pad_token="</s>"
    )
    sizes = {k: v for k, v in _TRANSFORMER.items() if "dropout" not in k}
    config = hf.SiglipConfig(
        text_config={
            **sizes,
            **_words(tokenizer, 32),
        },
        vision_config={**sizes, **_VISION},
    )
    with _seeded():
        model = hf.SiglipModel(config).eval()
    processor = hf.SiglipImageProcessorPil(size={"height": SIDE, "width": SIDE})
    _save(folder, model, hf.SiglipProcessor(processor, tokenizer))


def save_tiny_clip(folder: Path) -> None:
    """Save a CLIP with random weights; cosines lie within 0.15 of 0 and differ between images."""
    import transformers as hf

    tokenizer = _clip_tokens()
    config = hf.CLIPConfig(
        text_config={
            **_TRANSFORMER,
            **_words(tokenizer, 32),
        },
        vision_config={**_TRANSFORMER, **_VISION},
        projection_dim=8,
        initializer_factor=4.0,
    )
    with _seeded():
        model = hf.CLIPModel(config).eval()
    _save(folder, model, hf.CLIPProcessor(_clip_images(), tokenizer))


def save_tiny_yolos(folder: Path) -> None:
    """Save a YOLOS with random weights: a model for object detection with four labels."""
    import transformers as hf

    labels = ["Ball", "stop sign", "tree", "person"]
    config = hf.YolosConfig(
        **_TRANSFORMER,
        image_size=[SIDE, SIDE],
        patch_size=8,
        num_detection_tokens=6,
        initializer_range=0.5,
        id2label=dict(enumerate(labels)),
        label2id={label: i for i, label in enumerate(labels)},
    )
    with _seeded():
        model = hf.YolosForObjectDetection(config).eval()
    size = {"shortest_edge": SIDE, "longest_edge": 2 * SIDE}
    _save(folder, model, hf.YolosImageProcessorPil(size=size))


def save_tiny_owlv2(folder: Path) -> None:
    """Save an OWLv2 with random weights: it detects what the words ask for."""
    import transformers as hf

    tokenizer = _clip_tokens()
    sizes = {k: v for k, v in _TRANSFORMER.items() if "dropout" not in k}
    config = hf.Owlv2Config(
        text_config={**sizes, **_words(tokenizer, 16), "initializer_factor": 10.0},
        vision_config={**sizes, **_VISION, "initializer_factor": 1.0},
        projection_dim=32,
    )
    with _seeded():
        model = hf.Owlv2ForObjectDetection(config).eval()
    model.class_head.logit_scale.bias.data.fill_(3.0)  # else all scores are near one half
    processor = hf.Owlv2ImageProcessorPil(size={"height": SIDE, "width": SIDE})
    _save(folder, model, hf.Owlv2Processor(processor, tokenizer))


def save_tiny_grounding_dino(folder: Path) -> None:
    """Save a Grounding DINO with random weights, which reads 24 tokens at most."""
    import transformers as hf

    # The model knows the ends of words by the numbers that these tokens have in BERT.
    names = ["[PAD]", *_BERT_WORDS]
    names += [f"[unused{i}]" for i in range(1030 - len(names))]
    for token, place in {"[UNK]": 100, "[CLS]": 101, "[SEP]": 102, ".": 1012, "?": 1029}.items():
        names[place] = token
    vocabulary = {name: i for i, name in enumerate(names)}
    tokenizer = hf.BertTokenizer(vocab=vocabulary)
    sizes = {k: v for k, v in _TRANSFORMER.items() if k != "num_hidden_layers"}
    config = hf.GroundingDinoConfig(
        text_config={**sizes, "num_hidden_layers": 1, "vocab_size": len(names),
                     "model_type": "bert", "max_position_embeddings": 32},
        backbone_config=hf.SwinConfig(
            image_size=SIDE, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[1, 2],
            window_size=4, out_indices=[1, 2],
        ),
        num_feature_levels=2, num_queries=6, d_model=32, encoder_layers=1, decoder_layers=2,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
        decoder_ffn_dim=32, max_text_len=24, init_std=0.3, disable_custom_kernels=True,
    )  # fmt: skip
    with _seeded():
        model = hf.GroundingDinoForObjectDetection(config).eval()
    size = {"shortest_edge": SIDE, "longest_edge": 2 * SIDE}
    processor = hf.GroundingDinoImageProcessorPil(size=size)
    _save(folder, model, hf.GroundingDinoProcessor(processor, tokenizer))


_BERT_WORDS = ("red", "blue", "ball", "grass", "sand", "stop", "sign", "snow", "##s", "tree")

_SAVERS: dict[str, Callable[[Path], None]] = {
    "vit-gpt2": save_tiny_vit_gpt2,
    "blip": save_tiny_blip,
    "git": save_tiny_git,
    "llava": save_tiny_llava,
    "clip": save_tiny_clip,
    "siglip": save_tiny_siglip,
    "yolos": save_tiny_yolos,
    "owlv2": save_tiny_owlv2,
    "grounding-dino": save_tiny_grounding_dino,
}

_TRANSFORMER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
_VISION = {"image_size": SIDE, "patch_size": 8}


def _words(tokenizer: Any, length: int = 64) -> dict[str, int]:
    """Return what the part of a model that reads or writes words must know."""
    eos = tokenizer.eos_token_id
    return {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": length,
        "bos_token_id": tokenizer.bos_token_id if tokenizer.bos_token else eos,
        "eos_token_id": eos,
        "pad_token_id": tokenizer.pad_token_id,
    }


def _clip_images() -> Any:
    import transformers as hf

    size = {"height": SIDE, "width": SIDE}
    return hf.CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=size)


def _sentences() -> list[str]:
    things = [f"a {c} ball on the {g}" for c in COLOURS for g in GROUNDS]
    return [*things, "a photo of a ball, dog or tree"]


def _byte_level(*special: str) -> Any:
    from tokenizers import ByteLevelBPETokenizer

    trained = ByteLevelBPETokenizer(add_prefix_space=False)
    trained.train_from_iterator(
        [*_sentences(), *(f" {s}" for s in _sentences())],
        vocab_size=400,
        min_frequency=1,
        special_tokens=list(special),
        show_progress=False,
    )
    return trained._tokenizer


def _clip_tokens() -> Any:
    import transformers as hf
    from tokenizers.processors import TemplateProcessing

    bos, eos = "<|startoftext|>", "<|endoftext|>"
    backend = _byte_level()
    backend.add_special_tokens([bos, eos])  # OWLv2 takes the greatest number as the end of a text
    backend.post_processor = TemplateProcessing(
        single=f"{bos} $A {eos}",
        special_tokens=[(token, backend.token_to_id(token)) for token in (bos, eos)],
    )
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=bos, eos_token=eos, pad_token=eos
    )


def _bert() -> Any:
    import transformers as hf
    from tokenizers import BertWordPieceTokenizer

    trained = BertWordPieceTokenizer()
    trained.train_from_iterator(_sentences(), vocab_size=120, min_frequency=1, show_progress=False)
    words = {"bos_token": "[CLS]", "eos_token": "[SEP]"}
    return hf.BertTokenizerFast(tokenizer_object=trained._tokenizer, **words)


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def _train(model: Any, tokenizer: Any, processor: Any, steps: int) -> None:
    import torch

    images, captions = scenes(256)
    pixels = processor(images, return_tensors="pt")["pixel_values"]
    tokens = [[*tokenizer.encode(f"{c} "), tokenizer.eos_token_id] for c in captions]
    labels = torch.full((len(tokens), max(map(len, tokens))), -100)
    for row, one in zip(labels, tokens, strict=True):
        row[: len(one)] = torch.tensor(one)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    order = torch.randint(len(images), (steps, 32))
    model.train()
    for batch in order:
        loss = model(pixel_values=pixels[batch], labels=labels[batch]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()


def _save(folder: Path, *parts: Any) -> None:
    from transformers.utils import logging

    folder.mkdir(parents=True, exist_ok=True)
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    for part in parts:
        part.save_pretrained(folder)
    if shown:
        logging.enable_progress_bar()
