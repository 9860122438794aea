"""Images per second that ViT-GPT2 describes, by batch size, compared with the usual loop.

Run ``python benchmarks/captioning.py``; it takes a minute or two on two cores. The model has the
size of the published one, 239 million parameters, and random weights, so hardly any caption ends
before its sixteenth token, which is the slowest case. It is saved to a temporary folder (1 GB) and
loaded from there like any other model. The baseline is the loop in the model's documentation: plain
Transformers, one image at a time, in float32, with the same beams and length.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from _options import positive
from PIL import Image
from tokenizers import ByteLevelBPETokenizer

from fsf_detectors._torchvision import mend_torchvision
from fsf_detectors.captioner import VitGpt2
from fsframework.interfaces import WordSelector
from fsframework.values import UInt8Array

mend_torchvision()  # as the captioner itself does, before Transformers is imported

from transformers import (  # noqa: E402
    AutoImageProcessor,
    AutoTokenizer,
    GPT2Config,
    GPT2TokenizerFast,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTImageProcessorPil,
)
from transformers.utils import logging  # noqa: E402


class NoWords(WordSelector):
    """Selects no words, since selection is not measured here."""

    def select(self, captions: Sequence[str]) -> list[frozenset[str]]:
        """Return an empty set per caption."""
        return [frozenset() for _ in captions]


def save_model(folder: Path) -> None:
    """Save a full-size ViT-GPT2 with random weights."""
    torch.manual_seed(0)
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(ViTConfig(), GPT2Config())
    end = config.decoder.eos_token_id
    config.decoder_start_token_id = config.pad_token_id = config.eos_token_id = end
    VisionEncoderDecoderModel(config).save_pretrained(folder)
    ViTImageProcessorPil().save_pretrained(folder)
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(["a dog on the grass"], show_progress=False)
    GPT2TokenizerFast(tokenizer_object=tokenizer._tokenizer).save_pretrained(folder)


def one_by_one(folder: Path, device: str) -> Callable[[Sequence[UInt8Array]], None]:
    """Return the loop in the model's documentation."""
    model = VisionEncoderDecoderModel.from_pretrained(folder).to(device)
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def describe(images: Sequence[UInt8Array]) -> None:
        for image in images:
            shown = Image.fromarray(image)
            pixels = processor(images=[shown], return_tensors="pt").pixel_values.to(device)
            tokens = model.generate(pixels, max_length=16, num_beams=4)
            tokenizer.batch_decode(tokens, skip_special_tokens=True)

    return describe


def rate(
    describe: Callable[[Sequence[UInt8Array]], object], images: Sequence[UInt8Array], size: int = 1
) -> float:
    """Return images per second in batches of ``size``, the faster of two rounds."""
    images = images[: max(size, 4)]
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        for start in range(0, len(images), size):
            describe(images[start : start + size])
        seconds.append(time.perf_counter() - begin)
    return len(images) / min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu", help="such as cuda:0 (default: cpu)")
    parser.add_argument("--dtype", default="auto", help="number format (default: auto)")
    parser.add_argument(
        "--batch-sizes",
        type=positive,
        nargs="+",
        default=[1, 4, 8],
        metavar="N",
        help="images per batch (default: 1 4 8)",
    )
    options = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    shape = max(4, *options.batch_sizes), 375, 500, 3
    images = list(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))
    with tempfile.TemporaryDirectory() as home:
        save_model(Path(home))
        plain = one_by_one(Path(home), options.device)
        plain(images[:1])
        baseline = rate(plain, images)
        del plain
        ours = VitGpt2(model=home, dtype=options.dtype, selector=NoWords())
        ours.prepare(device=options.device, offline=True)
        ours.describe(images[:1])
        dtype = ours.provenance()["dtype"]
        print(f"{'':<28}{'images/s':>10}{'ratio':>8}")
        print(f"{'one by one, float32':<28}{baseline:>10.2f}{1:>8.2f}", flush=True)
        for size in options.batch_sizes:
            found = rate(ours.describe, images, size)
            name = f"batches of {size}, {dtype}"
            print(f"{name:<28}{found:>10.2f}{found / baseline:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
