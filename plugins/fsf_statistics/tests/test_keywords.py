"""Keywords of wrongly answered images: by hand, in worlds whose truth is known, and of a run."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fsf_statistics
import fsframework as fsf
from fsf_statistics import Keywords, keywords
from fsframework.errors import DataError, OptionError
from fsframework.interfaces import AttributeDetector, ImageTextModel
from fsframework.values import (
    ArmOutcomes,
    Arms,
    AttributeTable,
    FloatArray,
    ImagePool,
    Outcomes,
    TaskSet,
)
from tests.conftest import Fsf

WORDS = ("bush", "grass", "lake", "sand", "sofa")


def world(seed: int, costs: dict[tuple[str, str], float]) -> tuple[ArmOutcomes, ImagePool]:
    """Answers to images with five independent words; pairs of class and word cost what is given."""
    rng = np.random.default_rng(seed)
    keys, labels = tuple(f"{i:03}" for i in range(240)), np.repeat(np.arange(4), 60)
    has = rng.random((240, 5)) < 0.3
    table = AttributeTable.from_words(keys, [np.array(WORDS)[row] for row in has])
    pool = ImagePool(keys, labels, tuple("abcd"), {}, table)
    classes = np.stack([rng.permutation(4)[:2] for _ in range(150)])
    images = np.stack(
        [[rng.choice(pool.members(c), 6, replace=False) for c in row] for row in classes]
    )
    support, query = images[:, :, :1], images[:, :, 1:]
    tasks = TaskSet.of(pool, classes, support, query, sampler="toy", options={}, seed=seed)
    cost = np.zeros((4, 5))
    for (name, word), one in costs.items():
        cost["abcd".index(name), WORDS.index(word)] = one
    wrong = 0.15 + (has * cost[labels]).sum(axis=1)
    answers = (np.arange(2)[:, None] + (rng.random(query.shape) < wrong[query])) % 2
    return ArmOutcomes({"random": Outcomes.of(tasks, answers)}, Arms({"random": tasks})), pool


def found_in(seed: int, costs: dict[tuple[str, str], float]) -> Keywords:
    outcomes, pool = world(seed, costs)
    return keywords(outcomes, pool=pool)


def test_scores_are_differences_of_shares_and_their_odds() -> None:
    """Every answer counts once; the error is that of two ratios over images."""
    outcomes, pool = world(0, {("a", "lake"): 0.4})
    tasks, answers = outcomes.arms["random"], outcomes["random"]
    image, label = tasks.query.ravel(), np.repeat(tasks.classes.ravel(), tasks.n_query)
    wrong = (answers.predictions != np.arange(2)[:, None]).ravel()
    assert pool.attributes is not None
    found = keywords(outcomes, pool=pool)
    assert len(found.tested) == 20
    for row in found.tested[:3]:
        own = label == pool.class_names.index(row.class_name)
        has = pool.attributes.column(WORDS.index(row.word))[image]
        shares = has[own & wrong].mean(), has[own & ~wrong].mean()
        assert (row.wrong, row.right) == pytest.approx(shares)
        assert row.estimate.value == pytest.approx(shares[0] - shares[1])
        counts = [[(own & one & two).sum() + 0.5 for two in (has, ~has)] for one in (wrong, ~wrong)]
        odds = counts[0][0] * counts[1][1] / counts[0][1] / counts[1][0]
        assert row.log_odds == pytest.approx(np.log(odds))
        influence = np.zeros(len(pool))
        for part, share, sign in zip((wrong, ~wrong), shares, (1, -1), strict=True):
            np.add.at(
                influence, image[own & part], sign * (has[own & part] - share) / (own & part).sum()
            )
        n_images = len(np.unique(image[own]))
        error = np.sqrt((influence**2).sum() * n_images / (n_images - 1))
        half = row.estimate.high - row.estimate.value
        assert half == pytest.approx(1.96 * error, rel=0.05)


def test_words_that_cost_something_are_reported() -> None:
    costs = {("a", "lake"): 0.5, ("c", "sofa"): 0.5}
    found = found_in(1, costs)
    assert {row.names for row in found.rows} >= set(costs)
    assert len(found) <= 3
    assert found.rows[0].estimate.value >= found.rows[-1].estimate.value
    assert found.similarity == ""


def test_little_is_reported_where_nothing_costs_anything() -> None:
    assert sum(len(found_in(seed, {})) > 0 for seed in range(15)) <= 4


def test_captions_give_words_and_pairs_of_words() -> None:
    outcomes, pool = world(1, {("a", "lake"): 0.5})
    assert pool.attributes is not None
    captions = [f"A photo of {' and '.join(words)}." for words in pool.attributes.words_of_all()]
    told = dataclasses.replace(pool.attributes, captions=captions)
    found = keywords(outcomes, of="captions", pool=pool.with_attributes(told))
    assert ("a", "lake") in {row.names for row in found.rows}
    assert {"photo", "of lake", "and lake"} & {row.word for row in found.tested} >= {"and lake"}
    assert "photo" not in {row.word for row in found.tested}  # every image has it
    with pytest.raises(DataError, match="these images have no captions"):
        keywords(outcomes, of="captions", pool=pool)


class Colours(AttributeDetector, ImageTextModel):
    """Compares the mean colour of an image with that of a word."""

    def detect(self, images: Sequence[Any]) -> list[frozenset[str]]:
        return [frozenset() for _ in images]

    def image_features(self, images: Sequence[Any]) -> FloatArray:
        return np.stack([np.asarray(image, np.float32).mean(axis=(0, 1)) for image in images])

    def text_features(self, texts: Sequence[str]) -> FloatArray:
        return np.array([[len(text), text.count("s"), 1] for text in texts], np.float32)


def test_similarities_are_cosines_of_images_and_keywords(run: fsf.Run) -> None:
    found = keywords(run, similarity=Colours())
    assert found.similarity == "Colours"
    tasks, answers = run.tasks["random"], run.outcomes["random"]
    image, label = tasks.query.ravel(), np.repeat(tasks.classes.ravel(), tasks.n_query)
    wrong = (answers.predictions != np.arange(3)[:, None]).ravel()
    images, model, row = run.images(image), Colours(), found.tested[0]
    of_word = model.text_features([row.word])[0]
    of_image = model.image_features([images[int(i)] for i in image])
    lengths = np.linalg.norm(of_image, axis=1) * np.linalg.norm(of_word)
    cosine, own = of_image @ of_word / lengths, label == run.pool.class_names.index(row.class_name)
    means = cosine[own & wrong].mean(), cosine[own & ~wrong].mean()
    assert (row.wrong, row.right) == pytest.approx(means, abs=1e-5)
    assert row.log_odds is None


def test_the_command_prints_and_writes_what_the_function_returns(
    fsf: Fsf, run: fsf.Run, tmp_path: Path
) -> None:
    expected = fsf_statistics.keywords(run, "biased").to_json()
    shown = fsf("keywords", run.folder, "--arm", "biased", "--json", "--output", "pairs.csv")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout) == json.loads(json.dumps(expected))
    rows = [*csv.DictReader((tmp_path / "pairs.csv").read_text("utf-8").splitlines())]
    assert [float(row["score"]) for row in rows] == [
        row["estimate"]["value"] for row in expected["rows"]
    ]
    refused = fsf("keywords", run.folder, "--similarity", "appearance")
    assert refused.returncode == 2
    assert "must be a detector that embeds images and texts" in refused.stderr


def test_options_out_of_range() -> None:
    outcomes, pool = world(0, {})
    with pytest.raises(OptionError, match="must be words or captions"):
        keywords(outcomes, of="text", pool=pool)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="wrong must lie between 0 and 1"):
        keywords(outcomes, wrong=1.0, pool=pool)
    with pytest.raises(OptionError, match="outcomes have no images to compare"):
        keywords(outcomes, similarity=Colours(), pool=pool)
