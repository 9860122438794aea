"""Similarity of images to the names of their classes and contexts, worked by hand and by CLIP."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fsf_benchmarks._metacoco import SIMILARITIES, printed_similarities
from fsf_benchmarks._similarity import readable
from fsframework.components.registry import Registry
from tests.conftest import Fsf
from tests.tiny_models import scenes, tiny_model

TOYS = Path(__file__).with_name("toy_clip.py")
# class, colour of the image, context: the mean colour is what the toy model sees.
IMAGES = (
    ("red", (200, 0, 0), "blue"),
    ("red", (100, 0, 100), "blue"),
    ("red", (0, 0, 50), "blue"),
    ("bright_green", (0, 30, 40), "red"),
    ("bright_green", (0, 255, 0), ""),
)
CE = (1, np.sqrt(0.5), 0, 0.6, 1)
TE = (0, np.sqrt(0.5), 1, 0, np.nan)
Similar = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with (tmp_path / "images.csv").open("w", encoding="utf-8") as file:
        print("path,label,split,context", file=file)
        for i, (label, colour, context) in enumerate(IMAGES):
            split = "test" if label == "red" else "val"
            Image.fromarray(np.full((9, 7, 3), colour, np.uint8)).save(tmp_path / f"{i}.png")
            print(f"{i}.png,{label},{split},{context}", file=file)
    return tmp_path / "images.csv"


@pytest.fixture
def similar(fsf: Fsf, data: Path) -> Similar:
    def call(*more: str, table: Path = data) -> subprocess.CompletedProcess[str]:
        asked = ("data", "similarity", "--plugin", str(TOYS), "--dataset", f"csv:{table}")
        return fsf(*asked, "--detector", "toy-clip", *more)

    return call


def groups(done: subprocess.CompletedProcess[str]) -> dict[tuple[str, str], dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return {(g["by"], g["name"]): g for g in json.loads(done.stdout)["groups"]}


def test_means_are_those_worked_by_hand(similar: Similar, tmp_path: Path) -> None:
    done = similar("--json", "--output", "values.csv", "--figure", "values.png")
    found = groups(done)
    total = found["all", ""]
    assert total["m_ce"] == pytest.approx(np.mean(CE), abs=1e-6)
    assert total["m_te"] == pytest.approx(np.nanmean(TE), abs=1e-6)
    assert (total["n_images"], total["n_contexts"]) == (5, 4)
    # Of the four with a context one lies above the line; one lies on it, to the last digit.
    assert total["above"] == 0.25
    assert found["split", "test"]["m_ce"] == pytest.approx((1 + np.sqrt(0.5)) / 3, abs=1e-6)
    assert found["class", "bright_green"]["m_ce"] == pytest.approx(0.8, abs=1e-6)
    assert found["class", "bright_green"]["n_contexts"] == 1
    assert found["context", "red"]["m_te"] == pytest.approx(0, abs=1e-6)
    assert ("context", "") not in found
    with (tmp_path / "values.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    by_key = {row["key"]: row for row in rows}
    for i, (ce, te) in enumerate(zip(CE, TE, strict=True)):
        row = by_key[f"{i}.png"]
        assert float(row["m_ce"]) == pytest.approx(ce, abs=1e-6)
        assert row["m_te"] == ("" if np.isnan(te) else f"{te:.6f}")
    with Image.open(tmp_path / "values.png") as picture:
        assert picture.format == "PNG"
    assert similar("--output", "values.parquet").returncode == 0
    table = pq.read_table(tmp_path / "values.parquet").to_pydict()
    order = np.argsort(table["key"])
    assert np.array(table["m_ce"])[order] == pytest.approx(CE, abs=1e-6)
    assert [table["m_te"][i] is None for i in order] == [False] * 4 + [True]
    assert [table["context"][i] for i in order] == ["blue"] * 3 + ["red", None]


def test_templates_stand_around_names(similar: Similar) -> None:
    """With blue in it, the text of red lies between red and blue."""
    found = groups(similar("--template", "blue {}", "--context-template", "{}", "--json"))
    assert found["class", "red"]["m_ce"] == pytest.approx(
        np.mean([np.sqrt(0.5), 1, np.sqrt(0.5)]), abs=1e-6
    )
    assert found["context", "blue"]["m_te"] == pytest.approx((1 + np.sqrt(0.5)) / 3, abs=1e-6)


def test_images_are_shown_once_and_an_interrupted_call_goes_on(
    similar: Similar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("TOY_CLIP_LOG", str(log))
    monkeypatch.setenv("TOY_CLIP_STOPS", "2")
    assert similar("--batch-size", "2").returncode == 130
    monkeypatch.delenv("TOY_CLIP_STOPS")
    found = groups(similar("--batch-size", "2", "--json"))
    assert len(log.read_text()) == 5
    assert found["all", ""]["m_ce"] == pytest.approx(np.mean(CE), abs=1e-6)
    similar("--template", "the {}", "--json")
    assert len(log.read_text()) == 5
    similar("--split", "val")
    assert len(log.read_text()) == 7  # another set of images has features of its own


def test_without_contexts_there_is_one_similarity(
    similar: Similar, data: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare.csv"
    lines = data.read_text(encoding="utf-8").splitlines()
    bare.write_text("\n".join(line.rpartition(",")[0] for line in lines), encoding="utf-8")
    done = similar(table=bare)
    assert done.returncode == 0, done.stderr
    assert "M_ce" in done.stdout
    assert "M_te" not in done.stdout
    refused = similar("--figure", "x.png", table=bare)
    assert refused.returncode == 2
    assert "the images have no contexts" in refused.stderr
    refused = similar("--column", "place", table=bare)
    assert "--column place: the data set has no metadata columns" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--template", "a photo"), "the template must contain {} exactly once, not 'a photo'"),
        (("--split", "tset"), "has no split 'tset'"),
        (("--output", "x.txt"), "must end in .csv or .parquet"),
        (("--figure", "x.gif"), "the name of a figure must end in one of .pdf"),
        (("--clip", "there"), "--clip and --detector both name the model"),
        (("--batch-size", "0"), "batch_size must be at least 1, not 0"),
        (("--detector", "toy-deaf"), "detector toy-deaf: does not compare images with texts; use"),
        (("-o", "detector.long=true"), "the features of images do not have length 1"),
    ],
)
def test_what_is_wrong_is_one_line(similar: Similar, arguments: tuple[str, ...], said: str) -> None:
    done = similar(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("fsf:")]) == 1


def test_values_are_those_of_the_whole_clip(fsf: Fsf, tmp_path: Path) -> None:
    """The model's own logits are the cosines, times its scale."""
    folder = tiny_model("clip")
    import torch
    from transformers import AutoModel, AutoProcessor

    images, captions = scenes(4, seed=3)
    names = [caption.split() for caption in captions]  # a COLOUR ball on the GROUND
    with (tmp_path / "images.csv").open("w", encoding="utf-8") as file:
        print("path,label,split,place", file=file)
        for i, (image, words) in enumerate(zip(images, names, strict=True)):
            Image.fromarray(image).save(tmp_path / f"{i}.png")
            print(f"{i}.png,{words[1]},test,{words[-1]}", file=file)
    done = fsf(
        "data", "similarity", "--dataset", "csv:images.csv", "--clip", str(folder), "--column",
        "place", "--template", "a {} ball", "--output", "values.csv", "--device", "cpu",
        "--offline",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    model, processor = (
        cls.from_pretrained(folder, local_files_only=True) for cls in (AutoModel, AutoProcessor)
    )
    texts = [f"a {words[i]} ball" for words in names for i in (1, -1)]
    inputs = processor(
        text=texts, images=[Image.fromarray(i) for i in images], return_tensors="pt", padding=True
    )
    with torch.inference_mode():
        logits = model.eval()(**inputs).logits_per_image / model.logit_scale.exp()
    with (tmp_path / "values.csv").open(encoding="utf-8") as file:
        rows = {row["key"]: row for row in csv.DictReader(file)}
    for i in range(4):
        row = rows[f"{i}.png"]
        assert float(row["m_ce"]) == pytest.approx(float(logits[i, 2 * i]), abs=2e-5)
        assert float(row["m_te"]) == pytest.approx(float(logits[i, 2 * i + 1]), abs=2e-5)


def test_names_of_the_printed_similarities() -> None:
    assert set(SIMILARITIES.values()) == set(printed_similarities())
    assert set(SIMILARITIES) <= set(Registry().names("dataset"))
    assert readable("hot_air  balloon") == "hot air balloon"
