"""Predicting a user's own images: what run would predict, from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fsf_prediction.files import SupportFiles, find_queries, find_support
from fsf_prediction.prediction import MOST_DRAWS, Predictions, draws_of, predict_files
from fsframework.components.options import Given
from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.engine.learning.evaluation import ImageSource, predict
from fsframework.engine.learning.model import build_model
from fsframework.engine.progress import Reporter
from fsframework.engine.session import Session, Workspace
from fsframework.errors import DataError, FsfError
from fsframework.interfaces.dataset import Dataset
from fsframework.values import TaskSet

SIZE = 24
REGISTRY = Registry()
SESSION = Session(REGISTRY, Workspace.default(), Reporter())


def given(**options: object) -> dict[str, Given]:
    return {key: Given(value, "command line") for key, value in options.items()}


def predicted(support: Path, queries: Sequence[str], **options: object) -> Predictions:
    tree = {"image_size": Given(SIZE, "command line"), **given(**options)}
    return predict_files(tree, SESSION, find_support(support), find_queries(queries))


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
    options = {"name": "planted", "size": SIZE, "n_per_class": 8}
    made: Dataset = resolve_component(REGISTRY, "dataset", options).create()
    return made


@pytest.fixture(scope="module")
def task(data: Dataset) -> TaskSet:
    options = {"name": "random", "n_way": 4, "n_shot": 3, "n_query": 4}
    drawn: TaskSet = resolve_component(REGISTRY, "sampler", options).create().draw(
        data.pool("test"), 1, 0
    )  # fmt: skip
    return drawn


@pytest.mark.parametrize(
    "method", ["protonet", "dn4", "r2d2", "logistic", "baseline", "maml", "ncc"]
)
def test_it_predicts_what_a_run_predicts(
    tmp_path: Path, data: Dataset, task: TaskSet, method: str
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
    component = resolve_component(REGISTRY, "method", options)
    model = build_model(resolve_component(REGISTRY, "backbone", "conv64f"), component, SIZE, 0, 0)
    expected = predict(model, task, ImageSource.computed(model, pixels, task))[0].ravel()
    queries = [str(files[i]) for i in task.query[0].ravel()]
    found = predicted(tmp_path / "support", queries, method=method)
    assert found.predicted == tuple(f"way{way}" for way in expected)
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1)
    again = predicted(tmp_path / "support", queries, method=method)
    np.testing.assert_array_equal(found.probabilities, again.probabilities)


def test_one_query_s_scores_do_not_depend_on_the_others(tmp_path: Path) -> None:
    support = plain(tmp_path / "few", {"a": 3, "b": 3})
    both = predicted(support, [str(support / "a/0.png"), str(support / "b/1.png")])
    alone = predicted(support, [str(support / "b/1.png")])
    np.testing.assert_allclose(both.probabilities[1], alone.probabilities[0], atol=1e-6)


def test_unequal_classes_are_drawn_from(tmp_path: Path) -> None:
    support = plain(tmp_path / "few", {"red": 2, "green": 5, "blue": 3})
    found = predicted(support, [str(support)])
    assert (found.shot, found.draws) == (2, 3)
    assert found.predicted == ("blue",) * 3 + ("green",) * 5 + ("red",) * 2
    assert any("classes have 2 ('red') to 5 ('green') images" in note for note in found.notes)
    assert any(
        "queries that are also support images, so their class was given: 10" in note
        for note in found.notes
    )


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


def test_classes_are_sub_folders(tmp_path: Path) -> None:
    root = plain(tmp_path / "archive/inner", {"Zürich": 1, "cat10": 1, "cat2": 2})
    save(np.zeros((4, 4, 3)), root / "cat2/deep/er/0.PNG")
    save(np.zeros((4, 4, 3)), root / "loose.png")
    (root / ".hidden").mkdir()
    (root / "cat2/notes.txt").write_text("no image")
    found = find_support(tmp_path / "archive")
    assert list(found.classes) == ["Zürich", "cat2", "cat10"]
    assert len(found.classes["cat2"]) == 3
    assert found.loose == 1


def test_a_support_that_is_not_one(tmp_path: Path) -> None:
    for folder, part in (("nowhere", "no such folder"), ("one", "at least two classes")):
        plain(tmp_path / "one", {"cat": 1})
        with pytest.raises(DataError, match=part):
            find_support(tmp_path / folder)
    plain(tmp_path / "empty", {"cat": 1})
    (tmp_path / "empty/dog").mkdir()
    with pytest.raises(DataError, match="no image in 'dog'"):
        find_support(tmp_path / "empty")


def test_queries_are_files_folders_and_patterns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = plain(tmp_path / "new", {"x": 11, "y": 1})
    monkeypatch.chdir(tmp_path)
    names = [str(f) for f in find_queries(["new/x/1*.png", "new/y", str(root / "x/1.png")])]
    assert names == ["new/x/1.png", "new/x/10.png", "new/y/0.png"], "each once"
    assert find_queries([str(root / "x/*0.png")]) == (root / "x/0.png", root / "x/10.png")
    for wrong in ("nothing.png", "new/z*.png", str(tmp_path / "q*/x.png")):
        with pytest.raises(DataError, match="no such file"):
            find_queries([wrong])
    (tmp_path / "bare").mkdir()
    with pytest.raises(DataError, match="no image in this folder"):
        find_queries(["bare"])
    with pytest.raises(FsfError, match="name the images to classify"):
        find_queries([])


def test_a_broken_image_ends_it_or_is_left_out(tmp_path: Path) -> None:
    support = plain(tmp_path / "few", {"a": 3, "b": 3})
    (tmp_path / "bad.jpg").write_bytes(b"no image")
    queries = [str(support / "a/0.png"), str(tmp_path / "bad.jpg"), str(support / "b/0.png")]
    with pytest.raises(
        DataError, match=rf"^{tmp_path}/bad.jpg: not a readable image .*--broken skip"
    ):
        predicted(support, queries)
    found = predicted(support, queries, broken="skip")
    assert [file.name for file in found.files] == ["0.png", "0.png"]
    assert found.predicted == ("a", "b")
    assert len(found.broken) == 1
    (support / "a/1.png").write_bytes(b"no image")
    found = predicted(support, queries[:1], broken="skip")
    assert (found.shot, len(found.broken)) == (2, 1)


def test_images_are_read_as_a_run_reads_them(tmp_path: Path) -> None:
    """Turned by EXIF, transparent pixels over white."""
    support = plain(tmp_path / "few", {"red": 2, "green": 2, "blue": 2})
    ghost = Image.new("RGBA", (SIZE, SIZE), (255, 0, 0, 0))
    ghost.save(tmp_path / "ghost.png")
    Image.new("RGB", (SIZE, SIZE), "white").save(tmp_path / "white.png")
    found = predicted(support, [str(tmp_path / "ghost.png"), str(tmp_path / "white.png")])
    np.testing.assert_array_equal(found.probabilities[0], found.probabilities[1])


def test_options_that_do_not_apply(tmp_path: Path) -> None:
    support = SupportFiles({"a": (Path("a"),), "b": (Path("b"),)})
    for tree, part in (
        (given(tasks=3), "tasks does not apply to a prediction"),
        (given(dataset="planted"), "dataset does not apply"),
        ({"training": given(epochs=3)}, "trains nothing"),
    ):
        with pytest.raises(FsfError, match=part):
            predict_files(tree, SESSION, support, [Path("q")])


def test_a_note_says_what_the_weights_are(tmp_path: Path) -> None:
    support = plain(tmp_path / "few", {"a": 1, "b": 1})
    (note,) = predicted(support, [str(support / "a")]).notes[:1]
    assert "conv64f has random weights" in note
    notes = predicted(support, [str(support / "a")], method="maml").notes
    assert any("all queries together" in note for note in notes)
