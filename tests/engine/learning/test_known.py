"""What methods are told besides images: class names and words, own or as a control."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import fsframework as fsf
from fsframework.errors import DataError, FsfError, OptionError
from fsframework.interfaces import (
    Backbone,
    Batch,
    FewShotMethod,
    Known,
    MethodWrapper,
    Preprocessing,
)
from fsframework.values import UInt8Array
from tests.toys import Blobs, Prototypes, TinyBackbone, run


def colour(name: str) -> Tensor:
    """Return the colour of a class of ``Blobs``; of another name, that of no class."""
    if not re.fullmatch(r"c\d\d", name):
        return torch.tensor([len(name), *name.encode()[:2]]) / 1000
    return torch.from_numpy(np.random.default_rng([1, int(name[1:])]).integers(40, 216, 3) / 255)


class Reader(Backbone):
    """The mean colour of an image; the colour of the class that a text names."""

    keeps_weights = True
    reads_text = True
    preprocessing = Preprocessing(size=16, mean=(0, 0, 0), std=(1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        return images.mean(dim=(2, 3), keepdim=True)

    def text_features(self, texts: Sequence[str]) -> Tensor:
        return torch.stack([colour(text) for text in texts]).float()


class Noting(Reader):
    """Takes down what it reads."""

    read: ClassVar[list[Sequence[str]]] = []

    def text_features(self, texts: Sequence[str]) -> Tensor:
        self.read.append(texts)
        return super().text_features(texts)


class ByName(FewShotMethod):
    """Gives a query to the name that is nearest, and looks at no support."""

    learns_from = "nothing"
    weightless = True
    needs_class_names = True

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        raise OptionError("ByName scores with names only")

    def scores_with(self, support: Tensor, query: Tensor, known: Known) -> Tensor:
        assert known.names is not None
        assert known.words is None
        return -torch.cdist(query, known.names)

    @property
    def usage(self) -> Mapping[str, float]:
        return {"requests": 2, "cost": 0.25}


class OwnNames(ByName):
    """Reads names itself."""

    def embed_names(self, names: Sequence[str]) -> Tensor:
        return torch.stack([colour(name) for name in names]).double()


class ByWord(FewShotMethod):
    """Gives every query to the way with the most supports that are odd."""

    learns_from = "nothing"
    weightless = True
    needs_words = True

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        raise OptionError("ByWord scores with words only")

    def scores_with(self, support: Tensor, query: Tensor, known: Known) -> Tensor:
        assert known.names is None
        assert known.words is not None
        assert known.word_vectors is not None
        assert known.word_vectors.shape == (2, 0)
        odd = known.words[..., 1].float().mean(dim=2)
        return odd[:, None].expand(-1, query.shape[1], -1)


class ByText(ByWord):
    """Has the text tower read words."""

    needs_text = True


class Around(MethodWrapper):
    """Does as its base does."""


TOLD = {"backbone": Reader, "method": ByName, "tasks": 20}


def accuracy(found: fsf.Run) -> float:
    return found.estimates["acc-random"].value


def test_names_are_embedded_once_and_reach_each_way() -> None:
    Noting.read.clear()
    run(**{**TOLD, "backbone": Noting, "tasks": 300})
    assert Noting.read == [("c09", "c10", "c11")]
    found = run(**TOLD)
    assert accuracy(found) == 1
    assert found.record.class_names == {name: name for name in ("c09", "c10", "c11")}
    assert found.record.usage == {"requests": 2, "cost": 0.25}
    assert run(**TOLD).reused


def test_a_method_may_read_names_itself() -> None:
    assert accuracy(run(**{**TOLD, "method": OwnNames, "seed": 1})) == 1


def test_other_names_are_another_run_that_says_so() -> None:
    own, shuffled, random = (
        run(**TOLD, class_names=choice) for choice in ("own", "shuffled", "random")
    )
    assert len({one.folder for one in (own, shuffled, random)}) == 3
    assert accuracy(shuffled) == 0
    assert accuracy(random) < 0.7
    told = shuffled.record.class_names
    assert sorted(told) == sorted(told.values())
    assert all(name != own_name for own_name, name in told.items())
    made = random.record.class_names.values()
    assert len(set(made)) == 3
    assert all(re.fullmatch("([b-z][aeiou]){4}", name) for name in made)
    assert [note for note in own.notes if "told" in note] == []
    for one in (shuffled, random):
        assert len([note for note in one.notes if "told" in note]) == 1
    assert run(**TOLD, class_names="random", seed=1).record.class_names.values() != made


def test_names_of_a_file_stand_for_the_classes(tmp_path: Path) -> None:
    file = tmp_path / "names.csv"
    file.write_text("name,class\nc10,c09\nc09,c10\nc11,c11\nunused,c00\n")
    found = run(**TOLD, class_names=str(file))
    assert found.record.class_names == {"c09": "c10", "c10": "c09", "c11": "c11"}
    assert accuracy(found) == pytest.approx(1 / 3)
    file.write_text("class,name\nc09,c09\nc10,c10\nc11,c11\n")
    assert accuracy(run(**TOLD, class_names=str(file))) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, r"no such file"),
        ("class\nc09\n", r"row 1 .*class and name"),
        ("class,name\nc09,a\nc10,b\n", r"'c11'.*3 classes"),
        ("class,name\nc09,a\nc12,b\n", r"row 3 .*'c12'"),
        ("class,name\nc09,a\nc09,b\n", r"row 3 repeats .*'c09'"),
        ("class,name\nc09,\nc10,b\n", r"row 2 .*name.*'c09'"),
    ],
)
def test_a_wrong_file_of_names_is_refused(text: str | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "names.csv"
    if text is not None:
        file.write_text(text)
    with pytest.raises(DataError, match=said) as caught:
        run(**TOLD, class_names=str(file))
    assert "names.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": Prototypes, "class_names": "random"}, r"class_names.*never sees a class name"),
        ({"class_names": "shufled"}, r"'shufled'.*did you mean 'shuffled'"),
        ({"backbone": TinyBackbone}, r"by-name needs.*tiny-backbone reads none.*clip:MODEL"),
        ({"backbone": TinyBackbone, "method": ByText}, r"by-text needs.*tiny-backbone.*clip:MODEL"),
        ({"backbone": TinyBackbone, "method": Around(base=ByText())}, r"around:by-text needs"),
    ],
)
def test_what_cannot_be_told_is_refused_before_anything_is_read(
    options: dict[str, object], said: str
) -> None:
    Blobs.image, kept = None, Blobs.image  # type: ignore[assignment, method-assign]
    try:
        with pytest.raises(OptionError, match=said):
            run(**{**TOLD, **options})
    finally:
        Blobs.image = kept  # type: ignore[method-assign]


def test_words_of_the_support_reach_a_method_that_needs_them() -> None:
    found = run(**{**TOLD, "method": ByWord, "tasks": 30, "shot": 3})
    tasks, pool = found.tasks["random"], found.pool
    odd = pool.attributes.rows(tasks.support)[..., 1].mean(axis=2)
    answers = found.outcomes["random"].predictions
    assert (answers == odd.argmax(axis=1)[:, None, None]).all()


class Wordless(Blobs):
    """Blobs of which nothing is known."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = {}


def test_a_method_that_needs_words_is_refused_without() -> None:
    with pytest.raises(OptionError, match=r"by-word needs the words of the support.*detector"):
        run(**{**TOLD, "method": ByWord, "dataset": Wordless})


class Lit(Blobs):
    """Odd images are white, even ones black."""

    def image(self, index: int) -> UInt8Array:
        return np.full((16, 16, 3), 255 * (index % 2), np.uint8)


class LearnsWords(Prototypes):
    """Learns, and sees that the words of each image are those of its pixels."""

    needs_words = True
    seen: ClassVar[list[tuple[str, ...]]] = []

    def __init__(self, *, learns: str = "both") -> None:
        super().__init__()
        self.learns = learns
        self.learns_from = learns  # type: ignore[assignment]

    def loss(self, batch: Batch) -> Tensor:
        pairs = {
            "words": (batch.words, batch.items),
            "support_words": (batch.support_words, batch.support),
            "query_words": (batch.query_words, batch.query),
        }
        for words, items in pairs.values():
            if words is None:
                continue
            assert items is not None
            assert words.dtype == torch.bool
            assert torch.equal(words[..., 1], items.mean(dim=-1) > 0.5)
            assert torch.equal(words[..., 0], ~words[..., 1])
        self.seen.append(tuple(name for name, (words, _) in pairs.items() if words is not None))
        return self.scale**2

    def scores_with(self, support: Tensor, query: Tensor, known: Known) -> Tensor:
        assert known.words is not None
        assert known.words.shape == (*support.shape[:3], 2)
        return self.scores(support, query)


@pytest.mark.parametrize(
    ("learns", "fields"),
    [
        ("batches", ("words",)),
        ("episodes", ("support_words", "query_words")),
        ("both", ("words", "support_words", "query_words")),
    ],
)
def test_words_of_training_images(learns: str, fields: tuple[str, ...]) -> None:
    LearnsWords.seen.clear()
    training = {"epochs": 1, "steps": 2, "n_query": 2, "validation_tasks": 4}
    method = {"name": LearnsWords, "learns": learns}
    found = run(method=method, backbone=Reader, dataset=Lit, training=training)
    assert set(LearnsWords.seen) == {fields}
    assert found.record.training.best_validation_accuracy is not None


def test_validation_is_told_names_too() -> None:
    class Learns(Prototypes):
        """Learns nothing of use, and is validated by names."""

        needs_class_names = True

        def scores_with(self, support: Tensor, query: Tensor, known: Known) -> Tensor:
            return -torch.cdist(query, known.names)

    training = {"epochs": 1, "steps": 2, "n_query": 2, "validation_tasks": 4}
    for names, expected in (("own", 1), ("shuffled", 0)):
        found = run(method=Learns, backbone=Reader, training=training, class_names=names)
        assert found.record.training.best_validation_accuracy == expected


def test_a_model_outside_of_runs_is_told_names(monkeypatch: pytest.MonkeyPatch) -> None:
    data = fsf.dataset(Blobs)
    pool = fsf.pool(data, split="test", attributes="column:words")
    arms = fsf.draw("random", pool, tasks=10, way=3, shot=2, queries=4)
    model = fsf.model(ByName, backbone=Reader, device="cpu")
    assert (
        fsf.estimate(fsf.evaluate(model, arms, data, progress=False), "acc")["acc-random"].value
        == 1
    )
    shuffled = run(**TOLD, class_names="shuffled")
    # The classes of this file are not installed, so that a run's model cannot be opened.
    monkeypatch.setattr(fsf.Run, "model", lambda *_, **__: model)
    outcomes = fsf.evaluate(shuffled, shuffled.tasks, data, progress=False)["random"]
    assert np.array_equal(outcomes.predictions, shuffled.outcomes["random"].predictions)
    by_word = fsf.model(ByWord, backbone=Reader, device="cpu")
    fsf.evaluate(by_word, arms, data, pool=pool, progress=False)
    with pytest.raises(FsfError, match="needs the words"):
        fsf.evaluate(by_word, arms, data, progress=False)
    images = np.stack([data.image(i) for i in (180, 200, 220)])
    scores = model.scores(images, [0, 1, 2], images, names=["c09", "c10", "c11"])
    assert scores.argmax(axis=1).tolist() == [0, 1, 2]
    for refused in (model, by_word):
        with pytest.raises(OptionError, match="needs the"):
            refused.scores(images, [0, 1, 2], images)
    with pytest.raises(OptionError, match="reads text, and .* reads none"):
        fsf.model(ByName, backbone=TinyBackbone, device="cpu")
