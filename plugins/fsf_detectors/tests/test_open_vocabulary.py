"""The detector ``open-vocabulary`` with tiny models of real classes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fsf_detectors.open_vocabulary import OpenVocabulary
from fsframework.interfaces import DataError, OptionError
from fsframework.testing import parametrize_with_checks
from fsframework.values import UInt8Array
from tests.tiny_models import scenes, tiny_model, tiny_path

WORDS = ("red ball", "grass", "stop sign", "snow", "trees")


@pytest.fixture(scope="module", autouse=True)
def _models(one_thread: None) -> None:
    for kind in ("owlv2", "grounding-dino", "clip"):
        tiny_model(kind)


def tiny(kind: str = "owlv2", **options: Any) -> OpenVocabulary:
    return OpenVocabulary(
        **{"model": str(tiny_path(kind)), "words": WORDS, "threshold": 0.5, **options}
    )


def tiny_grounding_dino() -> OpenVocabulary:
    return tiny("grounding-dino")


@parametrize_with_checks([tiny])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


@pytest.mark.slow
@parametrize_with_checks([tiny_grounding_dino])
def test_conformance_of_the_other_family(make: Any, check: Any) -> None:
    check(make)


def outputs_of(kind: str, image: UInt8Array, text: Sequence[str]) -> tuple[Any, torch.Tensor]:
    """Return what the model's own processor and forward pass make of one image: ids and logits."""
    from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

    folder = tiny_path(kind)
    processor = AutoProcessor.from_pretrained(folder, backend="pil")
    model = AutoModelForZeroShotObjectDetection.from_pretrained(folder)
    # OWLv2 pads texts to the longest that it reads, 16 tokens here.
    longest = {"max_length": 16} if kind == "owlv2" else {}
    inputs = processor(
        images=Image.fromarray(image), text=[list(text)], return_tensors="pt", **longest
    )
    with torch.inference_mode():
        return inputs["input_ids"][0].tolist(), model(**inputs).logits[0]


def test_owlv2_scores_are_the_best_over_boxes() -> None:
    """A box's score is the sigmoid of the logit of the word's text."""
    images, detector = scenes(4)[0], tiny()
    expected = []
    for image in images:
        _, logits = outputs_of("owlv2", image, [f"a photo of a {word}" for word in WORDS])
        expected.append(logits.sigmoid().amax(dim=0).numpy())
    found = detector.scores(images)
    np.testing.assert_allclose(found, np.array(expected), atol=1e-5)
    assert detector.detect(images) == [
        frozenset(np.array(WORDS)[row > detector.threshold]) for row in found
    ]
    assert np.ptp(found, axis=0).min() > 0.01
    assert np.ptp(found, axis=1).max() > 0.01


def test_grounding_dino_scores_are_the_best_means_over_the_tokens_of_a_word() -> None:
    images = scenes(3)[0]
    expected = []
    for image in images:
        ids, logits = outputs_of("grounding-dino", image, WORDS)
        ends = [0, *(i for i, token in enumerate(ids) if token == 1012)]
        scores = logits.sigmoid()
        words = [scores[:, a + 1 : b].mean(dim=1).max() for a, b in pairwise(ends)]
        expected.append([float(score) for score in words])
    found = tiny("grounding-dino").scores(images)
    np.testing.assert_allclose(found, np.array(expected), atol=1e-5)
    assert np.ptp(found, axis=0).min() > 0.001


def test_a_list_longer_than_the_model_reads_is_read_in_parts() -> None:
    """The tiny model reads 24 tokens, those that begin and end a text and full stops included."""
    images = scenes(2)[0]
    first = (
        "red ball",
        "blue ball",
        "stop sign",
        "red grass",
        "blue sand",
        "red tree",
        "snow",
        "sand",
    )
    whole = tiny("grounding-dino", words=(*first, "grass", "trees"))
    parts = [tiny("grounding-dino", words=words) for words in (first, ("grass", "trees"))]
    expected = np.concatenate([part.scores(images) for part in parts], axis=1)
    np.testing.assert_allclose(whole.scores(images), expected, atol=1e-5)


def test_images_of_any_size_in_one_batch() -> None:
    images = [scenes(1, seed, side)[0][0] for seed, side in enumerate((32, 40, 32))]
    images[1] = images[1][:30]
    together = tiny("grounding-dino").scores(images)
    alone = [tiny("grounding-dino").scores([image]) for image in images]
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-5)


def test_words_of_a_file_or_of_the_package(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("# what to look for\ngrass\nred ball\n")
    assert tiny(words=(), vocabulary=file).looked_for == ("grass", "red ball")
    assert 150 <= len(tiny(words=()).looked_for) <= 250
    with pytest.raises(OptionError, match="must not both be set"):
        tiny(vocabulary=file)


@pytest.mark.parametrize("words", [("a. b",), ("red " * 22,)])
def test_words_that_grounding_dino_cannot_read(words: tuple[str, ...]) -> None:
    with pytest.raises(OptionError, match="must have 1 to 21 tokens and no full stop, not"):
        tiny("grounding-dino", words=words).prepare()


def test_another_kind_of_model_is_refused() -> None:
    with pytest.raises(DataError, match="OWL-ViT, OWLv2 or Grounding DINO model, not CLIPModel"):
        tiny("clip").prepare()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1.5}, r"threshold .* not 1\.5"),
        ({"model": " "}, "model must be"),
        ({"dtype": "half"}, "dtype must be one of"),
        ({"words": ("red", "red ")}, "words must be different"),
        ({"words": ("red", " ")}, "words must be different and not empty"),
        ({"template": "a photo"}, r"template must contain \{\} exactly once"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        tiny(**options)


def test_offline_and_what_is_recorded(
    no_network: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    detector = tiny(template="the {}")
    detector.prepare(offline=True)
    detector.detect(scenes(1)[0])
    assert no_network == []
    assert capfd.readouterr() == ("", "")
    found = detector.provenance()
    assert found["weights"].startswith("sha256:")
    assert found["words"].startswith("5 words, sha256:")
    assert (found["template"], found["threshold"]) == ("the {}", "0.5")
