"""The whole way by each detector: image files, words, tasks, a table of wAcc-A.

The models are tiny and most know nothing, so what they say means little; the way is that of real
ones, from a folder of weights on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

import fsf_statistics
import fsf_tools
import fsframework
from fsf_detectors.open_vocabulary import OpenVocabulary
from fsframework.records import RunRecord
from fsframework.values import AttributeTable, TaskSet
from tests.conftest import Fsf
from tests.tiny_models import scenes, tiny_model

TASKS = [
    "--method", "protonet", "--way", "2", "--shot", "1", "--queries", "3", "--tasks", "20",
    "--image-size", "32", "-o", "training.epochs=0", "--json",
]  # fmt: skip
KINDS = ["captioner", "clip-words", "captions-file"]
"""One that says what it sees, one that matches words, one that reads; others differ no more."""


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny tensors cost more to share out than to work on."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 8 images of each of 6 planted classes as files, with a table of what is known."""
    data = fsframework.dataset("planted", size=32, n_per_class=8)
    folder = tmp_path_factory.mktemp("planted")
    rows, captions = ["path,label,split,words"], []
    for index in data.split_indices("test")[:48]:
        path = folder / "images" / f"{data.keys[index]}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(data.image(int(index))).save(path)
        name, label = f"{data.keys[index]}.png", data.class_names[data.labels[index]]
        rows.append(f"{name},{label},test,{data.metadata['words'][index]}")
        captions.append({"key": name, "caption": data.metadata["caption"][index]})
    (folder / "images.csv").write_text("\n".join(rows))
    (folder / "captions.jsonl").write_text("\n".join(map(json.dumps, captions)))
    return folder


def of_kind(kind: str, captions: Path) -> list[str]:
    """Return the arguments that name a detector; tiny models speak in words they have learnt."""
    if kind == "captions-file":
        return ["--detector", f"captions-file:{captions}"]
    if kind == "clip-words":
        model = tiny_model("clip")
        return ["--detector", f"clip-words:{model}", "-o", "detector.threshold=-1",
                "-o", "detector.top=5"]  # fmt: skip
    return ["--detector", kind, "-o", f"detector.model={tiny_model('git')}"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", KINDS)
def test_from_image_files_to_worst_class_accuracy(
    fsf: Fsf, tmp_path: Path, image_folder: Path, kind: str
) -> None:
    detector = of_kind(kind, image_folder / "captions.jsonl")
    dataset = [
        "--dataset", f"csv:{image_folder / 'images.csv'}",
        "-o", f"dataset.root={image_folder / 'images'}",
    ]  # fmt: skip
    done = fsf("attributes", "extract", "words.parquet", *detector, *dataset, "--json", "--offline")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["words"] >= 2
    table = AttributeTable.load(tmp_path / "words.parquet")
    assert table.fingerprint == told["fingerprint"]
    counted = fsf("attributes", "stats", "--attributes", "words.parquet", *dataset, "--json")
    assert counted.returncode == 0, counted.stderr
    assert json.loads(counted.stdout)["unique_words"] == told["words"]
    ran = fsf("run", *detector, *dataset, *TASKS, "--offline")
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert {"wacc-biased", "wacc-random", "wacc-gap"} <= set(result["estimates"])
    folder = tmp_path / result["folder"]
    tasks = TaskSet.load(folder / "tasks-biased.safetensors")
    assert tasks.attributes_fingerprint == table.fingerprint
    record = RunRecord.load(folder)
    assert record.components["detector"].name == detector[1].partition(":")[0]
    assert record.settings["query_batch"] == "task"
    # The detector has seen every image: none is shown to it again.
    assert "detection:" not in ran.stderr


def test_words_of_an_open_vocabulary_are_judged_like_any_others() -> None:
    images, captions = scenes(12)
    model = str(tiny_model("owlv2"))
    detector = OpenVocabulary(model=model, words=("grass", "red ball"), threshold=0.55)
    found, keys = detector.detect(images), [f"{i}.png" for i in range(len(images))]
    words = AttributeTable.from_words(keys, found)
    truth = AttributeTable.from_words(keys, [{c.rpartition(" ")[2]} for c in captions])
    agreed = fsf_tools.agreement(words, truth)
    on_grass = ["grass" in caption for caption in captions]
    hits = [f & {c.rpartition(" ")[2]} for f, c in zip(found, captions, strict=True)]
    assert agreed.a.accuracy == pytest.approx(sum(map(len, hits)) / len(images))
    errors = fsf_tools.detection_errors(words, truth, {"grass": ["grass"]})
    recalled = ["grass" in f for f, is_so in zip(found, on_grass, strict=True) if is_so]
    assert errors.recall.share == pytest.approx(sum(recalled) / sum(on_grass))
    assert 0 < sum(recalled) < len(recalled)


@pytest.mark.slow
def test_a_backbone_that_reads_text_scores_keywords_as_its_detector_does(tmp_path: Path) -> None:
    model = tiny_model("clip")
    run = fsframework.run(
        method="ncc", sampler="fewstab", backbone=f"clip:{model}",
        dataset={"name": "planted", "n_per_class": 12, "size": 32}, training={"epochs": 0},
        tasks=20, way=3, shot=1, queries=4, progress=False,
        runs_dir=tmp_path / "runs", cache_dir=tmp_path / "cache",
    )  # fmt: skip
    own = fsf_statistics.keywords(run)
    other = fsf_statistics.keywords(run, similarity=f"clip-words:{model}")
    assert (own.similarity, other.similarity) == (f"clip:{model}", f"clip-words:{model}")
    scores, others = (
        {row.names: row.estimate.value for row in found.tested} for found in (own, other)
    )
    assert len(scores) > 20
    assert scores == pytest.approx(others, abs=1e-4)
