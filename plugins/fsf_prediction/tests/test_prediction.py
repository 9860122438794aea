"""Predicting a user's own images: what run would predict, from files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fsframework as api
from fsf_prediction import predict
from fsf_prediction.prediction import MOST_DRAWS, draws_of
from fsframework.interfaces import Dataset
from fsframework.values import TaskSet
from tests.conftest import Fsf

SIZE = 24
PLANTED = {"name": "planted", "size": SIZE, "n_per_class": 8}


def predicted(fsf: Fsf, support: Path, *queries: Path | str, **options: str) -> Any:
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    size = ("--image-size", str(SIZE))
    done = fsf("predict", *queries, "--support", support, *size, *given, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def scores(found: Any) -> list[list[float]]:
    return [list(row["scores"].values()) for row in found["predictions"]]


def classes(found: Any) -> list[str]:
    return [row["class"] for row in found["predictions"]]


def save(image: object, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(image, dtype=np.uint8)).save(path)
    return path


def plain(folder: Path, sizes: dict[str, int]) -> Path:
    """Images of one colour per class, with a little noise: any features tell them apart."""
    for label, (name, size) in enumerate(sizes.items()):
        for i in range(size):
            noise = np.random.default_rng([label, i]).integers(0, 20, (SIZE, SIZE, 3))
            colour = np.array([[230, 20, 20], [20, 220, 20], [20, 20, 230]])[label % 3]
            save(np.clip(colour + noise, 0, 255), folder / name / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def data() -> Dataset:
    found: Dataset = api.dataset(PLANTED)
    return found


@pytest.fixture(scope="module")
def task(data: Dataset) -> TaskSet:
    shape = {"name": "random", "n_way": 4, "n_shot": 3, "n_query": 4}
    [drawn] = api.draw(shape, data.pool("test"), tasks=1, seed=0).values()
    return drawn


@pytest.mark.parametrize(
    "method", ["protonet", "dn4", "r2d2", "logistic", "baseline", "maml", "ncc"]
)
def test_it_predicts_what_a_run_predicts(
    fsf: Fsf, tmp_path: Path, data: Dataset, task: TaskSet, method: str
) -> None:
    indices = data.split_indices("test")
    pixels = data.images(indices, SIZE)
    files = {}
    for way in range(4):
        for part, images in (("support", task.support), ("query", task.query)):
            for i in images[0, way]:
                folder = f"way{way}" if part == "support" else "."
                files[i] = save(pixels[i], tmp_path / part / folder / f"{i}.png")
    options = {"name": method, **({"n_way": 4} if method == "maml" else {})}
    model = api.model(options, image_size=SIZE, device="cpu")
    [outcomes] = api.evaluate(model, task, data, progress=False).values()
    queries = [files[i] for i in task.query[0].ravel()]
    found = predicted(fsf, tmp_path / "support", *queries, method=method)
    assert classes(found) == [f"way{way}" for way in outcomes.predictions[0].ravel()]
    np.testing.assert_allclose(np.sum(scores(found), axis=1), 1)
    assert predicted(fsf, tmp_path / "support", *queries, method=method) == found
    assert any("all queries together" in note for note in found["notes"]) == (method == "maml")
    assert any("conv64f has random weights" in note for note in found["notes"])


def test_one_query_s_scores_do_not_depend_on_the_others(fsf: Fsf, tmp_path: Path) -> None:
    support = plain(tmp_path / "few", {"a": 3, "b": 3})
    both = predicted(fsf, support, support / "a/0.png", support / "b/1.png")
    alone = predicted(fsf, support, support / "b/1.png")
    np.testing.assert_allclose(scores(both)[1], scores(alone)[0], atol=1e-6)


def test_unequal_classes_are_drawn_from(fsf: Fsf, tmp_path: Path) -> None:
    support = plain(tmp_path / "few", {"red": 2, "green": 5, "blue": 3})
    found = predicted(fsf, support, support)
    assert predict([support], support, image_size=SIZE, progress=False).to_json() == found
    assert (found["shot"], found["draws"]) == (2, 3)
    assert classes(found) == ["blue"] * 3 + ["green"] * 5 + ["red"] * 2
    notes = "\n".join(found["notes"])
    assert "classes have 2 ('red') to 5 ('green') images" in notes
    assert "10 queries are also in the support" in notes


def test_draws_show_every_image_and_are_never_too_many() -> None:
    assert [c.tolist() for c in draws_of([3, 3], 5)[0]] == [[0, 1, 2], [0, 1, 2]]
    draws = draws_of([4, 9, 5], 0)
    assert len(draws) == 3
    for label, size in enumerate((4, 9, 5)):
        shown = [draw[label] for draw in draws]
        assert set(np.concatenate(shown).tolist()) == set(range(size))
        assert all(len(set(one.tolist())) == 4 for one in shown), "no image twice in a draw"
    assert len(draws_of([1, 1000], 0)) == MOST_DRAWS
    assert draws_of([2, 50], 1)[0][1].tolist() != draws_of([2, 50], 2)[0][1].tolist()


def test_classes_are_sub_folders_and_queries_files_folders_and_patterns(
    fsf: Fsf, tmp_path: Path
) -> None:
    root = plain(tmp_path / "archive/inner", {"Zürich": 1, "cat10": 1, "cat2": 2})
    save(np.zeros((4, 4, 3)), root / "cat2/deep/er/0.PNG")
    save(np.zeros((4, 4, 3)), root / "loose.png")
    (root / ".hidden").mkdir()
    (root / "cat2/notes.txt").write_text("no image")
    new = plain(tmp_path / "new", {"x": 11, "y": 1})
    found = predicted(fsf, Path("archive"), "new/x/1*.png", "new/y", new / "x/1.png")
    assert found["classes"] == ["Zürich", "cat2", "cat10"]
    files = [row["file"] for row in found["predictions"]]
    assert files == ["new/x/1.png", "new/x/10.png", "new/y/0.png"], "each once"
    notes = "\n".join(found["notes"])
    assert "classes have 1 ('Zürich') to 3 ('cat2') images" in notes
    assert "not in a class folder: 1 image" in notes
    found = predicted(fsf, root, new / "x/*0.png")
    files = [row["file"] for row in found["predictions"]]
    assert files == [str(new / "x/0.png"), str(new / "x/10.png")]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("few/a", "--support", "nowhere"), "no such folder"),
        (("few/a", "--support", "one"), "at least two classes"),
        (("few/a", "--support", "empty"), "no image in 'dog'"),
        (("nothing.png", "--support", "few"), "no such file"),
        (("few/z*.png", "--support", "few"), "no such file"),
        (("fe*/a/x.png", "--support", "few"), "no such file"),
        (("empty/dog", "--support", "few"), "no image in this folder"),
        (("few/a", "--support", "splits"), "'test' and 'train' are splits"),
        (("few/a", "--support", "missing"), "the class 'nan'"),
        (("few/a", "--support", "forms"), "forms/caf"),
        (("few/a", "--support", "x" * 300), "File name too long"),
        (("x/" * 3000 + "*.png", "--support", "few"), "no such file"),
        (("~nobody-of-this-name/1.png", "--support", "few"), "no such file"),
        (("few/a", "--support", "links"), "links/a/1.png: no such file; --broken skip"),
        (("links", "--support", "few"), "links/a/1.png: no such file; --broken skip"),
        (("links/a/1*.png", "--support", "few"), "links/a/1.png: no such file; --broken skip"),
        (("links/a", "--support", "few", "--broken", "skip"), "no image to classify can be read"),
        (("--support", "few"), "name the images to classify"),
        (("few/a", "--support", "few", "-o", "tasks=3"), "tasks does not apply to a prediction"),
        (("few/a", "--support", "few", "-o", "dataset=planted"), "dataset does not apply"),
        (("few/a", "--support", "few", "-o", "training.epochs=3"), "trains nothing"),
    ],
)
def test_what_cannot_be_predicted(
    fsf: Fsf, tmp_path: Path, arguments: tuple[str, ...], part: str
) -> None:
    plain(tmp_path / "few", {"a": 1, "b": 1})
    plain(tmp_path / "one", {"cat": 1})
    plain(tmp_path / "empty", {"cat": 1})
    (tmp_path / "empty/dog").mkdir()
    plain(tmp_path / "splits", {"train/a": 1, "train/b": 1, "test/a": 1, "test/b": 1})
    plain(tmp_path / "missing", {"cat": 1, "nan": 1})
    plain(tmp_path / "forms", {"caf\u00e9": 1, "cafe\u0301": 1, "tea": 1})
    plain(tmp_path / "links", {"b": 1})
    (tmp_path / "links/a").mkdir()
    (tmp_path / "links/a/1.png").symlink_to("annex/objects/1.png")
    done = fsf("predict", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert part in done.stderr


def test_files_beside_the_images_are_left_out_or_counted(fsf: Fsf, tmp_path: Path) -> None:
    support = plain(tmp_path / "support", {"red": 2, "green": 2})
    left = save(np.zeros((SIZE, SIZE, 3)), support / "red" / "@eaDir" / "0.png" / "THUMB.png")
    for name in ("1.HEIC", "IMG_1", "Icon\r", "~$0.png"):
        (support / "green" / name).write_bytes(b"")
    queries = [
        save(np.zeros((4, 4, 3)), tmp_path / "new" / name)
        for name in ("l\nn.png", "#?.png", "\u202e.png", "\x1b[1m.png", "\u00e9.png", "e\u0301.png")
    ]
    found = predicted(fsf, support, tmp_path / "new", method="ncc")
    assert {row["file"] for row in found["predictions"]} == set(map(str, queries))
    assert found["shot"] == 2, left
    assert any("2 beside" in note for note in found["notes"])
    dark = tmp_path / "new" / "dark.png"
    Image.fromarray(np.full((4, 4), 3000, np.uint16)).save(dark)
    done = fsf("predict", dark, "--support", support, "--method", "ncc", "--image-size", str(SIZE))
    assert done.returncode == 2
    assert "dark.png" in done.stderr
    assert "pixel_range" not in done.stderr


@pytest.mark.parametrize("links", [("a/up",), ("a/up", "a/again", "b/up"), ("up",)])
def test_links_back_add_no_images(fsf: Fsf, tmp_path: Path, links: tuple[str, ...]) -> None:
    support = plain(tmp_path / "few", {"a": 2, "b": 2})
    for link in links:
        (support / link).symlink_to(support)
    found = predicted(fsf, support, support, method="ncc")
    assert (found["classes"], found["shot"], len(found["predictions"])) == (["a", "b"], 2, 4)


def test_python_takes_one_path_and_folders_around_the_classes(tmp_path: Path) -> None:
    support = plain(tmp_path / "few/outer/cat", {"day/1": 1, "day/2": 1, "night": 2})
    query = support / "day/1/0.png"
    found = predict(str(query), tmp_path / "few", method="ncc", image_size=SIZE, progress=False)
    assert (found.classes, found.shot, found.files) == (("day", "night"), 2, (query,))
    assert any(str(support) in note for note in found.notes)


def test_a_broken_image_ends_it_or_is_left_out(fsf: Fsf, tmp_path: Path) -> None:
    support = plain(tmp_path / "few", {"a": 3, "b": 3})
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no image")
    queries = (support / "a/0.png", bad, support / "b/0.png")
    done = fsf("predict", *queries, "--support", support)
    assert done.returncode == 2
    assert f"fsf: {bad}: not a readable image " in done.stderr
    assert "--broken skip" in done.stderr
    found = predicted(fsf, support, *queries, broken="skip")
    assert [Path(row["file"]).name for row in found["predictions"]] == ["0.png", "0.png"]
    assert classes(found) == ["a", "b"]
    assert len(found["broken"]) == 1
    (support / "a/1.png").write_bytes(b"no image")
    (support / "b/annexed.png").symlink_to("nowhere")
    os.mkfifo(support / "b/pipe.png")
    found = predicted(fsf, support, queries[0], broken="skip")
    assert (found["shot"], len(found["broken"])) == (2, 3)


def test_images_are_read_as_a_run_reads_them(fsf: Fsf, tmp_path: Path) -> None:
    """Turned by EXIF, transparent pixels over white."""
    support = plain(tmp_path / "few", {"red": 2, "green": 2, "blue": 2})
    Image.new("RGBA", (SIZE, SIZE), (255, 0, 0, 0)).save(tmp_path / "ghost.png")
    Image.new("RGB", (SIZE, SIZE), "white").save(tmp_path / "white.png")
    found = scores(predicted(fsf, support, "ghost.png", "white.png"))
    assert found[0] == found[1]
