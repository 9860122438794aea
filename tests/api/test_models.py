"""`fsf.evaluate`: runs, models of any backbone, callables of any framework."""

from __future__ import annotations

import re
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


@pytest.mark.parametrize(("how", "queries"), [("task", 25), ("class", 5)])
def test_a_callable_sees_one_task_a_call_and_never_a_query_s_place(
    arms: fsf.Arms, data: Dataset, how: Any, queries: int
) -> None:
    seen: set[tuple[Any, ...]] = set()

    def watching(support: Any, labels: Any, query: Any) -> Any:
        seen.add((support.shape, support.dtype, labels.dtype, tuple(labels), query.shape))
        return nearest(support, labels, query)

    def first(support: Any, labels: Any, query: Any) -> Any:
        return np.eye(5)[np.arange(len(query)) * 5 // len(query)]

    found = fsf.evaluate(watching, arms, data, query_batch=how, progress=False)
    labels = tuple(np.arange(5).repeat(2))
    sizes = (10, 32, 32, 3), np.dtype(np.uint8), np.dtype(np.int64), labels, (queries, 32, 32, 3)
    assert seen == {sizes}
    assert found["random"].query_batch == how
    assert found["random"].task_accuracy.mean() > 0.3
    with pytest.raises(PluginError, match="'first': scores .* another order"):
        fsf.evaluate(first, arms, data, query_batch=how, progress=False)
    first.transductive = True  # type: ignore[attr-defined]
    placed = fsf.evaluate(first, arms, data, query_batch=how, progress=False)
    # Answers by place are right by chance only.
    assert placed["random"].task_accuracy.mean() < 0.4
    assert list(fsf.estimate(found, "wacc")) == ["wacc-random", "wacc-biased", "wacc-gap"]


@pytest.mark.parametrize("how", ["task", "class"])
def test_a_module_under_ncc_equals_the_same_computed_by_hand(
    arms: fsf.Arms, data: Dataset, how: Any
) -> None:
    pixels = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten())
    model = fsf.model("ncc", backbone=pixels, image_size=32, device="cpu")
    found = fsf.evaluate(model, arms, data, query_batch=how, progress=False)

    def by_hand(support: Any, labels: Any, query: Any) -> Any:
        return model.scores(support, labels, query)

    again = fsf.evaluate(by_hand, arms, data, query_batch=how, progress=False)
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


def ranks(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    return scores.argsort(axis=1).argsort(axis=1)


@pytest.mark.parametrize(
    "form",
    [
        lambda s: ranks(s).astype(np.uint64) + np.uint64(2**63),
        lambda s: ranks(s) + 2**62,
        lambda s: 1 + ranks(s) * np.finfo(np.longdouble).eps,
        lambda s: (ranks(s) * 1e-3).astype(">f2"),
        lambda s: [tuple(row) for row in s],
        lambda s: torch.tensor(ranks(s)).bfloat16(),
        lambda s: torch.tensor(ranks(s)).to(torch.uint64),
        lambda s: torch.tensor(s, requires_grad=True) * 1,
        lambda s: torch.complex(torch.tensor(s), torch.tensor(-s)).conj().imag,
    ],
)
def test_scores_of_any_type_give_the_answers_of_their_values(
    arms: fsf.Arms, data: Dataset, form: Any
) -> None:
    few = {"random": arms["random"][:4]}
    plain, other = (
        fsf.evaluate(function, few, data, progress=False)["random"]
        for function in (nearest, lambda *task: form(nearest(*task)))
    )
    assert np.array_equal(plain.predictions, other.predictions)
    assert other.notes == ()


@pytest.mark.parametrize(
    ("form", "named"),
    [
        (lambda s: s[:, :4], r"\(25, 4\)"),
        (lambda s: s * np.nan, "125 are not finite"),
        (lambda s: np.where(s == s.max(), np.inf, s), "1 are not finite"),
        (lambda s: s + 1j, "complex128"),
        (lambda s: s.astype(object), "object"),
        (lambda s: np.ma.masked_less(s, np.median(s)), "MaskedArray"),
        (lambda s: [[10**400] * 5] * 25, "list"),
        (lambda s: [[1, 2], [3]], "list"),
        (lambda s: "right", "right"),
        (lambda s: None, "None"),
        (lambda s: (row for row in s), "generator"),
        (lambda s: torch.tensor(s).to_sparse(), "sparse_coo"),
        (lambda s: torch.tensor(s, device="meta"), "meta"),
        (lambda s: torch.tensor(s > 0), "bool"),
        (lambda s: torch.nested.nested_tensor([torch.rand(5)] * 25, layout=torch.jagged), "jagged"),
    ],
)
def test_scores_that_are_not_scores_are_refused(
    arms: fsf.Arms, data: Dataset, form: Any, named: str
) -> None:
    with pytest.raises(DataError, match=f"random task 0: .*{named}"):
        fsf.evaluate(lambda *task: form(nearest(*task)), arms, data, progress=False)


def test_many_ties_are_noted_with_the_outcomes(arms: fsf.Arms, data: Dataset) -> None:
    def tied(*task: Any) -> Any:
        scores = nearest(*task)
        scores[scores.max(axis=1) < np.median(scores.max(axis=1))] = 0
        return scores

    for outcomes in fsf.evaluate(tied, arms, data, progress=False).values():
        [note] = outcomes.notes
        assert note.startswith("48.0 % of queries")
        assert note in repr(outcomes)


def test_tasks_of_a_pool_of_one_s_own_are_found_by_their_keys(data: Dataset) -> None:
    whole = fsf.pool(data, split="all")
    keep = np.flatnonzero(whole.labels < 8)[::-1]
    pool = fsf.ImagePool(
        tuple(whole.keys[i] for i in keep), whole.labels[keep], whole.class_names[:8]
    )
    arms = fsf.draw("random", pool, tasks=10, shot=1, queries=3)
    found = fsf.evaluate(nearest, arms, data, pool=pool, progress=False)
    assert found["random"].task_accuracy.mean() > 0.25


class Estimator:
    """A classifier as those of scikit-learn."""

    def fit(self, images: Any, labels: Any) -> Estimator:
        return self

    def predict(self, images: Any) -> Any:
        return images


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"model": ProtoNet()}, "ProtoNet needs a backbone: give fsframework.model"),
        ({"model": ProtoNet}, "ProtoNet needs a backbone: give fsframework.model"),
        ({"model": nn.Flatten()}, r'fsframework.model\("ncc", backbone=module\)'),
        ({"model": Estimator()}, "Estimator.*\n*.*def classifier"),
        ({"model": "ncc"}, "model must be .*'ncc'"),
        ({"model": None}, "model must be .*None"),
        ({"model": dict}, "model must be .*class dict"),
        ({"model": lambda support, query: query}, "model must be .*function"),
        ({"tasks": {}}, "tasks must be"),
        ({"tasks": None}, "tasks must be"),
        ({"tasks": {"random": 3}}, "tasks must be .*'random' is 3"),
        ({"data": 3}, "dataset must be"),
        ({"data": np.zeros((3, 8, 8, 3))}, "dataset must be"),
        ({"pool": "test"}, "pool must be .*'test'"),
        ({"image_size": 0}, "image_size"),
        ({"image_size": "large"}, "image_size"),
        ({"query_batch": "bogus"}, "query_batch"),
        ({"device": "gpu"}, "device"),
        ({"progress": "no"}, "progress"),
        ({"runs_dir": 3}, "runs_dir"),
        ({"cache_dir": b"here"}, "cache_dir"),
    ],
)
def test_an_argument_that_is_of_no_use_is_named(
    arms: fsf.Arms, data: Dataset, given: dict[str, Any], named: str
) -> None:
    usual = {"model": nearest, "tasks": arms, "data": data, "progress": False}
    with pytest.raises((OptionError, PluginError)) as raised:
        fsf.evaluate(**{**usual, **given})
    assert re.search(named, f"{raised.value}{raised.value.picture}", re.DOTALL)


def test_tasks_of_other_data_and_of_no_number_are_refused(arms: fsf.Arms, data: Dataset) -> None:
    other = fsf.dataset({**PLANTED, "n_per_class": 30})
    for tasks, source, pool in (
        (arms, other, None),
        (arms, data, fsf.pool(data, split="val")),
        (arms["random"][:0], data, None),
    ):
        with pytest.raises(DataError, match="tasks"):
            fsf.evaluate(nearest, tasks, source, pool=pool, progress=False)
    with pytest.raises(OptionError, match="image_size"):
        fsf.evaluate(average("ncc"), arms, data, image_size=32, progress=False)


def test_the_user_s_module_stays_as_it_is(arms: fsf.Arms, data: Dataset) -> None:
    module = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.BatchNorm2d(3), nn.Dropout(), nn.Flatten())
    for training in (True, False):
        module.train(training)
        before = {name: value.clone() for name, value in module.state_dict().items()}
        model = fsf.model("ncc", backbone=module, image_size=16, device="cpu")
        fsf.evaluate(model, {"random": arms["random"][:4]}, data, progress=False)
        fsf.run(
            method="r2d2", backbone=module, dataset=PLANTED, tasks=4, way=2, shot=1, queries=2,
            progress=False, training={"epochs": 1, "steps": 1, "validation_tasks": 2},
        )  # fmt: skip
        assert {one.training for one in module.modules()} == {training}
        assert all(p.requires_grad and p.grad is None for p in module.parameters())
        assert all(torch.equal(value, before[k]) for k, value in module.state_dict().items())


def test_a_run_of_a_script_s_method_is_opened_with_the_script(
    tmp_path: Path, arms: fsf.Arms, data: Dataset
) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "from fsf_methods.metric import ProtoNet\n"
        "class MineOnly(ProtoNet):\n    'Nearest mean.'\n    name = 'mine-only'\n"
    )
    run = fsf.run(
        method="mine-only", dataset=PLANTED, tasks=4, way=2, shot=1, queries=2, progress=False,
        training={"epochs": 0}, plugins=[script],
    )  # fmt: skip
    [kept] = (run.folder / "code").glob("mine*.py")
    with pytest.raises(PluginError, match=f"mine-only.*{re.escape(str(kept))}"):
        run.model()
    assert run.model(plugins=[kept]).network.method.name == "mine-only"
    with pytest.raises(OptionError, match="model must be a path"):
        fsf.run(model="", dataset=PLANTED, progress=False)
    model = run.model(plugins=[script])
    found = fsf.evaluate(model, run.tasks, data, progress=False)
    for arm, answered in run.outcomes.items():
        assert np.array_equal(found[arm].predictions, answered.predictions)


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
