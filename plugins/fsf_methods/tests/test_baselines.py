"""Classifiers that are fitted to a task's support: the baselines and what is built on them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.transfer import (
    KNN,
    LPFTFB,
    NCC,
    RFS,
    SKD,
    Baseline,
    BaselinePlusPlus,
    Cosine,
    DistributionCalibration,
    Linear,
    NegCosine,
)
from fsframework.interfaces import Backbone, Batch
from plugins.fsf_methods.tests.toys import built


def episode(*, tasks: int = 2, way: int = 3, shot: int = 4, n: int = 6, dim: int = 9) -> Any:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(tasks, way, 1, dim, generator=generator)
    support = centres + torch.randn(tasks, way, shot, dim, generator=generator)
    return support, torch.randn(tasks, n, dim, generator=generator)


def test_first_step_of_baseline_worked_by_hand() -> None:
    support = torch.tensor([[[[2.0, 0.0]], [[0.0, 2.0]]]])
    scores = Baseline(steps=1, lr=0.5, weight_decay=0.0).scores(support, torch.tensor([[[1.0, 0]]]))
    # From probabilities of 1/2, each of two items moves its own row by 0.5 * 1/2 * 1/2 of itself
    # and the other by as much in the other direction; the biases' moves cancel.
    torch.testing.assert_close(scores, torch.tensor([[[0.25, -0.25]]]))


@pytest.mark.parametrize("cls", [Baseline, RFS])
def test_the_loss_is_the_cross_entropy_of_a_linear_layer(cls: Any) -> None:
    method = built(cls, 9, n_base=4)
    layer = method.classify
    items, classes = torch.randn(6, 9), torch.tensor([0, 1, 2, 3, 3, 0])
    logits = functional.linear(items, layer.weight, layer.bias)
    expected = functional.cross_entropy(logits, classes)
    torch.testing.assert_close(method.loss(Batch(items=items, classes=classes)), expected)


@pytest.mark.parametrize("learn_lengths", [True, False])
def test_class_logits_of_baseline_plus_plus_are_scaled_cosines(learn_lengths: bool) -> None:
    method = built(BaselinePlusPlus, 9, n_base=4, learn_lengths=learn_lengths)
    state, items = method.state_dict(), torch.randn(6, 9)
    learned = {"classify.directions", "classify.lengths"}
    assert set(state) == (learned if learn_lengths else {"classify.directions"})
    cosines = functional.cosine_similarity(items[:, None], state["classify.directions"], dim=2)
    lengths = state["classify.lengths"] if learn_lengths else torch.ones(4)
    found = method.class_logits(items)
    torch.testing.assert_close(found, 2 * cosines * lengths, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "n_classes", "scale"),
    [({}, 200, 2.0), ({}, 201, 10.0), ({"scale": 7.0}, 201, 7.0)],
)
def test_scale_follows_the_number_of_classes(options: Any, n_classes: int, scale: float) -> None:
    assert built(BaselinePlusPlus, 9, n_base=n_classes, **options).classify.scale == scale


def test_the_loss_of_neg_cosine_worked_by_hand() -> None:
    method = NegCosine(margin=-0.5, scale=2.0)
    method.build((2,), 2, None)
    assert isinstance(method.classify, nn.Module)
    method.classify.load_state_dict({"directions": torch.tensor([[3.0, 0.0], [0.0, 0.5]])})
    # The cosines are 0.6 and 0.8; the own class's is raised by 1/2: logits 2.2 and 1.6.
    batch = Batch(items=torch.tensor([[3.0, 4.0]]), classes=torch.tensor([0]))
    expected = torch.tensor(1 + 2.718281828459045**-0.6).log()
    torch.testing.assert_close(method.loss(batch), expected)
    torch.testing.assert_close(method.class_logits(batch.items), torch.tensor([[1.2, 1.6]]))


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("kind", ["negcosine", "baseline++", "baseline"])
def test_from_a_given_start_it_does_what_literal_steps_do(
    kind: str, optimizer: Any, batch_size: int | None
) -> None:
    support, query = episode(shot=3)
    options: dict[str, Any] = {"steps": 7, "lr": 0.3, "weight_decay": 0.02}
    options["optimizer"] = optimizer
    generator = torch.Generator().manual_seed(1)
    start = {"directions": torch.randn(2, 3, 9, generator=generator)}
    margin, scale = 0.0, 2.0
    method: Any
    if kind == "negcosine":
        margin, scale = -0.2, 5.0
        method = NegCosine(inner_margin=margin, inner_scale=scale, **options)
    elif kind == "baseline++":
        method = BaselinePlusPlus(**options)
        start["lengths"] = torch.rand(2, 3, generator=generator)
    else:
        method = Baseline(**options)
        start = {"weight": start["directions"], "bias": torch.rand(2, 3, generator=generator)}
    scores = method.scores_from(start, support, query, batch_size=batch_size)

    def logits(parts: dict[str, Tensor], items: Tensor) -> Tensor:
        if kind == "baseline":
            return functional.linear(items, parts["weight"], parts["bias"])
        cosines = functional.cosine_similarity(items[:, None], parts["directions"], dim=2)
        return scale * cosines * parts.get("lengths", torch.ones(3))

    labels = torch.arange(3).repeat_interleave(3)
    for task in range(2):
        parts = {name: value[task].clone().requires_grad_() for name, value in start.items()}
        made: Any = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
        more = {"momentum": 0.9, "dampening": 0.9} if optimizer == "sgd" else {}
        steps = made(parts.values(), lr=0.3, weight_decay=0.02, **more)
        items = support[task].flatten(0, 1)
        for step in range(7):
            part = slice(None) if batch_size is None else slice(4 * (step % 3), 4 * (step % 3) + 4)
            found = logits(parts, items[part])
            found = found - scale * margin * functional.one_hot(labels[part], 3)
            steps.zero_grad()
            functional.cross_entropy(found, labels[part]).backward()
            steps.step()
        torch.testing.assert_close(scores[task], logits(parts, query[task]), rtol=1e-3, atol=1e-3)


SLOW: dict[str, Any] = {"steps": 40, "lr": 0.1, "weight_decay": 0.02}
ONCE: dict[str, Any] = {"steps": 1, "lr": 0.5, "weight_decay": 0.1}


@pytest.mark.parametrize(
    ("method", "starts", "tolerance"),
    [
        *(
            (cls(**steps, **options), starts, 1e-4)
            for steps in (SLOW, ONCE)
            for cls, options, starts in (
                (Baseline, {}, {"weight", "bias"}),
                (BaselinePlusPlus, {"scale": 5.0}, {"directions", "lengths"}),
                (BaselinePlusPlus, {"learn_lengths": False}, {"directions"}),
            )
        ),
        (NegCosine(steps=30, inner_margin=-0.2, lr=0.1), {"directions"}, 1e-3),
        (LPFTFB(steps=30, lr=0.1, firth_c=0.7), {"weight", "bias"}, 1e-3),
        (LPFTFB(steps=30, lr=0.1, firth_c=0.7, head="dist"), {"directions", "lengths"}, 1e-3),
    ],
)
def test_the_fast_fit_does_what_the_general_one_does(
    method: Any, starts: set[str], tolerance: float
) -> None:
    support, query = episode(shot=2)
    # The authors' start: 0, or 1 / sqrt(3) long along the means of unit vectors.
    means = functional.normalize(functional.normalize(support, dim=3).mean(dim=2), dim=2)
    known = {
        "weight": torch.zeros(2, 3, 9),
        "bias": torch.zeros(2, 3),
        "directions": means / 3**0.5,
        "lengths": torch.full((2, 3), 1 / 3**0.5),
    }
    start = {name: known[name] for name in sorted(starts)}
    general = method.scores_from(start, support, query, batch_size=None)
    found = method.scores(support, query)
    torch.testing.assert_close(found, general, rtol=tolerance, atol=tolerance / 10)


def test_methods_that_fit_alike_score_alike() -> None:
    support, query = episode()
    for one, other, shot in (
        # As many steps as in 100 epochs of batches of 4, or 300 for LPFTFB.
        (Baseline(), Baseline(steps=100), 1),
        (BaselinePlusPlus(), BaselinePlusPlus(steps=300), 3),
        (LPFTFB(), LPFTFB(steps=600), 2),
        (LPFTFB(firth_c=0.0, steps=30), Baseline(steps=30), 2),
        (LPFTFB(firth_c=0.0, steps=30, head="dist"), BaselinePlusPlus(steps=30), 2),
        (Linear(), Baseline(), 4),
        (Cosine(), BaselinePlusPlus(scale=10.0, learn_lengths=False), 4),
        (SKD(), RFS(), 4),
    ):
        pair = support[:, :, :shot], query
        assert torch.equal(one.scores(*pair), other.scores(*pair)), type(one).__name__


def test_neighbours_worked_by_hand() -> None:
    # On the circle at 0 and 90 degrees, and at 180 and 60.
    support = torch.tensor([[[[2.0, 0.0], [0.0, 3.0]], [[-1.0, 0.0], [0.5, 0.75**0.5]]]])
    query = torch.tensor([[[0.5, 0.75**0.5]]])  # at 60
    # Similarities brought to 0..1: (1 + cosine) / 2.
    beside, here, below = (1 + 0.75**0.5) / 2, 1.0, 0.75
    for k, expected in (
        (1, [0.0, 1 + here / 2]),
        (2, [1 + beside / 2, 1 + here / 2]),
        (3, [2 + (beside + below) / 4, 1 + here / 2]),
        (9, [2 + (beside + below) / 4, 2 + (here + 0.25) / 4]),
    ):
        torch.testing.assert_close(KNN(k=k).scores(support, query), torch.tensor([[expected]]))


def test_neighbours_by_distance_heed_the_length() -> None:
    support = torch.tensor([[[[10.0, 0.0]], [[1.0, 1.0]]]])
    query = torch.tensor([[[1.0, 0.0]]])
    by_angle = KNN(k=1).scores(support, query)
    by_distance = KNN(k=1, metric="euclidean").scores(support, query)
    torch.testing.assert_close(by_angle, torch.tensor([[[1.5, 0.0]]]))
    torch.testing.assert_close(by_distance, torch.tensor([[[0.0, 1.25]]]))


# Two ways of two shots; their lengths differ, so that it matters whether they are normalised.
NCC_SUPPORT = torch.tensor([[[[3.0, 0.0], [0.0, 1.0]], [[-2.0, 0.0], [-4.0, 0.0]]]])
NCC_QUERY = torch.tensor([[[0.0, 2.0], [-1.0, 0.0]]])
ROOT = math.sqrt(0.5)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # Means (1/2, 1/2) and (-1, 0) of unit vectors.
        ({}, [[ROOT, 0.0], [-ROOT, 1.0]]),
        # Means (3/2, 1/2) and (-3, 0).
        ({"normalize": False}, [[1 / math.sqrt(10), 0.0], [-3 / math.sqrt(10), 1.0]]),
        # Queries (0, 1) and (-1, 0) to the means of unit vectors.
        ({"metric": "euclidean"}, [[-0.5, -2.0], [-2.5, 0.0]]),
        # Queries as they are to the means (3/2, 1/2) and (-3, 0).
        ({"metric": "euclidean", "normalize": False}, [[-4.5, -13.0], [-6.5, -4.0]]),
        # The support's mean is (-3/4, 1/4): it moves means and queries alike.
        (
            {"metric": "euclidean", "normalize": False, "centre": True},
            [[-4.5, -13.0], [-6.5, -4.0]],
        ),
        # Means (9/4, 1/4) and (-9/4, -1/4), queries (3/4, 7/4) and (-1/4, -1/4).
        (
            {"normalize": False, "centre": True},
            [
                [34 / math.sqrt(82 * 58), -34 / math.sqrt(82 * 58)],
                [-10 / math.sqrt(82 * 2), 10 / math.sqrt(82 * 2)],
            ],
        ),
    ],
)
def test_scores_of_ncc_worked_by_hand(options: dict[str, Any], expected: list[list[float]]) -> None:
    scores = NCC(**options).scores(NCC_SUPPORT, NCC_QUERY)
    torch.testing.assert_close(scores, torch.tensor([expected]))


def calibration(n_base: int, dim: int, **options: Any) -> DistributionCalibration:
    return built(DistributionCalibration, dim, n_base=n_base, **options).train()


def step(method: DistributionCalibration, items: list[list[float]], classes: list[int]) -> None:
    method.loss(Batch(items=torch.tensor(items), classes=torch.tensor(classes)))


def test_training_remembers_the_last_vectors_of_each_class() -> None:
    method = calibration(3, 1, memory=2).train()
    step(method, [[1.0], [2.0], [3.0]], [0, 2, 0])
    assert method.seen.tolist() == [2, 0, 1]
    step(method, [[4.0], [5.0]], [0, 2])
    assert method.remembered[..., 0].tolist() == [[4, 3], [0, 0], [2, 5]]
    method.eval()
    step(method, [[9.0]], [1])
    assert method.seen.tolist() == [3, 0, 2], "evaluation remembers nothing"


def test_draws_have_the_calibrated_mean_and_covariance() -> None:
    method = calibration(3, 4, k=2, memory=5).train()
    generator = torch.Generator().manual_seed(0)
    items = torch.rand(15, 4, generator=generator) + 2 * torch.eye(4)[torch.arange(15) % 3]
    step(method, items.tolist(), [i % 3 for i in range(15)])
    image = torch.rand(1, 1, 1, 4, generator=generator)
    found = method._samples(image, *method._of_classes(method._draws(20000)))[0, 0, 0]
    mean, covariance = method.calibrated(image[0, 0, 0])
    torch.testing.assert_close(found.mean(dim=0), mean, rtol=0, atol=0.02)
    torch.testing.assert_close(found.T.cov(), covariance, rtol=0, atol=0.02)


def test_the_seed_of_the_calibration_changes_the_draws_only() -> None:
    support, query = torch.rand(1, 3, 2, 4), torch.rand(1, 5, 4)
    scores = [calibration(3, 4, n_samples=20, seed=s).scores(support, query) for s in (0, 0, 1)]
    assert torch.equal(scores[0], scores[1])
    assert not torch.equal(scores[0], scores[2])


class Corner(Backbone):
    """The red values of the first row of a 2 x 2 image."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, images: Tensor) -> Tensor:
        return self.factor * images[:, 0, 0, :, None, None]


IMAGE = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).expand(1, 3, 2, 2)
# Counter-clockwise: the first rows are [1, 2], [2, 4], [4, 3] and [3, 1].
ROWS = [(1.0, 2.0), (2.0, 4.0), (4.0, 3.0), (3.0, 1.0)]


def skd(**options: Any) -> SKD:
    method = SKD(**options)
    method.build((3, 2, 2), 2, Corner())
    with torch.no_grad():
        method.classify.weight.copy_(torch.eye(2))
        method.classify.bias.zero_()
        method.classify_rotation.weight.copy_(torch.tensor([[1.0, 0], [0, 1], [0, 0], [-1, 0]]))
        method.classify_rotation.bias.zero_()
    return method


def test_the_loss_of_skd_in_generation_0_worked_by_hand() -> None:
    batch = Batch(items=IMAGE, classes=torch.tensor([1]))
    of_classes = sum(math.log(1 + math.exp(a - b)) for a, b in ROWS) / 4
    of_turns = 0.0
    for turn, (a, b) in enumerate(ROWS):
        for place, logit in enumerate((a, b, 0.0, -a)):
            of_turns += math.log(1 + math.exp(-logit if place == turn else logit)) / 16
    for gamma, alpha in ((1.0, 0.0), (0.0, 1.0), (0.5, 3.0)):
        found = float(skd(gamma=gamma, alpha=alpha).loss(batch).detach())
        assert found == pytest.approx(gamma * of_classes + alpha * of_turns, rel=1e-5)


def test_the_loss_of_skd_in_generation_1_worked_by_hand() -> None:
    teacher = torch.tensor([[2.0, 1.0]])
    batch = Batch(items=IMAGE, classes=torch.tensor([1]), teacher_logits=teacher)
    away = sum(math.dist(ROWS[0], row) for row in ROWS[1:]) / 3
    found = float(skd(distill_gamma=0.0, distill_alpha=0.3).loss(batch).detach())
    assert found == pytest.approx(0.3 * away, rel=1e-5)
    # At temperature 2 the logits differ by -1/2 and 1/2; the divergence is by the square of 2.
    p = 1 / (1 + math.exp(-0.5))
    divergence = p * math.log(p / (1 - p)) + (1 - p) * math.log((1 - p) / p)
    found = float(skd(distill_alpha=0.0, temperature=2.0).loss(batch).detach())
    assert found == pytest.approx(4 * divergence, rel=1e-5)
