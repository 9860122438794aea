"""The detector ``objects`` with a tiny model of a real class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fsf_detectors.objects import Objects
from fsframework.interfaces import DataError, OptionError
from fsframework.testing import parametrize_with_checks
from tests.tiny_models import scenes, tiny_model, tiny_path


@pytest.fixture(scope="module", autouse=True)
def _models(one_thread: None) -> None:
    for kind in ("yolos", "clip"):
        tiny_model(kind)


def tiny(**options: Any) -> Objects:
    return Objects(**{"model": str(tiny_path("yolos")), "threshold": 0.35, **options})


@parametrize_with_checks([tiny])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def test_words_are_the_labels_above_the_threshold() -> None:
    """An object's score is the greatest softmax over its labels, without that for no object."""
    from transformers import AutoImageProcessor, AutoModelForObjectDetection

    folder, threshold = tiny_path("yolos"), 0.35
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    model = AutoModelForObjectDetection.from_pretrained(folder)
    names = ("ball", "stop sign", "tree", "person")
    images, expected = scenes(8)[0], []
    for image in images:
        with torch.inference_mode():
            logits = model(**processor([Image.fromarray(image)], return_tensors="pt")).logits[0]
        scores = logits.softmax(dim=-1)[:, :-1].numpy()
        sure = scores.max(axis=1) > threshold
        expected.append(frozenset(names[i] for i in np.unique(scores.argmax(axis=1)[sure])))
    assert tiny(threshold=threshold).detect(images) == expected
    assert len({*expected}) > 1
    assert tiny(threshold=1.0).detect(images) == [frozenset()] * len(images)


def test_another_kind_of_model_is_refused() -> None:
    with pytest.raises(DataError, match="object detection, not CLIPModel"):
        tiny(model=str(tiny_path("clip"))).prepare()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1.5}, r"threshold .* not 1\.5"),
        ({"model": " "}, "model must be"),
        ({"dtype": "half"}, "dtype must be one of"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        tiny(**options)


def test_offline_and_what_is_recorded(no_network: list[Any]) -> None:
    detector = tiny()
    detector.prepare(offline=True)
    detector.detect(scenes(1)[0])
    assert no_network == []
    found = detector.provenance()
    assert found["weights"].startswith("sha256:")
    assert (found["threshold"], found["dtype"]) == ("0.35", "float32")
