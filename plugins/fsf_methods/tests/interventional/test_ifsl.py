from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fsf_backbones import Conv64F
from fsf_methods.gradient import ANIL, MAML, MTL
from fsf_methods.interventional import IFSL
from fsf_methods.metric import DN4, MatchingNet, ProtoNet
from fsf_methods.transductive import SIB
from fsf_methods.transfer import NCC, Baseline, FineTune
from fsframework.components.registry import Registry
from fsframework.interfaces import Batch, FewShotMethod, OptionError
from fsframework.pipeline.experiment.configuration import resolve_experiment
from fsframework.pipeline.experiment.options import given_tree
from fsframework.testing import parametrize_with_checks
from tests.golden_heads import Case, assert_array, assert_scores, golden_heads, read_case


def on_sib() -> IFSL:
    return IFSL(base=SIB(n_way=4), n_splits=2)


@parametrize_with_checks(
    [
        partial(IFSL, base=MatchingNet()),
        partial(
            IFSL,
            base=MAML(n_way=4, train_steps=1, test_steps=2, inner_lr=0.5),
            adjustment="feature",
            n_splits=2,
        ),
        on_sib,
        partial(IFSL, base=MTL(n_way=4, inner_lr=0.5, train_steps=5, test_steps=5), n_splits=2),
        partial(
            IFSL,
            base=ProtoNet(),
            adjustment="class",
            average="log-probabilities",
            divide=False,
            posterior="whole",
            context="probabilities",
        ),
    ]
)
def test_conformance(make: Any, check: Any) -> None:
    check(make)


class Linear(FewShotMethod):
    """The reference's linear classifier: Adam from a given start, on batches in a given order."""

    def __init__(self, weight: Tensor, bias: Tensor, case: Case, parts: int, steps: int) -> None:
        super().__init__()
        self.start = weight, bias
        self.steps, self.size = steps, int(case.number("batch_size"))
        # The reference has one optimiser for all parts, of the mean of their losses: for each
        # part the gradient is divided by their number, which Adam undoes, but not the decay.
        self.adam = {
            "lr": case.number("lr"),
            "weight_decay": parts * case.number("weight_decay"),
            "eps": parts * 1e-8,
        }

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        way, shot = support.shape[1:3]
        labels = torch.arange(way).repeat_interleave(shot)
        weight, bias = (part.clone().requires_grad_() for part in self.start)
        optimiser = torch.optim.Adam([weight, bias], **self.adam)
        for _ in range(self.steps):
            for chosen in torch.arange(len(labels)).split(self.size):
                items = support[0].detach().flatten(0, 1)[chosen]
                logits = functional.linear(items, weight, bias)
                optimiser.zero_grad()
                with torch.enable_grad():
                    functional.cross_entropy(logits, labels[chosen]).backward()
                optimiser.step()
        return functional.linear(query, weight, bias)


REFERENCE: dict[str, Any] = {
    "average": "log-probabilities",
    "divide": False,
    "posterior": "whole",
}
VARIANTS: dict[str, dict[str, Any]] = {
    "feature": {"adjustment": "feature"},
    "class": {"adjustment": "class"},
    "class_pd": {"adjustment": "class", "context": "probabilities"},
    "combined": {"adjustment": "combined"},
}


@pytest.mark.parametrize("variant", VARIANTS)
@golden_heads("IFSL")
def test_golden_heads_ifsl(path: Path, variant: str) -> None:
    case = read_case(path)
    weight = case.tensor(f"{variant}_initial_weight")
    bias = case.tensor(f"{variant}_initial_bias")
    support, query = case.tensor("support")[None], case.tensor("query")[None]
    for steps, name in ((0, "scores_initial"), (int(case.number("n_steps")), "scores")):
        base = Linear(weight[0], bias[0], case, len(weight), steps)
        method = IFSL(base=base, n_splits=len(weight), **VARIANTS[variant], **REFERENCE)
        for part, own in enumerate(zip(weight, bias, strict=True)):
            method.bases[part].start = own  # type: ignore[attr-defined]
        method.build((support.shape[-1],), len(case.arrays["class_means"]), Conv64F())
        method.load_state_dict(
            {
                "sums": case.tensor("class_means"),
                "counts": torch.ones(len(case.arrays["class_means"])),
                "classify.weight": case.parameters["pretrain.weight"],
                "classify.bias": case.parameters["pretrain.bias"],
            }
        )
        scores = method.scores(*method.embed_episode(Batch(support=support, query=query)))
        assert_scores(scores[0], case.tensor(f"{variant}_{name}"))
    length = support.shape[-1] // len(weight)
    parts = method.parts(query[0]).transpose(0, 1)
    assert_array(parts[..., :length], case.tensor(f"{variant}_query_x"))
    if variant != "feature":
        assert_array(parts[..., length:], case.tensor(f"{variant}_query_d"))


def built(base: FewShotMethod, size: int = 4, n_base: int = 2, **options: Any) -> IFSL:
    torch.manual_seed(0)
    method = IFSL(base=base, **options)
    method.build((size,), n_base, Conv64F())
    return method


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


def episodes(size: int = 4) -> Batch:
    generator = torch.Generator().manual_seed(1)
    return Batch(
        support=torch.rand(2, 3, 2, size, generator=generator),
        query=torch.rand(2, 6, size, generator=generator),
        query_labels=torch.arange(6).expand(2, -1) % 3,
    )


def test_episodes_give_the_negative_log_likelihood_of_averaged_log_probabilities() -> None:
    method = built(MatchingNet(), n_splits=2, average="log-probabilities")
    method.loss(Batch(items=torch.rand(8, 4), classes=torch.arange(8) % 2))
    batch = episodes()
    assert batch.query_labels is not None
    scores = method.scores(*method.embed_episode(batch))
    expected = functional.nll_loss(scores.flatten(0, 1), batch.query_labels.flatten())
    torch.testing.assert_close(method.loss(batch), expected)


def test_each_part_has_weights_of_its_own() -> None:
    method = built(ANIL(n_way=3), n_splits=2)
    first, second = (base.classify.weight for base in method.bases)  # type: ignore[union-attr]
    assert first.shape == (3, 4)
    assert not torch.equal(first, second)
    method.loss(episodes()).backward()
    assert first.grad.any()  # type: ignore[union-attr,operator]
    assert second.grad.any()  # type: ignore[union-attr,operator]
    assert method.n_way == 3


def test_a_base_that_consumes_images_starts_from_the_parts_themselves() -> None:
    method = built(FineTune(steps=0, head="centroids"), n_splits=2).eval()
    plain = built(NCC(), n_splits=2).eval()
    batch = episodes()
    # 10 times cosines there, cosines of the means of unit vectors here.
    found = method.scores(*method.embed_episode(batch))
    expected = [
        10 * base.scores(support, query)
        for base, support, query in zip(
            plain.bases,
            plain.parts(batch.support).unbind(3),  # type: ignore[arg-type]
            plain.parts(batch.query).unbind(2),  # type: ignore[arg-type]
            strict=True,
        )
    ]
    each = torch.stack(expected).log_softmax(dim=3)
    torch.testing.assert_close(found, each.logsumexp(dim=0) - math.log(2))


def test_maml_adapts_scale_and_shift_of_the_parts() -> None:
    method = built(MAML(n_way=3, inner_lr=0.3), n_splits=2).train()
    method.loss(episodes()).backward()
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
        base.loss(Batch(items=parts[:, i], classes=classes))  # type: ignore[operator]
        for i, base in enumerate(method.bases)
    ]
    own = functional.cross_entropy(method.class_logits(items), classes)
    torch.testing.assert_close(loss, own + torch.stack(of_parts).mean())


def test_a_base_that_does_not_learn_refuses_episodes() -> None:
    with pytest.raises(OptionError, match="its base NCC from nothing"):
        built(NCC(), n_splits=2).loss(episodes())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"adjustment": "both"}, "adjustment must be one of feature, class, combined"),
        ({"n_splits": 0}, "n_splits must be at least 1, got 0"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"context": "probabilities"}, "needs adjustment 'class', got 'combined'"),
        ({"base": DN4()}, "base must consume vectors or images, but DN4 consumes maps"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        IFSL(**{"base": NCC(), **options})


def test_what_it_is_built_for_is_checked() -> None:
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
