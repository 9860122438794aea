"""The wrappers against spurious attributes, against plain forms of what they are defined by."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from fsf_methods.metric import ProtoNet
from fsf_methods.robust import (
    DFR,
    JTT,
    Balanced,
    GroupDRO,
    SupportWeighted,
    TextProjected,
    WordProjected,
)
from fsf_methods.transfer import KNN, NCC, Baseline
from fsframework.interfaces import Backbone, Batch, FewShotMethod, Known, OptionError
from fsframework.testing.method import ToyBackbone

torch.manual_seed(0)


class Seeing(Baseline):
    """Takes down the steps that it learns from."""

    def loss(self, batch: Batch) -> Tensor:
        self.seen = batch
        return super().loss(batch)


class SeeingEpisodes(ProtoNet):
    def loss(self, batch: Batch) -> Tensor:
        self.seen = batch
        return super().loss(batch)


def built(method: Any, size: int = 3, n_base: int = 2, backbone: Backbone | None = None) -> Any:
    reader = ToyBackbone() if backbone is None else backbone
    method.read_with(reader)
    method.build((size,), n_base, reader)
    return method.train()


def spurious(n: int = 4000, seed: int = 0) -> Batch:
    """Images of two classes; nine of ten of class 0 have word 0, one of ten of class 1."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(2, size=n)
    have = rng.random((n, 2)) < np.where(classes == 0, 0.9, 0.1)[:, None]
    have[:, 1] = rng.random(n) < 0.5
    items = rng.normal(size=(n, 3))
    return Batch(
        items=torch.tensor(items, dtype=torch.float32),
        classes=torch.tensor(classes),
        words=torch.tensor(have),
    )


def test_a_balanced_step_has_as_many_images_of_each_group() -> None:
    method = built(Balanced(base=Seeing()))
    torch.manual_seed(0)
    method.loss(spurious())
    seen = method.base.seen
    own = seen.words[:, 0]
    for label in (0, 1):
        inside = seen.classes == label
        assert inside.float().mean().item() == pytest.approx(0.5, abs=0.03)
        # Word 1 is tied to no class, or hardly; word 0 only to class 0.
    assert own[seen.classes == 0].float().mean().item() == pytest.approx(0.5, abs=0.04)
    # Every image is one of the step, with its own class and words.
    given = spurious()
    rows = {tuple(row.tolist()): i for i, row in enumerate(given.items)}
    places = torch.tensor([rows[tuple(row.tolist())] for row in seen.items])
    assert torch.equal(given.classes[places], seen.classes)
    assert torch.equal(given.words[places], seen.words)


def episodes(tasks: int = 200) -> Batch:
    """Two ways with two shots and four queries each, of the two classes."""
    rng = np.random.default_rng(1)
    classes = np.tile([0, 1], (tasks, 1))
    shots = np.repeat(classes[:, :, None], 2, axis=2)
    labels = np.tile(np.repeat([0, 1], 4), (tasks, 1))

    def words(of: np.ndarray) -> Tensor:
        return torch.tensor((rng.random(of.shape) < np.where(of == 0, 0.9, 0.1))[..., None])

    return Batch(
        support=torch.randn(tasks, 2, 2, 3),
        query=torch.randn(tasks, 8, 3, requires_grad=True),
        query_labels=torch.tensor(labels),
        support_classes=torch.tensor(shots),
        query_classes=torch.tensor(labels),
        support_words=words(shots),
        query_words=words(labels),
    )


def test_episodes_keep_their_numbers_of_each_way() -> None:
    method = built(Balanced(base=SeeingEpisodes()))
    method.loss(given := episodes())
    seen = method.base.seen
    assert torch.equal(seen.query_labels, given.query_labels)
    first = given.query_labels == 0
    before, after = (one.query_words[first].float().mean().item() for one in (given, seen))
    assert before > 0.85
    assert after < 0.8  # four images are often all of one group
    # Each query and support image comes from its own task and way.
    for t in (0, 7):
        for q in range(8):
            same = (given.query[t] == seen.query[t, q]).all(dim=1)
            assert bool((same & (given.query_labels[t] == seen.query_labels[t, q])).any())
        for way in (0, 1):
            for shot in (0, 1):
                assert bool((given.support[t, way] == seen.support[t, way, shot]).all(1).any())


def test_the_weights_of_group_dro_follow_algorithm_1() -> None:
    eta, adjustment = 0.5, 2.0
    method = built(GroupDRO(base=Seeing(), eta=eta, adjustment=adjustment))
    batch = spurious(60)
    with torch.no_grad():
        logits = method.base.class_logits(batch.items)
    losses = nn.functional.cross_entropy(logits, batch.classes, reduction="none")
    method.loss(batch)
    tied = [0, 0]
    for label in (0, 1):
        share = np.array([batch.words[batch.classes == c].float().mean(0).numpy() for c in (0, 1)])
        tied[label] = int((share[label] - share.mean(axis=0)).argmax())
    group = [2 * int(c) + int(w[tied[int(c)]]) for c, w in zip(batch.classes, batch.words)]  # noqa: B905
    q = np.full(4, 0.25)
    for g in range(4):
        own = [float(x) for x, one in zip(losses, group, strict=True) if one == g]
        if own:
            q[g] *= np.exp(eta * (np.mean(own) + adjustment / np.sqrt(len(own))))
    np.testing.assert_allclose(method.q.numpy(), q / q.sum(), rtol=1e-5)
    method.eval()
    method.loss(batch)  # only training changes them
    np.testing.assert_allclose(method.q.numpy(), q / q.sum(), rtol=1e-5)


def test_group_dro_draws_by_its_weights() -> None:
    method = built(GroupDRO(base=Seeing(), eta=1e-9))
    method.q.copy_(torch.tensor([0.7, 0.2, 0.1, 1e-9]))
    batch = spurious()
    method.loss(batch)
    seen = method.base.seen
    of_group = (seen.classes == 0) & ~seen.words[:, 0]
    assert of_group.float().mean().item() == pytest.approx(0.7, abs=0.05)
    episodic = built(GroupDRO(base=SeeingEpisodes(), eta=0.1))
    episodic.loss(episodes(20)).backward()
    assert episodic.q.sum().item() == pytest.approx(1)
    assert episodic.q.std() > 0


def test_jtt_weighs_the_errors_of_the_teacher() -> None:
    method = built(JTT(base=Seeing(), lambda_up=9.0))
    batch = spurious()
    method.loss(batch)
    assert method.base.seen is batch
    guessed = torch.where(torch.arange(4000) % 10 == 0, 1 - batch.classes, batch.classes)
    logits = nn.functional.one_hot(guessed, 2).float()
    method.loss(dataclasses.replace(batch, teacher_logits=logits))
    seen = method.base.seen
    assert seen.teacher_logits is None
    errors = {tuple(row.tolist()) for row in batch.items[::10]}
    share = np.mean([tuple(row.tolist()) in errors for row in seen.items])
    assert share == pytest.approx(0.5, abs=0.03)  # a tenth weighs nine times as much


def shapes_and_words(n: int = 3000, seed: int = 3) -> tuple[Batch, Tensor]:
    """Vectors that are class mean, direction of each word, and noise; and these directions."""
    rng = np.random.default_rng(seed)
    size, directions = 12, rng.normal(size=(2, 12)) * 2
    means = rng.normal(size=(3, size))
    classes = rng.integers(3, size=n)
    words = rng.random((n, 2)) < np.array([[0.8, 0.2], [0.3, 0.5], [0.2, 0.9]])[classes]
    items = means[classes] + words @ directions + 0.1 * rng.normal(size=(n, size))
    batch = Batch(
        items=torch.tensor(items, dtype=torch.float32),
        classes=torch.tensor(classes),
        words=torch.tensor(words),
    )
    return batch, torch.tensor(directions, dtype=torch.float32)


def test_word_projected_collects_the_differences_of_means_within_classes() -> None:
    method = built(WordProjected(base=NCC(), window=10**9), size=12, n_base=3)
    batch, directions = shapes_and_words()
    for part in torch.arange(3000).split(1500):
        method.loss(
            Batch(items=batch.items[part], classes=batch.classes[part], words=batch.words[part])
        )
    x, c, w = (t.double().numpy() for t in (batch.items, batch.classes, batch.words))
    rows, variance = method.directions()
    within = 0.0
    for word in (0, 1):
        total, weight = np.zeros(12), 0.0
        for label in range(3):
            own, has = x[c == label], w[c == label, word] > 0
            own_weight = has.sum() * (~has).sum() / len(has)
            total += own_weight * (own[has].mean(axis=0) - own[~has].mean(axis=0))
            weight += own_weight
        expected = total / weight * np.sqrt(weight / len(x))
        np.testing.assert_allclose(rows[word].numpy(), expected, rtol=1e-3, atol=1e-4)
    for label in range(3):
        own = x[c == label]
        within += ((own - own.mean(axis=0)) ** 2).sum()
    assert variance.item() == pytest.approx(within / x.size, rel=1e-3)
    assert not rows[2:].any()

    method.eval()
    mapped = method.embed(batch.items)
    before = np.linalg.norm(directions.numpy(), axis=1)
    after = np.linalg.norm(method.embed(directions).numpy(), axis=1)
    assert (after < 0.1 * before).all()
    plain = rows[:2].double().numpy()
    ridge = 0.1 * variance.item()
    expected = x - x @ plain.T @ np.linalg.solve(plain @ plain.T + ridge * np.eye(2), plain)
    np.testing.assert_allclose(mapped.numpy(), expected, rtol=1e-3, atol=1e-3)


def test_dfr_starts_as_its_base_and_learns_a_map_on_balanced_images() -> None:
    method, base = built(DFR(base=NCC()), size=12, n_base=3), NCC()
    batch, _ = shapes_and_words()
    support, query = batch.items[:12].reshape(1, 3, 4, 12), batch.items[None, 20:30]
    embedded = method.embed(support.flatten(0, 2)).reshape(support.shape)
    torch.testing.assert_close(method.scores(embedded, query), base.scores(support, query))
    method.loss(batch).backward()
    assert method.change.grad.any()
    assert method.classify.weight.grad.any()
    headed = built(DFR(base=Baseline()), size=12, n_base=3)
    assert headed.classify is None  # the base has one
    headed.loss(batch).backward()
    assert headed.base.classify.weight.grad.any()


def test_text_projection_is_orthogonal_as_its_ridge_goes_to_zero() -> None:
    reader = ToyBackbone()
    method = built(TextProjected(base=NCC(), template="{}", ridge=1e-6), 32, 0, reader)
    words = ["anchor", "snow", "mud"]
    vectors = method.embed_words(words)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))
    support, query = torch.randn(2, 4, 3, 32), torch.randn(2, 5, 32)
    known = Known(words=torch.zeros(2, 4, 3, 3, dtype=torch.bool), word_vectors=vectors)
    rows = vectors.double()
    projector = torch.eye(32, dtype=torch.float64) - torch.linalg.pinv(rows) @ rows
    expected = NCC().scores(*((x.double() @ projector).float() for x in (support, query)))
    found = method.scores_with(support, query, known)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def objective(logs: np.ndarray, words: np.ndarray, ridge: float) -> float:
    """What the weights of the shots minimise, from the docstring."""
    way, shot, _ = words.shape
    a = np.exp(logs.reshape(way, shot))
    a /= a.sum(axis=1, keepdims=True)
    shares = (a[..., None] * words).sum(axis=1)
    spread = ((shares - shares.mean(axis=0)) ** 2).sum()
    return float(spread + ridge * shot * ((a - 1 / shot) ** 2).sum())


def weights_of(words: Tensor, ridge: float) -> Tensor:
    """The weights that a method applies, read from how it moves one-hot shots of class 0."""
    tasks, way, shot, _ = words.shape
    support = torch.zeros(tasks, way, shot, shot)
    support[:] = torch.eye(shot)

    class Means(ProtoNet):
        def scores(self, support: Tensor, query: Tensor) -> Tensor:
            self.seen = support.mean(dim=2)
            return super().scores(support, query)

    base = Means()
    SupportWeighted(base=base, ridge=ridge).scores_with(
        support, torch.zeros(tasks, 1, shot), Known(words=words)
    )
    return base.seen


def test_the_weights_of_shots_minimise_their_objective() -> None:
    words = torch.rand(4, 3, 4, 6, generator=torch.Generator().manual_seed(0)) < 0.4
    found = weights_of(words, 0.1)
    torch.testing.assert_close(found.sum(dim=2), torch.ones(4, 3))
    assert (found > 0).all()
    for own, task in zip(found.double().numpy(), words.numpy(), strict=True):
        starts = np.random.default_rng(0).normal(size=(3, 12))
        best = min(minimize(objective, s, args=(task, 0.1)).fun for s in starts)
        assert objective(np.log(own).ravel(), task, 0.1) <= 1.005 * best


def test_a_word_is_balanced_if_shots_allow_it_and_only_then() -> None:
    words = torch.zeros(1, 2, 2, 2, dtype=torch.bool)
    words[0, 0, 0, 0] = True  # one of the two shots of class 0 has word 0
    words[0, 0, :, 1] = True  # and both have word 1
    [first, second] = weights_of(words, 0.01)[0]
    assert first[0] < 0.1
    torch.testing.assert_close(second, torch.full((2,), 0.5))
    both = words.clone()
    both[..., 0] = False
    torch.testing.assert_close(weights_of(both, 0.01), torch.full((1, 2, 2), 0.5))


class Named(FewShotMethod):
    """Learns from batches without a classifier."""

    learns_from = "batches"

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        return query @ support.mean(dim=2).mT


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Balanced(base=NCC()), "base must be a method that learns, as protonet"),
        (lambda: JTT(base=NCC()), "base must learn from batches by a classifier of the base"),
        (
            lambda: GroupDRO(base=Named()),
            "base must have a classifier of the base classes, as baseline",
        ),
        (lambda: JTT(base=ProtoNet()), "base must learn from batches by a classifier"),
        (lambda: JTT(base=Baseline(), lambda_up=0.5), "lambda_up must be at least 1, got 0.5"),
        (lambda: Balanced(base=Baseline(), n_words=0), "n_words must be at least 1"),
        (lambda: DFR(base=Baseline(), n_words=3, most_words=2), "n_words must be at most"),
        (lambda: TextProjected(base=NCC(), template="word"), "template must contain {} once"),
        (lambda: SupportWeighted(base=KNN(), ridge=0), "ridge must be above 0"),
        (lambda: GroupDRO(base=Baseline(), eta=0), "eta must be above 0"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(make: Any, message: str) -> None:
    with pytest.raises(OptionError) as error:
        make()
    assert str(error.value).startswith(message)


def test_words_that_are_missing_or_too_many_are_refused() -> None:
    method, batch = built(Balanced(base=Baseline(), most_words=1)), spurious(8)
    with pytest.raises(OptionError, match="most_words must be at least the number of words, 2"):
        method.loss(batch)
    with pytest.raises(OptionError, match="needs the words of the training images"):
        method.loss(dataclasses.replace(batch, words=None))
    blind = ToyBackbone()
    blind.reads_text = False
    with pytest.raises(OptionError, match="needs a backbone that reads text"):
        built(TextProjected(base=NCC()), 32, 0, blind).embed_words(["snow"])
    with pytest.raises(OptionError, match="needs base classes, but nothing is trained"):
        built(DFR(base=NCC()), 3, 0)
