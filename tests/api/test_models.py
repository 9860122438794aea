"""`fsf.evaluate`: runs, models of any backbone, callables of any framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

import fsframework as fsf
from fsf_methods.metric import ProtoNet
from fsframework.errors import DataError, OptionError, PluginError
from fsframework.interfaces import Dataset, FewShotMethod
from tests.toys import image_folder

PLANTED = {"name": "planted", "size": 32, "n_per_class": 40}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return fsf.dataset(PLANTED)


@pytest.fixture(scope="module")
def arms(data: Dataset) -> fsf.Arms:
    return fsf.draw("fewstab", fsf.pool(data), tasks=25, shot=2, queries=5)


def nearest(support: Any, labels: Any, query: Any) -> npt.NDArray[np.float64]:
    """Score by the distance to class means in pixels."""
    means = np.stack([support[labels == c].mean(axis=0).ravel() for c in np.unique(labels)])
    flat = query.reshape(len(query), -1).astype(float)
    return -((flat[:, None] - means[None]) ** 2).sum(axis=2)


def test_a_run_evaluated_again_answers_as_in_its_run(arms: fsf.Arms, data: Dataset) -> None:
    run = fsf.run(
        method="r2d2", dataset=PLANTED, shot=2, queries=5, tasks=25, progress=False,
        training={"epochs": 1, "steps": 4, "validation_tasks": 5},
    )  # fmt: skip
    assert run.tasks["biased"].digest == arms["biased"].digest
    found = fsf.evaluate(run, arms, data, progress=False)
    for arm in arms:
        assert np.array_equal(found[arm].predictions, run.outcomes[arm].predictions)
    assert fsf.estimate(found, ["acc", "wacc"]) == run.estimates


def test_a_callable_sees_one_task_a_call_and_never_a_query_s_place(
    arms: fsf.Arms, data: Dataset
) -> None:
    seen: list[tuple[Any, ...]] = []

    def watching(support: Any, labels: Any, query: Any) -> Any:
        seen.append((support.shape, support.dtype, tuple(labels), query.shape))
        return nearest(support, labels, query)

    found = fsf.evaluate(watching, arms, data, progress=False)
    assert seen[0] == ((10, 32, 32, 3), np.uint8, (0, 0, 1, 1, 2, 2, 3, 3, 4, 4), (25, 32, 32, 3))
    assert len(seen) == 50
    assert found["random"].task_accuracy.mean() > 0.3
    first = lambda support, labels, query: np.eye(5)[np.arange(25) // 5]  # noqa: E731
    placed = fsf.evaluate(first, arms, data, progress=False)
    # Answers by place are right by chance only.
    assert placed["random"].task_accuracy.mean() < 0.4
    assert list(fsf.estimate(found, "wacc")) == ["wacc-random", "wacc-biased", "wacc-gap"]


def test_a_module_under_ncc_equals_the_same_computed_by_hand(arms: fsf.Arms, data: Dataset) -> None:
    pixels = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten())
    model = fsf.model("ncc", backbone=pixels, image_size=32, device="cpu")
    found = fsf.evaluate(model, arms, data, progress=False)

    def by_hand(support: Any, labels: Any, query: Any) -> Any:
        return model.scores(support, labels, query)

    again = fsf.evaluate(by_hand, arms, data, progress=False)
    for arm in arms:
        assert np.array_equal(found[arm].predictions, again[arm].predictions)
    assert model.embed(np.zeros((2, 40, 40, 3), np.uint8)).shape == (2, 48)


def test_a_pipeline_of_scikit_learn_on_a_folder(tmp_path: Path) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = fsf.dataset(f"folder:{image_folder(tmp_path / 'images', 'abcdef', 12)}")
    arms = fsf.draw("random", fsf.pool(data, split="all"), tasks=10, way=3, shot=3, queries=4)

    def logistic(support: Any, labels: Any, query: Any) -> Any:
        pipeline = make_pipeline(StandardScaler(), LogisticRegression())
        pipeline.fit(support.reshape(len(support), -1), labels)
        return pipeline.predict_proba(query.reshape(len(query), -1))

    outcomes = fsf.evaluate(logistic, arms, data, image_size=16, progress=False)
    assert fsf.estimate(outcomes, "acc")["acc-random"].value > 0.9


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.zeros((25, 4)), r"task 0: the model returned scores of shape \(25, 4\)"),
        (np.full((25, 5), np.nan), "the model's scores must be finite real numbers"),
        (np.zeros((25, 5), complex), "the model's scores must be finite real numbers"),
        ("right", "scores of shape"),
    ],
)
def test_scores_that_are_not_scores_are_refused(
    arms: fsf.Arms, data: Dataset, scores: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        fsf.evaluate(lambda *_: scores, arms, data, progress=False)


def test_tasks_of_a_pool_of_one_s_own_are_found_by_their_keys(data: Dataset) -> None:
    whole = fsf.pool(data, split="all")
    keep = np.flatnonzero(whole.labels < 8)[::-1]
    pool = fsf.ImagePool(
        tuple(whole.keys[i] for i in keep), whole.labels[keep], whole.class_names[:8]
    )
    arms = fsf.draw("random", pool, tasks=10, shot=1, queries=3)
    found = fsf.evaluate(nearest, arms, data, pool=pool, progress=False)
    assert found["random"].task_accuracy.mean() > 0.25


def test_what_does_not_fit_says_what_it_needs(arms: fsf.Arms, data: Dataset) -> None:
    other = fsf.dataset({**PLANTED, "n_per_class": 30})
    with pytest.raises(DataError, match="the tasks were not drawn from a split of these data"):
        fsf.evaluate(nearest, arms, other, progress=False)
    with pytest.raises(OptionError, match="ProtoNet needs a backbone: give fsframework.model"):
        fsf.evaluate(ProtoNet(), arms, data, progress=False)


class Broken(FewShotMethod):
    """Return what is not a number for the first query."""

    def scores(self, support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        found = -torch.cdist(query, support.mean(dim=2))
        found[:, 0, 0] = torch.nan
        return found


class Transposed(FewShotMethod):
    """Return a row per class, not a column."""

    def scores(self, support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        return -torch.cdist(support.mean(dim=2), query)


def average(method: Any) -> fsf.Model:
    pixels = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten())
    return fsf.model(method, backbone=pixels, image_size=16, device="cpu")


def test_a_model_scores_images() -> None:
    images = np.random.default_rng(0).integers(0, 256, (10, 16, 16, 3), dtype=np.uint8)
    support, query = images[:6], images[6:]
    model = average("logistic")
    expected = model.scores(support, [0, 0, 1, 1, 2, 2], query)
    shown = model.embed(support)
    found = model.embedded_scores(shown.reshape(3, 2, *shown.shape[1:]), model.embed(query))
    assert found.shape == (4, 3)
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(DataError, match="each equally often"):
        model.scores(support[:3], [0, 0, 1], query)
    assert model.scores(support[:3], [2, 0, 1], query).shape == (4, 3)
    assert torch.is_grad_enabled()
    for method, said in (
        (Broken(), r"shape \(1, 4, 3\) on cpu, 1 of them not finite"),
        (Transposed(), r"shape \(1, 3, 4\) on cpu; .* of shape \(1, 4, 3\)"),
    ):
        with pytest.raises(PluginError, match=said):
            average(method).scores(support[:3], [0, 1, 2], query)


def test_a_model_says_which_of_its_weights_are_trained() -> None:
    untrained = fsf.model("ncc", backbone="conv64f", image_size=16, device="cpu")
    assert (untrained.trained, untrained.backbone, untrained.source) == ("nothing", "conv64f", None)
    assert average("ncc").trained == "all"
    assert average("r2d2").trained == "backbone"
