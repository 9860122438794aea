from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fsf_detectors.clip_words import ClipWords
from fsframework.interfaces import DataError, OptionError
from fsframework.testing import parametrize_with_checks, toy_images
from tests.tiny_models import scenes, tiny_model, tiny_path


@pytest.fixture(scope="module", autouse=True)
def _models(one_thread: None) -> None:
    for kind in ("clip", "siglip", "blip"):
        tiny_model(kind)


def tiny_clip(**options: Any) -> ClipWords:
    return ClipWords(**{"model": str(tiny_path("clip")), "threshold": 0.1, **options})


def _clip() -> ClipWords:
    return tiny_clip(top=6)


def _siglip() -> ClipWords:
    return tiny_clip(model=str(tiny_path("siglip")))


@parametrize_with_checks([_clip, _siglip])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def vocabulary(tmp_path: Path, text: str | bytes) -> Path:
    file = tmp_path / "words.txt"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_similarities_are_those_of_the_whole_model(kind: str, tmp_path: Path) -> None:
    """The model's logits are scaled cosines, which SigLIP also shifts."""
    from transformers import AutoModel, AutoProcessor

    words = ["red", "grass", "a very long phrase"]
    detector = ClipWords(
        model=str(tiny_path(kind)),
        vocabulary=vocabulary(tmp_path, "\n".join(words)),
        template="the {}!",
    )
    images = scenes(5)[0]
    folder = tiny_path(kind)
    processor, model = AutoProcessor.from_pretrained(folder), AutoModel.from_pretrained(folder)
    texts = processor.tokenizer(
        [f"the {word}!" for word in words],
        padding="max_length" if kind == "siglip" else True,
        truncation=True,
        max_length=32,
        return_tensors="pt",
    )
    shown = [Image.fromarray(image) for image in images]
    pixels = processor.image_processor(shown, return_tensors="pt").pixel_values
    with torch.inference_mode():
        logits = model(pixel_values=pixels, **texts).logits_per_image
        shift = model.logit_bias if kind == "siglip" else 0
        expected = (logits - shift) / model.logit_scale.exp()
    found = detector.similarities(images)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


def test_words_are_those_at_the_threshold_and_above() -> None:
    images = scenes(8)[0]
    cosines = tiny_clip().similarities(images)
    threshold = float(np.quantile(cosines, 0.9))
    detector = tiny_clip(threshold=threshold)
    words = np.array(detector_words := detector.words)
    assert len(detector_words) == cosines.shape[1]
    expected = [frozenset(words[row >= threshold]) for row in cosines]
    assert detector.detect(images) == expected
    assert 0 < min(map(len, expected)) < max(map(len, expected)) < len(words)


def test_top_keeps_the_most_similar() -> None:
    images = scenes(4)[0]
    cosines, words = (d := tiny_clip(threshold=-1.0)).similarities(images), np.array(d.words)
    expected = [frozenset(words[np.argsort(-row)[:3]]) for row in cosines]
    assert tiny_clip(threshold=-1.0, top=3).detect(images) == expected
    assert len(tiny_clip(threshold=-1.0).detect(images)[0]) == len(words)
    assert tiny_clip(threshold=0.9, top=3).detect(images) == [frozenset()] * 4


def test_equal_similarities_are_cut_in_the_order_of_the_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = vocabulary(tmp_path, "zebra\nant\n")
    detector = tiny_clip(vocabulary=file, template="{}", threshold=-1.0, top=1)
    equal = np.full((2, 2), 0.5, np.float32)
    monkeypatch.setattr(detector, "similarities", lambda images: equal)
    assert detector.detect(toy_images(2)) == [frozenset({"zebra"})] * 2


def test_half_precision_is_near() -> None:
    images = scenes(4)[0]
    half, full = tiny_clip(dtype="bfloat16"), tiny_clip()
    np.testing.assert_allclose(half.similarities(images), full.similarities(images), atol=0.03)
    assert half.provenance()["dtype"] == "bfloat16"


def test_the_vocabulary_of_the_package() -> None:
    detector = tiny_clip()
    words = detector.words
    assert 150 <= len(words) <= 250
    assert {"red", "striped", "wood", "night", "forest", "grass", "chair", "dog"} <= set(words)
    assert all(word == word.strip().lower() for word in words)


def test_a_custom_vocabulary(tmp_path: Path) -> None:
    file = vocabulary(tmp_path, "\ufeff# colours\nred\n\n  dark blue \n# end\nred ball\r\n")
    assert tiny_clip(vocabulary=file).words == ("red", "dark blue", "red ball")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("red\n# no\nblue\nred\n", r"rows 1 and 4 have the same word 'red'"),
        ("# nothing\n\n", "must contain at least one word"),
        (b"red\ncaf\xe9\n", "is not UTF-8 text"),
    ],
)
def test_a_broken_vocabulary(tmp_path: Path, text: str | bytes, message: str) -> None:
    file = vocabulary(tmp_path, text)
    with pytest.raises(DataError, match=rf"vocabulary .*words\.txt: {message}"):
        tiny_clip(vocabulary=file).prepare()


def test_a_missing_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read .No such file"):
        tiny_clip(vocabulary=tmp_path / "none.txt").prepare()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": "a photo"}, r"template must contain \{\} exactly once, not 'a photo'"),
        ({"template": "{} and {}"}, "exactly once"),
        ({"threshold": 1.5}, "threshold must be a cosine between -1 and 1, not 1.5"),
        ({"threshold": float("nan")}, "threshold must be a cosine"),
        ({"top": 0}, "top must be none or at least 1, not 0"),
        ({"model": ""}, "model must be"),
        ({"dtype": "half"}, "dtype must be one of"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ClipWords(**options)


def test_a_model_of_another_kind() -> None:
    with pytest.raises(DataError, match="must contain a CLIP or SigLIP model .*, not BlipFor"):
        tiny_clip(model=str(tiny_path("blip"))).prepare()


def test_offline_and_quiet(no_network: list[Any], capfd: pytest.CaptureFixture[str]) -> None:
    detector = tiny_clip()
    detector.prepare(offline=True)
    detector.detect(scenes(2)[0])
    assert no_network == []
    assert capfd.readouterr() == ("", "")


def test_provenance(tmp_path: Path) -> None:
    file = vocabulary(tmp_path, "# a remark\nred\nblue\n")
    found = tiny_clip(vocabulary=file, top=2).provenance()
    digest = hashlib.sha256(b"red\nblue").hexdigest()
    assert found["vocabulary"] == f"2 words, sha256:{digest}"
    assert found["template"] == "a photo of a {}"
    assert (found["threshold"], found["top"], found["dtype"]) == ("0.1", "2", "float32")
    assert found["weights"].startswith("sha256:")
