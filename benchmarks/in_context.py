"""Seconds per query of in-context learning, with the shared cache and without.

Run ``python benchmarks/in_context.py``; it takes about three minutes on one core. The model has the
layers of SmolVLM-256M, on images of 224 pixels that are 49 tokens each, and random weights; labels
are names of two to four tokens. The baseline reads the whole conversation for every query and every
label, as a plain loop over Transformers does. Both give the same likelihoods, which is checked.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch
from _options import positive
from tokenizers import ByteLevelBPETokenizer

from fsf_detectors.hub import shut_up
from fsf_vlm import InContext, Pixels
from fsframework.interfaces import Known

SIDE = 224
NAMES = ["golden retriever", "school bus", "dalmatian", "malamute", "theater curtain"]
MARKS = ("<pad>", "<end>", "<image>", "<global-img>", "<fake_token_around_image>")
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {% for part in message['content'] %}"
    "{{ '<image>' if part['type'] == 'image' else part['text'] }}{% endfor %}<end>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def save_model(folder: Path) -> None:
    """Save an Idefics3 of the size of SmolVLM-256M with random weights."""
    import transformers as hf

    torch.manual_seed(0)
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(NAMES, show_progress=False, special_tokens=list(MARKS))
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer,
        pad_token="<pad>",
        eos_token="<end>",
        additional_special_tokens=list(MARKS[2:]),
    )
    config = hf.Idefics3Config(
        vision_config={
            "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
            "num_attention_heads": 12, "image_size": SIDE, "patch_size": 16,
        },
        text_config=hf.LlamaConfig(
            hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
            num_key_value_heads=3, vocab_size=49280, max_position_embeddings=8192,
        ),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
    )  # fmt: skip
    size = {"longest_edge": SIDE}
    images = hf.Idefics3ImageProcessorPil(do_image_splitting=False, size=size, max_image_size=size)
    processor = hf.Idefics3Processor(images, tokenizer, image_seq_len=49, chat_template=TEMPLATE)
    hf.Idefics3ForConditionalGeneration(config).eval().save_pretrained(folder)
    processor.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu", help="such as cuda:0 (default: cpu)")
    parser.add_argument("--shot", type=positive, default=1, help="shots per way (default: 1)")
    parser.add_argument("--queries", type=positive, default=10, help="per task (default: 10)")
    parser.add_argument("--plain", type=positive, default=2, help="queries without (default: 2)")
    options = parser.parse_args()
    # Of a CPU, the time of the process: others may run beside it.
    clock = time.process_time if options.device == "cpu" else time.perf_counter
    generator = torch.Generator().manual_seed(0)
    shape = (5 * options.shot + options.queries, 3, SIDE, SIDE)
    images = torch.randint(256, shape, generator=generator) / 255
    images = images.to(options.device)
    support = images[: 5 * options.shot].view(1, 5, options.shot, 3, SIDE, SIDE)
    query = images[None, 5 * options.shot :]
    with tempfile.TemporaryDirectory() as home:
        with shut_up():
            save_model(Path(home))

        def built(shared: bool) -> InContext:
            method = InContext(model=home, shared=shared, dtype="float32")
            method.build((3, SIDE, SIDE), 0, Pixels(size=SIDE))
            return method.to(options.device)

        def seconds(method: InContext, asked: torch.Tensor) -> tuple[float, torch.Tensor]:
            known = Known(names=method.embed_names(NAMES)[None].to(options.device))
            begin = clock()
            found = method.scores_with(support, asked, known).cpu()
            return (clock() - begin) / asked.shape[1], found

        whole, shared = built(False), built(True)
        noise = torch.rand(1, 5, 1, 3, SIDE, SIDE, generator=generator).to(options.device)
        for method in (whole, shared):  # loads the weights
            method.scores(noise[:, :2], noise[:, 2, :1])
        rows = {
            "whole conversation": seconds(whole, query[:, : options.plain]),
            "shared cache": seconds(shared, query),
            "shared cache, images of earlier tasks": seconds(shared, query),
        }
        apart = (rows["shared cache"][1][:, : options.plain] - rows["whole conversation"][1]).abs()
        assert apart.max() < 1e-3, f"scores differ by {apart.max():.2g}"
        print(f"{'':<40}{'s per query':>12}{'ratio':>8}")
        for name, (found, _) in rows.items():
            ratio = rows["whole conversation"][0] / found
            print(f"{name:<40}{found:>12.3f}{ratio:>8.1f}", flush=True)


if __name__ == "__main__":
    main()
