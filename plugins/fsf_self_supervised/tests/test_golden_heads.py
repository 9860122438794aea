"""Losses and scores agree with what the reference codes return."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn import functional

from fsf_methods.transfer import Logistic
from fsf_self_supervised.methods import OpTA, PsCo, UniSiam
from fsf_self_supervised.methods._losses import balanced
from fsf_self_supervised.methods._opta import (
    relative_cost,
    standardised,
    transport_plan,
    transported,
)
from fsf_self_supervised.methods._pairs import cosines_to_means
from fsframework.testing.method import ToyBackbone
from tests.golden_heads import (
    Case,
    assert_array,
    assert_loss,
    assert_scores,
    golden_heads,
    read_case,
)
from tests.toy_views import Dimmed


def unisiam(case: Case) -> UniSiam:
    shapes = {name: tuple(t.shape) for name, t in case.parameters.items()}
    width, size = shapes["proj.0.weight"]
    taught = "teacher_features" in case.arrays
    method = UniSiam(
        views=Dimmed(),
        weight=case.number("lamb"),
        temperature=case.number("temp"),
        width=width,
        teacher_width=case.tensor("teacher_features").shape[1] if taught else None,
    )
    method.build((size,), 0, ToyBackbone())
    load(method.project, case, "proj")
    load(method.predict, case, "pred")
    if taught:
        load(method.follow, case, "pred_dist")
    return method.train()


def load(head: torch.nn.Module, case: Case, prefix: str) -> None:
    own = {
        name.removeprefix(f"{prefix}."): tensor
        for name, tensor in case.parameters.items()
        if name.startswith(f"{prefix}.")
    }
    # Steps are counted by BatchNorm; the cases do not have them.
    missing, unexpected = head.load_state_dict(own, strict=False)
    assert not unexpected
    assert all(name.endswith("num_batches_tracked") for name in missing)


@golden_heads("UniSiam")
@torch.no_grad()
def test_golden_heads_unisiam(path: Path) -> None:
    case = read_case(path)
    method, features = unisiam(case), case.tensor("features")
    projected = method.project(features)
    assert_array(projected, case.tensor("projections"))
    spread = functional.normalize(projected, dim=1).std(dim=0).mean()
    assert_loss(spread, case.number("std"))
    aligned, uniform = method.terms(features)
    assert_loss(aligned, case.number("loss_positive"))
    assert_loss(uniform, case.number("loss_negative"))
    loss = aligned + method.weight * uniform
    if "teacher_features" in case.arrays:
        loss = (loss + method.alike(features, case.tensor("teacher_features"))) / 2
    assert_loss(loss, case.number("loss"))


@golden_heads("PsCo")
@torch.no_grad()
def test_golden_heads_psco(path: Path) -> None:
    case = read_case(path)
    queue = case.tensor("queue")
    method = PsCo(
        views=Dimmed(),
        shots=int(case.number("num_shots")),
        temperature=case.number("temperature"),
        shot_temperature=case.number("temperature2"),
        epsilon=case.number("epsilon"),
        iterations=int(case.number("sinkhorn_iter")),
        queue=len(queue),
        width=queue.shape[1],
        hidden=8,
    )
    method.build((4,), 0, ToyBackbone())
    method.keys.entries.copy_(queue)
    first, second = (functional.normalize(case.tensor(f"view{i}"), dim=1) for i in (1, 2))
    similar = second @ queue.mT
    assert_array(similar, case.tensor("similarity"))
    shares = method.assigned(second)
    assert_array(shares, case.tensor("assignments"))
    other = balanced(similar, method.epsilon, method.iterations, rows_last=False)
    assert_array(other, case.tensor("assignments_column"))
    assert torch.equal(method.chosen(shares).sort(dim=1).values, case.tensor("indices"))
    assert_loss(method.contrast(first, second), case.number("loss"))
    method.after_step({"keys": second})
    assert_array(method.keys.entries, case.tensor("queue_after"))
    support, query = case.tensor("support")[None], case.tensor("query")[None]
    # Several tasks at once.
    pair = torch.cat([support, support.flip(3)]), torch.cat([query, query.roll(1, 2)])
    assert_scores(cosines_to_means(*pair)[0], case.tensor("scores"))


@golden_heads("OpTA")
def test_golden_heads_opta(path: Path) -> None:
    case = read_case(path)
    method = OpTA(
        classifier=Logistic(),
        passes=int(case.number("passes")),
        ratio=case.number("ratio"),
        epsilon=case.number("regularization"),
        max_iter=int(case.number("max_iter")),
        tol=case.number("threshold"),
    )
    given = case.tensor("support")[None], case.tensor("query")[None]
    # Three tasks at once, of which the others stop earlier or later.
    others = ((1.0, 3), (0.05, 1))
    tasks = [
        torch.cat([t, *(s * t.roll(k, -1) + (1 - s) * t.mean(-1, True) for s, k in others)])
        for t in given
    ]
    support, query = (standardised(t) for t in tasks)
    assert_array(query[0], case.tensor("query_used"))
    means = support.mean(dim=2)
    cost = relative_cost(means, query)
    assert_array(cost[0], case.tensor("cost_first"))
    stops = method.epsilon, method.max_iter, method.tol
    assert_array(transport_plan(cost, *stops)[0], case.tensor("plan_first"))
    first = last = transported(means, query, *stops)
    for _ in range(int(case.number("passes")) - 1):
        last = transported(last, query, *stops)
    assert_array(first[0], case.tensor("transported_first"))
    assert_array(last[0], case.tensor("transported_last"))
    assert_array(method.prototypes(support, query)[0], case.tensor("prototypes"))
    scores = method.scores(*tasks)[0]
    assert_scores(scores, case.tensor("scores"))
    assert_array(scores.softmax(dim=1), case.tensor("probability"))
    # The number of passes that the authors' code chooses.
    usual = OpTA(classifier=Logistic())
    if case.number("passes") == (5 if case.shot == 1 else 1):
        assert_scores(usual.scores(*given)[0], case.tensor("scores"))
