"""Interventional few-shot learning."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods.gradient import ANIL, MAML
from fsf_methods.interventional import IFSL
from fsf_methods.metric import MatchingNet
from fsf_methods.transfer import NCC, Baseline, FineTune
from fsframework.components.registry import Registry
from fsframework.engine.configuration import resolve_experiment
from fsframework.engine.options import given_tree
from fsframework.interfaces import Batch, FewShotMethod, OptionError
from plugins.fsf_methods.tests.toys import built as made
from plugins.fsf_methods.tests.toys import episode


def built(base: FewShotMethod, n_base: int = 2, **options: Any) -> IFSL:
    return made(IFSL, 4, n_base=n_base, base=base, **options).train()


def test_parts_worked_by_hand() -> None:
    method = built(NCC(), n_splits=2)
    with torch.no_grad():
        # Two images of class 0 and one of class 1, so that counts matter.
        method.sums.copy_(torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]))
        method.counts.copy_(torch.tensor([2.0, 1.0]))
        method.classify.weight.zero_()
        method.classify.weight[0, :2] = math.log(3)
        method.classify.bias.zero_()
    # Length 1: (0.6, 0, 0, 0.8); minus the centre (0.5, 0, 0.5, 0): (0.1, 0, -0.5, 0.8).
    parts = method.parts(torch.tensor([[3.0, 0.0, 0.0, 4.0]]))[0]
    second = torch.tensor([-0.5, 0.8]) / math.hypot(0.5, 0.8)
    torch.testing.assert_close(parts[:, :2], torch.stack([torch.tensor([1.0, 0.0]), second]))
    # The first part has logits (3 log 3, 0), the second one (0, 0); there are two classes.
    torch.testing.assert_close(parts[:, 2:], torch.tensor([[27 / 28 / 2, 0.0], [1 / 2 / 2, 0.0]]))
    whole = built(NCC(), n_splits=2, posterior="whole", divide=False)
    whole.load_state_dict(method.state_dict())
    torch.testing.assert_close(
        whole.parts(torch.tensor([[3.0, 0.0, 0.0, 4.0]]))[0, :, 2:],
        torch.tensor([[27 / 28, 0.0], [1 / 28, 0.0]]),
    )


class Fixed(FewShotMethod):
    """Returns its first support vectors as scores of every query."""

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        return support[:, None, :, 0, 0].expand(-1, query.shape[1], -1)


@pytest.mark.parametrize(
    ("average", "expected"),
    [("probabilities", [0.5, 0.5]), ("log-probabilities", [0.25 * 0.75] * 2)],
)
def test_averages_worked_by_hand(average: Any, expected: list[float]) -> None:
    # One part gives (1/4, 3/4), the other the opposite.
    method = built(Fixed(), adjustment="feature", n_splits=2, average=average)
    logits = torch.tensor([[0.0, math.log(3)], [math.log(3), 0.0]])
    scores = method.scores(logits[None, :, None, :, None], torch.zeros(1, 1, 2, 1))
    power = 1 if average == "probabilities" else 2
    torch.testing.assert_close((power * scores[0, 0]).exp(), torch.tensor(expected))


def test_batches_train_the_classifier_and_collect_the_class_means() -> None:
    method = built(MatchingNet(), n_splits=2, window=2)
    items = torch.tensor([[2.0, 0, 0, 0], [0, 3.0, 0, 0], [0, 0, 0, 4.0]])
    classes = torch.tensor([0, 0, 1])
    expected = functional.cross_entropy(method.classify(items), classes)
    torch.testing.assert_close(method.loss(Batch(items=items, classes=classes)), expected)
    torch.testing.assert_close(method.class_means, torch.tensor([[0.5, 0.5, 0, 0], [0.0, 0, 0, 1]]))
    # Each further image halves the weight of the two before it.
    method.loss(Batch(items=items[2:], classes=torch.tensor([0])))
    torch.testing.assert_close(method.class_means[0], torch.tensor([0.25, 0.25, 0, 0.5]))
    method.eval()
    before = method.class_means
    method.loss(Batch(items=items, classes=classes))
    assert torch.equal(method.class_means, before)


def test_episodes_give_the_negative_log_likelihood_of_averaged_log_probabilities() -> None:
    method = built(MatchingNet(), n_splits=2, average="log-probabilities")
    method.loss(Batch(items=torch.rand(8, 4), classes=torch.arange(8) % 2))
    batch = episode(4)
    scores = method.scores(*method.embed_episode(batch))
    expected = functional.nll_loss(scores.flatten(0, 1), batch.query_labels.flatten())
    torch.testing.assert_close(method.loss(batch), expected)


def test_each_part_has_weights_of_its_own() -> None:
    method = built(ANIL(n_way=3), n_splits=2)
    first, second = (base.classify.weight for base in method.bases)
    assert first.shape == (3, 4)
    assert not torch.equal(first, second)
    method.loss(episode(4)).backward()
    assert first.grad.any()
    assert second.grad.any()
    assert method.n_way == 3


def test_a_base_that_consumes_images_starts_from_the_parts_themselves() -> None:
    method = built(FineTune(steps=0, head="centroids"), n_splits=2).eval()
    plain = built(NCC(), n_splits=2).eval()
    batch = episode(4)
    # 10 times cosines there, cosines of the means of unit vectors here.
    found = method.scores(*method.embed_episode(batch))
    expected = [
        10 * base.scores(support, query)
        for base, support, query in zip(
            plain.bases,
            plain.parts(batch.support).unbind(3),
            plain.parts(batch.query).unbind(2),
            strict=True,
        )
    ]
    each = torch.stack(expected).log_softmax(dim=3)
    torch.testing.assert_close(found, each.logsumexp(dim=0) - math.log(2))


def test_maml_adapts_scale_and_shift_of_the_parts() -> None:
    method = built(MAML(n_way=3, inner_lr=0.3), n_splits=2).train()
    method.loss(episode(4)).backward()
    for base in method.bases:
        gradients = [p.grad for p in base.parameters()]
        assert len(gradients) == 4
        assert all(g is not None and g.any() for g in gradients)


def test_a_base_that_learns_from_batches_gets_them() -> None:
    method = built(Baseline(steps=2), n_splits=2)
    items, classes = torch.rand(8, 4), torch.arange(8) % 2
    loss = method.loss(Batch(items=items, classes=classes))
    parts = method.parts(items)
    of_parts = [
        base.loss(Batch(items=parts[:, i], classes=classes)) for i, base in enumerate(method.bases)
    ]
    own = functional.cross_entropy(method.class_logits(items), classes)
    torch.testing.assert_close(loss, own + torch.stack(of_parts).mean())


def test_what_it_is_built_and_trained_for_is_checked() -> None:
    with pytest.raises(OptionError, match="its base NCC from nothing"):
        built(NCC(), n_splits=2).loss(episode(4))
    with pytest.raises(OptionError, match="must divide the length of the vectors, 4, got 3"):
        built(NCC(), n_splits=3)
    with pytest.raises(OptionError, match="needs base classes, but nothing is trained"):
        built(NCC(), n_base=0)


def test_the_number_of_ways_of_the_base_follows_the_tasks() -> None:
    def resolved(method: dict[str, Any]) -> Any:
        given = {"method": method, "sampler": {"name": "random", "n_way": 3}}
        return resolve_experiment(Registry(), given_tree(given, "call")).method

    followed = resolved({"name": "ifsl", "base": "maml"})
    assert followed.options["base"].options["n_way"] == 3
    assert followed.create().n_way == 3
    kept = resolved({"name": "ifsl", "base": {"name": "maml", "n_way": 4}})
    assert kept.options["base"].options["n_way"] == 4
