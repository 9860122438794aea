"""Failing slices in worlds whose truth is known, and of a run."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fsf_statistics
import fsframework as fsf
from fsf_statistics import Slices, slices
from fsframework.errors import DataError, OptionError
from fsframework.values import (
    ArmOutcomes,
    Arms,
    AttributeTable,
    BoolArray,
    FloatArray,
    ImagePool,
    Outcomes,
    TaskSet,
)
from tests.conftest import Fsf

N_CLASSES, N_IMAGES, N_QUERIES = 4, 60, 6


def world(
    seed: int = 0, *, wrong: float = 0.1, in_fog: float = 0.1, hard: float = 0.1
) -> tuple[ArmOutcomes, ImagePool, FloatArray, BoolArray]:
    """Answers to images of four classes, a quarter of which is apart in the embedding: in fog.

    Args:
        wrong: share of wrong answers; ``in_fog`` that to images in fog, and ``hard`` that to a
            fifth of the images, which are anywhere in the embedding.
    """
    rng = np.random.default_rng(seed)
    keys = tuple(f"{i:03}" for i in range(N_CLASSES * N_IMAGES))
    labels = np.repeat(np.arange(N_CLASSES), N_IMAGES)
    fog, is_hard = rng.random(len(keys)) < 0.25, rng.random(len(keys)) < 0.2
    z = rng.normal(size=(len(keys), 6))
    z[:, :N_CLASSES] += 6 * np.eye(N_CLASSES)[labels]
    z[:, -1] += 6 * fog
    table = AttributeTable.from_words(keys, [{"fog"} if one else {"sun"} for one in fog])
    pool = ImagePool(keys, labels, tuple("abcd"), {}, table)
    classes = np.stack([rng.permutation(N_CLASSES)[:2] for _ in range(200)])
    images = np.stack(
        [
            [rng.choice(pool.members(c), 1 + N_QUERIES, replace=False) for c in row]
            for row in classes
        ]
    )
    support, query = images[:, :, :1], images[:, :, 1:]
    tasks = TaskSet.of(pool, classes, support, query, sampler="toy", options={}, seed=seed)
    chance = np.where(is_hard, hard, np.where(fog, in_fog, wrong))[query]
    answers = (np.arange(2)[:, None] + (rng.random(query.shape) < chance)) % 2
    arms = Arms({"random": tasks})
    return ArmOutcomes({"random": Outcomes.of(tasks, answers)}, arms), pool, z, fog


def found_in(made: tuple[ArmOutcomes, ImagePool, FloatArray, BoolArray], **options: Any) -> Slices:
    outcomes, pool, z, _ = made
    return slices(outcomes, pool=pool, embeddings=z, **{"count": 12, **options})


def test_a_planted_slice_is_found_and_described() -> None:
    made = world(in_fog=0.7)
    found = found_in(made)
    assert len(found) >= 2
    keys = np.array(made[1].keys)
    reported = np.isin(keys, [key for row in found.rows for key in row.images])
    fog = made[3]
    assert fog[reported].mean() > 0.9
    assert reported[fog].mean() > 0.5
    for row in found.rows:
        assert sum(row.classes.values()) == len(row.images)
        assert row.estimate.low < row.estimate.value < row.estimate.high
        assert [word.word for word in row.words] == ["fog"]
        assert row.words[0].share > 0.9
        assert 0.1 < row.words[0].usual < 0.4
        assert row.p <= 0.05
    excesses = [row.estimate.value for row in found.rows]
    assert excesses == sorted(excesses, reverse=True)


def test_the_excess_is_the_difference_from_the_rest_of_the_class_in_the_same_task() -> None:
    """Images in fog are always wrong and others never, and nothing else tells images apart."""
    outcomes, pool, _, _ = world(wrong=0.0, in_fog=1.0, hard=0.0)
    is_hard = np.zeros(len(pool), bool)
    right = outcomes["random"].predictions == np.arange(2)[:, None]
    is_hard[outcomes.arms["random"].query[~right]] = True
    apart = np.eye(N_CLASSES)[pool.labels] * 50 + 20.0 * is_hard[:, None]
    found = slices(outcomes, pool=pool, embeddings=apart, count=2 * N_CLASSES)
    assert len(found) >= 2
    assert [row.estimate.value for row in found.rows] == pytest.approx([1.0] * len(found))
    assert [row.wrong for row in found.rows] == [1.0] * len(found)


def test_nothing_is_reported_where_nothing_fails() -> None:
    """Not if all images are alike, nor if some are hard that are anywhere in the embedding."""
    reports = [len(found_in(world(seed), seed=seed)) for seed in range(6)]
    reports += [len(found_in(world(seed, hard=0.9), seed=seed)) for seed in range(6)]
    assert sum(count > 0 for count in reports) <= 1


def test_the_same_seed_finds_the_same_slices() -> None:
    made = world(in_fog=0.7)
    one, other, another = (found_in(made, seed=seed).to_json() for seed in (3, 3, 4))
    assert one == other
    assert one != another


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 1}, "count must be at least 2, not 1"),
        ({"weight": -1.0}, r"weight must be at least 0, not -1\.0"),
        ({"level": 1.0}, "level must lie between 0 and 1"),
        ({"arm": "randon"}, "must be random .did you mean"),
        ({"embeddings": None}, "outcomes have no features: give embeddings"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    outcomes, pool, z, _ = world()
    with pytest.raises(OptionError, match=message):
        slices(outcomes, pool=pool, **{"embeddings": z, **options})


def test_too_little_to_look_at() -> None:
    outcomes, pool, z, _ = world()
    with pytest.raises(DataError, match="200 slices need at least 400 images .*, there are 120"):
        slices(outcomes, pool=pool, embeddings=z, count=200)
    with pytest.raises(DataError, match=r"a row per image, not \(239, 6\)"):
        slices(outcomes, pool=pool, embeddings=z[1:])
    with pytest.raises(DataError, match="these are all equal"):
        slices(outcomes, pool=pool, embeddings=np.ones_like(z))


def test_wide_embeddings_give_the_same_slices_as_their_narrow_equals() -> None:
    """More dimensions than images, of which only as many vary as before."""
    outcomes, pool, z, _ = world(in_fog=0.7)
    turn, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(400, 6)))
    one, other = (slices(outcomes, pool=pool, embeddings=e, count=12) for e in (z, z @ turn.T))
    reported = [{key for row in found.rows for key in row.images} for found in (one, other)]
    assert len(reported[0] & reported[1]) > 0.9 * len(reported[0] | reported[1]) > 0


def test_a_run_is_embedded_by_its_own_model(run: fsf.Run) -> None:
    images = run.images(range(len(run.pool)))
    features = run.model().embed(np.stack([images[i] for i in range(len(run.pool))]))
    own = slices(run, count=8).to_json()
    assert own == slices(run.outcomes, count=8, pool=run.pool, embeddings=features).to_json()


def test_the_command_prints_and_writes_what_the_function_returns(
    fsf: Fsf, run: fsf.Run, tmp_path: Path
) -> None:
    expected = fsf_statistics.slices(run, count=8, weight=2.0).to_json()
    asked = ("slices", run.folder, "--count", "8", "--weight", "2")
    shown = fsf(*asked, "--json", "--output", "slices.csv")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout) == json.loads(json.dumps(expected))
    rows = [*csv.DictReader((tmp_path / "slices.csv").read_text("utf-8").splitlines())]
    reported = [row for row in expected["rows"] if row["reported"]]
    assert len(rows) == sum(len(row["images"]) for row in reported)
    again = fsf(*asked, "--output", "slices.csv")
    assert again.returncode == 2
    assert "slices.csv" in again.stderr
