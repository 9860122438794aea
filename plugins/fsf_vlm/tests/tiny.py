"""Tiny vision-language models of real classes with random weights, saved like downloaded ones."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsf_detectors.hub import shut_up

SIDE, PATCH = 16, 8
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
TEMPLATE = (
    "{% for message in messages %}<turn>{{ message['role'] }}\n"
    "{% for part in message['content'] %}{{ IMAGE if part['type'] == 'image' else part['text'] }}"
    "{% endfor %}<end>{% endfor %}{% if add_generation_prompt %}<turn>assistant\n{% endif %}"
)


def tiny_path(kind: str) -> Path:
    """Return the folder where ``tiny`` puts a model, which may not be there yet."""
    return Path(tempfile.gettempdir()) / f"fsf-tiny-vlm-{os.getpid()}" / kind


@functools.cache
def tiny(kind: str) -> Path:
    """Return the folder of a model of one of ``KINDS``, made once per process."""
    import torch

    folder = tiny_path(kind)
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    with shut_up(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, processor = KINDS[kind]()
        for part in (model.eval(), processor):
            part.save_pretrained(folder)
    return folder


def tokenizer_of(*special: str, **named: str) -> Any:
    """Return a tokenizer whose words are bytes and some pairs of them.

    Args:
        special: tokens of their own; ``named`` those that the tokenizer has as attributes.
    """
    import transformers as hf
    from tokenizers import ByteLevelBPETokenizer

    trained = ByteLevelBPETokenizer(add_prefix_space=False)
    own = ["<pad>", "<turn>", "<end>", *special, *named.values()]
    texts = ["Each image shows one of these classes: red, light blue. Answer", "red blue"]
    trained.train_from_iterator(
        texts, vocab_size=340, min_frequency=1, special_tokens=own, show_progress=False
    )
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer,
        pad_token="<pad>",
        eos_token="<end>",
        additional_special_tokens=["<turn>", *special],
        extra_special_tokens=named,
    )


def text_of(tokenizer: Any) -> dict[str, Any]:
    """Return the settings of a language model."""
    return {
        **SIZES,
        "vocab_size": len(tokenizer),
        "num_key_value_heads": 1,
        "max_position_embeddings": 4096,
        "initializer_range": 0.5,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def vision() -> dict[str, Any]:
    """Return the settings of an image encoder."""
    return {**SIZES, "image_size": SIDE, "patch_size": PATCH, "initializer_range": 0.5}


def template(image: str) -> str:
    """Return a chat template in which a text stands for an image."""
    return TEMPLATE.replace("IMAGE", repr(image))


def llava() -> tuple[Any, Any]:
    """Return a model whose images are tokens like all others."""
    import transformers as hf

    tokenizer = tokenizer_of("<image>")
    config = hf.LlavaConfig(
        vision_config=hf.CLIPVisionConfig(**vision()),
        text_config=hf.LlamaConfig(**text_of(tokenizer)),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
    )
    size = {"height": SIDE, "width": SIDE}
    images = hf.CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=size)
    processor = hf.LlavaProcessor(
        images,
        tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        image_token="<image>",
        chat_template=template("<image>"),
    )
    return hf.LlavaForConditionalGeneration(config), processor


def idefics3() -> tuple[Any, Any]:
    """Return a model whose images stand between tokens of their own."""
    import transformers as hf

    marks = ("<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>")
    tokenizer = tokenizer_of(*marks)
    config = hf.Idefics3Config(
        vision_config=vision(),
        text_config=hf.LlamaConfig(**text_of(tokenizer)),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        pad_token_id=tokenizer.pad_token_id,
        scale_factor=1,
    )
    images = hf.Idefics3ImageProcessorPil(
        do_image_splitting=False, size={"longest_edge": SIDE}, max_image_size={"longest_edge": SIDE}
    )
    processor = hf.Idefics3Processor(
        images, tokenizer, image_seq_len=(SIDE // PATCH) ** 2, chat_template=template("<image>")
    )
    return hf.Idefics3ForConditionalGeneration(config), processor


def qwen3_vl() -> tuple[Any, Any]:
    """Return a model whose images have two-dimensional positions and enter several layers."""
    import transformers as hf

    tokenizer = tokenizer_of("<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>")
    ids = tokenizer.convert_tokens_to_ids
    config = hf.Qwen3VLConfig(
        vision_config={
            "depth": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32,
            "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2,
            "out_hidden_size": 16, "num_position_embeddings": 16, "deepstack_visual_indexes": [0],
        },
        text_config={
            **text_of(tokenizer),
            "num_hidden_layers": 2,
            "head_dim": 8,
            "rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1]},
        },
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
    )  # fmt: skip
    images = hf.Qwen2VLImageProcessorPil(
        patch_size=4, merge_size=2, temporal_patch_size=2, min_pixels=SIDE**2, max_pixels=SIDE**2
    )
    text = template("<|vision_start|><|image_pad|><|vision_end|>")
    processor = hf.Qwen3VLProcessor(
        images, tokenizer, hf.Qwen3VLVideoProcessor(), chat_template=text
    )
    return hf.Qwen3VLForConditionalGeneration(config), processor


def lfm2_vl() -> tuple[Any, Any]:
    """Return a model with a convolution, whose state is not one of keys and values."""
    import transformers as hf

    marks = {"image_start_token": "<s>", "image_end_token": "<e>", "image_thumbnail": "<t>"}
    tokenizer = tokenizer_of(image_token="<image>", **marks)
    config = hf.Lfm2VlConfig(
        vision_config=hf.Siglip2VisionConfig(**SIZES, num_patches=16, patch_size=4),
        text_config=hf.Lfm2Config(
            **{**text_of(tokenizer), "num_hidden_layers": 2},
            layer_types=["conv", "full_attention"],
        ),
        image_token_id=tokenizer.image_token_id,
        projector_hidden_size=16,
    )
    images = hf.Lfm2VlImageProcessor(
        do_image_splitting=False, tile_size=SIDE, min_image_tokens=1, max_image_tokens=4,
        encoder_patch_size=4, max_num_patches=16,
    )  # fmt: skip
    processor = hf.Lfm2VlProcessor(images, tokenizer, chat_template=template("<image>"))
    return hf.Lfm2VlForConditionalGeneration(config), processor


def gemma3() -> tuple[Any, Any]:
    """Return a model whose tokens of an image see each other, and with sliding windows."""
    import transformers as hf

    tokenizer = tokenizer_of(boi_token="<boi>", eoi_token="<eoi>", image_token="<soft>")
    config = hf.Gemma3Config(
        vision_config=hf.SiglipVisionConfig(**vision()),
        text_config=hf.Gemma3TextConfig(
            **{**text_of(tokenizer), "num_hidden_layers": 2},
            head_dim=8,
            sliding_window=24,
            layer_types=["sliding_attention", "full_attention"],
        ),
        mm_tokens_per_image=4,
        boi_token_index=tokenizer.boi_token_id,
        eoi_token_index=tokenizer.eoi_token_id,
        image_token_index=tokenizer.image_token_id,
    )
    images = hf.Gemma3ImageProcessorPil(size={"height": SIDE, "width": SIDE})
    processor = hf.Gemma3Processor(
        images, tokenizer, chat_template=template("<boi>"), image_seq_length=4
    )
    return hf.Gemma3ForConditionalGeneration(config), processor


KINDS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "llava": llava,
    "idefics3": idefics3,
    "lfm2-vl": lfm2_vl,
    "qwen3-vl": qwen3_vl,
    "gemma3": gemma3,
}
