from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from fsf_clip_methods import Clip, ImageTextTower, OpenClip
from fsframework.interfaces import DataError, OptionError
from fsframework.testing import parametrize_with_checks
from tests.tiny_models import scenes, tiny_model, tiny_path

OPEN_CLIP = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 24, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}


def open_clip_path() -> Path:
    return tiny_path("open-clip")


@pytest.fixture(scope="module", autouse=True)
def _models() -> None:
    tiny_model("clip")
    tiny_model("siglip")
    open_clip_path().mkdir(exist_ok=True)
    config = {"model_cfg": OPEN_CLIP, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3}}
    (open_clip_path() / "open_clip_config.json").write_text(json.dumps(config))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        made = OpenClip(model=str(open_clip_path()), weights="none")
    save_file(made.net.state_dict(), open_clip_path() / "open_clip_model.safetensors")


# The folders are not there when the tests are collected.
clip = partial(Clip, model=str(tiny_path("clip")))
siglip = partial(Clip, model=str(tiny_path("siglip")))
open_clip = partial(OpenClip, model=str(open_clip_path()))
ALL = (clip, siglip, open_clip)


@parametrize_with_checks([clip])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


@pytest.mark.slow
@parametrize_with_checks([siglip, open_clip])
def test_conformance_of_other_towers(make: Any, check: Any) -> None:
    check(make)


def loaded(make: Any) -> ImageTextTower:
    tower: ImageTextTower = make()
    tower.load_pretrained(offline=True)
    return tower.eval()


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_both_features_are_those_of_the_whole_model(kind: str) -> None:
    from transformers import AutoModel, AutoProcessor

    folder = tiny_path(kind)
    tower = loaded(partial(Clip, model=str(folder)))
    processor, model = AutoProcessor.from_pretrained(folder), AutoModel.from_pretrained(folder)
    texts = ["a red ball.", "snow"]
    padding = "max_length" if kind == "siglip" else True
    given = processor.tokenizer(
        texts, padding=padding, truncation=True, max_length=32, return_tensors="pt"
    )
    shown = [Image.fromarray(image) for image in scenes(3)[0]]
    pixels = processor.image_processor(shown, return_tensors="pt").pixel_values
    with torch.no_grad():
        logits = model(pixel_values=pixels, **given).logits_per_image
        images = torch.nn.functional.normalize(tower.encode(pixels), dim=1)
        found = torch.nn.functional.normalize(tower.text_features(texts), dim=1)
    shift = model.logit_bias if kind == "siglip" else 0
    torch.testing.assert_close(tower.logit_scale * images @ found.T, logits - shift)


def test_preprocessing_is_that_of_the_image_processor() -> None:
    found = clip().preprocessing
    assert (found.size, found.interpolation, found.binding) == (32, "bicubic", True)
    assert found.mean == (0.48145466, 0.4578275, 0.40821073)
    assert siglip().preprocessing.std == (0.5, 0.5, 0.5)
    assert open_clip().preprocessing.std == (0.25, 0.25, 0.25)
    assert Clip(model=str(tiny_path("clip")), image_size=48).preprocessing.size == 48


@pytest.mark.parametrize("make", ALL)
def test_words_in_a_context_are_read_as_in_a_text(make: Any) -> None:
    tower = loaded(make)
    names = ["dog", "stop sign", "a red ball on the sand"]
    ids = tower.word_ids("a photo of a")
    tokens = tower.tokens([f" {name}." for name in names], ids, 20)
    context = tower.contexts(tokens, len(ids))
    expected = tower.text_features([f"a photo of a {name}." for name in names])
    torch.testing.assert_close(tower.features_in_context(tokens, context), expected)
    moved = (context + 0.1).requires_grad_()
    tower.features_in_context(tokens, moved).square().sum().backward()
    assert moved.grad is not None
    assert moved.grad.abs().amax(dim=2).min() > 0
    torch.testing.assert_close(tower.text_features(["dog"]), tower.text_features(["dog"] * 3)[:1])


@pytest.mark.parametrize("make", ALL)
def test_a_context_that_leaves_no_room_for_a_name(make: Any) -> None:
    tower = loaded(make)
    with pytest.raises(OptionError, match=r"reads \d\d tokens, which leaves too few beside"):
        tower.tokens(["dog."], tower.word_ids("a")[:1].expand(30), 20)
    if make is clip:
        with pytest.raises(OptionError, match="5 tokens are too few for 'a long sentence'"):
            tower.tokens(["a", "a long sentence"], tower.word_ids("a"), 5)


@pytest.mark.parametrize("make", ALL)
def test_every_patch_is_at_its_place(make: Any) -> None:
    tower = loaded(make)
    image = torch.zeros(1, 3, 32, 32)
    changed = image.clone()
    changed[..., 8:16, 24:] = 3.0
    moved = (tower(changed) - tower(image)).square().sum(dim=1)[0]
    assert moved.shape == (4, 4)
    assert int(moved.argmax()) == 1 * 4 + 3


def test_provenance_states_what_is_known() -> None:
    found = loaded(clip)
    assert found.provenance()["weights"].startswith("sha256:")
    assert (found.pretrained_on, found.licence) == ("unknown", "not stated")
    known = Clip(model=str(tiny_path("clip")), pretrained_on="wit-400m")
    assert known.pretrained_on == "wit-400m"
    assert "open_clip_torch" in loaded(open_clip).provenance()["package"]
    random = OpenClip(model=str(open_clip_path()), weights="none")
    assert random.pretrained_on is None


def test_the_licence_is_that_of_the_model_card(tmp_path: Path) -> None:
    import shutil

    folder = Path(shutil.copytree(tiny_path("clip"), tmp_path / "clip"))
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# A model\n")
    assert Clip(model=str(folder)).licence == "apache-2.0"


def test_published_weights_of_open_clip_that_are_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", "/nowhere")
    with pytest.raises(OptionError, match="must be a folder .* or a model of open_clip"):
        OpenClip(model="ViT-B-23/openai")
    with pytest.raises(OptionError, match="must name pretrained weights, as RN50/PRETRAINED"):
        OpenClip(model="RN50")
    with pytest.raises(OptionError, match="no weights 'laion9b' for RN50; it has openai, yfcc15m"):
        OpenClip(model="RN50/laion9b")


def test_weights_of_open_clip_from_a_file(tmp_path: Path) -> None:
    tower = loaded(open_clip)
    file, own = tmp_path / "weights.pt", tower.net.state_dict()
    wrapped = {"params": {f"module.{k}": v for k, v in own.items()}, "best": np.float64(61.2)}
    for content in (own, wrapped):
        torch.save(content, file)
        other = loaded(partial(OpenClip, model=str(open_clip_path()), weights=str(file)))
        torch.testing.assert_close(other.text_features(["dog"]), tower.text_features(["dog"]))
    file.write_bytes(b"nothing")
    with pytest.raises(DataError, match="does not fit"):
        loaded(partial(OpenClip, model=str(open_clip_path()), weights=str(file)))
    with pytest.raises(DataError, match=r"cannot read weights from .*none\.pt"):
        loaded(partial(OpenClip, model=str(open_clip_path()), weights=str(tmp_path / "none.pt")))


def test_models_of_transformers_that_are_not_here_or_of_another_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match="model someone/clip: not on this machine"):
        Clip(model="someone/clip")
    with pytest.raises(DataError, match="must contain a model with an image tower and a text"):
        Clip(model=str(tiny_model("yolos")))


@pytest.mark.parametrize(
    ("module", "make", "package"),
    [("transformers", clip, "transformers"), ("open_clip", open_clip, "open_clip_torch")],
)
def test_a_package_that_is_missing(
    module: str, make: Any, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(OptionError, match=f"{package} cannot be imported .* pip install"):
        make()
