"""Heads, losses and scores agree with what the reference codes return."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.metric import ProtoNet
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
from fsf_self_supervised.pretext import HTS, SLA, SSFSL
from fsf_self_supervised.pretext._hts import level_loss
from fsf_self_supervised.views import ColorPermutation, Rotation
from fsframework.interfaces import Backbone, Batch, FewShotMethod, Preprocessing, ViewMaker, Views
from fsframework.testing.method import ToyBackbone
from tests.golden_heads import (
    Case,
    assert_array,
    assert_loss,
    assert_scores,
    golden_heads,
    load,
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
    load(method, case, {"proj.": "project.", "pred.": "predict.", "pred_dist.": "follow."})
    return method.train()


@golden_heads("UniSiam")
@torch.no_grad()
def test_unisiam(path: Path) -> None:
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
def test_psco(path: Path) -> None:
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
def test_opta(path: Path) -> None:
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


ORDERS = {
    "color_perm6": ("rgb", "rbg", "grb", "gbr", "brg", "bgr"),
    "color_perm3": ("rgb", "gbr", "brg"),
    "color_perm2": ("gbr", "brg"),
    "color_perm1": ("gbr",),
}
MAKERS = {
    "rotation": Rotation(angles=(0, 90, 180, 270)),
    "rotation4": Rotation(angles=(0, 90, 180, 270)),
    "rotation33": Rotation(angles=(90, 180, 270)),
    "rotation3": Rotation(angles=(0, 90, 270)),
    "rotation2": Rotation(angles=(0, 180)),
    "rotation1": Rotation(angles=(90,)),
    "color_perm": ColorPermutation(orders=ORDERS["color_perm6"]),
    **{name: ColorPermutation(orders=orders) for name, orders in ORDERS.items()},
}
"""What the references call sets of views."""


class Numbers(Backbone):
    """An image's vector is its first numbers, or a linear map of all of them."""

    def __init__(self, width: int, weight: Tensor | None = None) -> None:
        super().__init__()
        self.width, self.weight = width, weight
        self.preprocessing = Preprocessing(8, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))

    def forward(self, images: Tensor) -> Tensor:
        flat = images.flatten(1)
        if self.weight is not None:
            flat = 3 * functional.normalize(flat @ self.weight.T, dim=-1)
        return flat[:, : self.width, None, None]


class Made(ViewMaker):
    """Views of a kind that only a file knows."""

    def __init__(self, n_kinds: int, *, together: bool) -> None:
        self.n_views, self.n_kinds, self.together = 9 if together else n_kinds, n_kinds, together

    def make(self, images: Tensor) -> Views:
        raise NotImplementedError


def as_images(features: Tensor) -> Tensor:
    """Return images ``(..., 3, s, s)`` whose first numbers are the features ``(..., D)``."""
    side = math.ceil((features.shape[-1] / 3) ** 0.5)
    padded = functional.pad(features, (0, 3 * side * side - features.shape[-1]))
    return padded.unflatten(-1, (3, side, side))


def task_of(case: Case) -> Batch:
    """Return the case's task, as a batch of one."""
    support, query = case.tensor("support"), case.tensor("query")
    labels = case.tensor("query_labels")
    return Batch(support[None], query[None], labels[None])


@golden_heads("SSFSL")
def test_ssfsl(path: Path) -> None:
    case = read_case(path)
    batch, hidden = task_of(case), len(case.parameters["fc7.fc7.weight"])
    vectors, labels = case.tensor("patch_features"), case.tensor("pretext_labels")
    together = case.text("pretext") == "jigsaw"
    last = f"classifier_{case.text('pretext')}.fc8" if not together else "classifier.fc8"
    method = SSFSL(
        base=ProtoNet(),
        views=Made(len(case.parameters[f"{last}.weight"]), together=together),
        lbda=case.number("lbda"),
        hidden=hidden,
        dropout=0.0,
    )
    width = vectors.shape[-1]
    method.build((width,), 9, Numbers(width))
    load(method.head, case, {"fc6.fc6_s1": "each", "fc7.fc7": "joint", last: "classify"})
    flat = vectors if together else vectors.flatten(0, 1)[:, None]
    assert_array(method.head(flat), case.tensor("pretext_scores"))
    applied = labels[:, None].expand(-1, 9) if together else labels
    shown = dataclasses.replace(
        batch,
        support=as_images(batch.support),
        query=as_images(batch.query),
        views=as_images(vectors),
        applied=applied,
    )
    assert_loss(method.pretext_loss(shown).detach(), case.tensor("loss_pretext"))
    assert_loss(method.base_loss(shown).detach(), case.tensor("loss_episode"))
    assert_loss(method.loss(shown).detach(), case.tensor("loss"))
    assert_scores(method.scores(batch.support, batch.query)[0], case.tensor("scores"))


class Joint(FewShotMethod):
    """A linear classifier of the base classes."""

    learns_from = "batches"

    def __init__(self, given: dict[str, Tensor]) -> None:
        super().__init__()
        self.given = given

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        self.layer = nn.Linear(item_shape[0], n_base_classes)
        for name in ("joint", "single"):
            state = {part: self.given[f"{name}.{part}"] for part in ("weight", "bias")}
            if len(state["weight"]) == n_base_classes:
                self.layer.load_state_dict(state)

    def class_logits(self, items: Tensor) -> Tensor:
        logits: Tensor = self.layer(items)
        return logits

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        raise NotImplementedError

    def loss(self, batch: Batch) -> Tensor:
        return functional.cross_entropy(self.class_logits(batch.items), batch.classes)


@golden_heads("SLA")
def test_sla(path: Path) -> None:
    case = read_case(path)
    images, m = case.tensor("images"), int(case.number("n_augmentations"))
    maker = MAKERS[case.text("augmentation")]
    assert maker.n_views == m
    torch.testing.assert_close(maker.make(images).images.flatten(0, 1), case.tensor("augmented"))
    options = {"views": maker, "temperature": case.number("T")}
    plain = SLA(base=Joint(case.parameters), **options)
    distilled = SLA(base=Joint(case.parameters), self_distillation=True, **options)
    single = SLA(base=Joint(case.parameters), inference="single", **options)
    for method in (plain, distilled, single):
        width = images[0].numel()
        n_classes = len(case.parameters["single.weight"])
        method.build(images.shape[1:], n_classes, Numbers(width))
    batch = Batch(items=images, classes=case.tensor("labels"))
    assert_loss(plain.loss(batch).detach(), case.tensor("loss"))
    assert_loss(m * plain.loss(batch).detach(), case.tensor("loss_large"))
    assert_loss(distilled.loss(batch).detach(), case.tensor("loss_sd"))
    assert_scores(plain.class_logits(images), case.tensor("scores"))
    assert_scores(distilled.class_logits(images), case.tensor("scores"))
    assert_scores(single.class_logits(images), case.tensor("single_scores"))


@golden_heads("HTS")
def test_hts(path: Path) -> None:
    case = read_case(path)
    batch = task_of(case)
    [pretext] = case.arrays["pretext_tasks"].tolist()
    weight = case.parameters["backbone.weight"]
    method = HTS(base=ProtoNet(), views=MAKERS[pretext], beta=case.number("ssl_trade"))
    method.build(batch.query.shape[2:], 9, Numbers(len(weight), weight))
    classifier = "classifier0.classifier"
    load(method, case, {"W_": "tree.W_", "U_": "tree.U_", classifier: "classifiers.0"})
    with torch.no_grad():
        support, query = method.embed_episode(batch)
        levels = method.nodes(batch.query[0], method.viewed(batch.query[0]))
        found, loss = method.scores(support, query)[0], method.loss(batch)
        images = torch.cat([batch.support.flatten(0, 2), batch.query[0]])
        both = method.nodes(images, method.viewed(images))[1]
        pretext_loss = level_loss(method.classifiers[0], both)
    assert_array(support[0].flatten(0, 1), case.tensor("support_embeddings"))
    assert_array(query[0], case.tensor("query_embeddings"))
    assert_array(support[0].mean(dim=1), case.tensor("prototypes"))
    hidden = torch.cat([levels[0][:, None], levels[1]], dim=1).flatten(0, 1)
    assert_array(hidden, case.tensor("query_hidden"))
    assert_scores(found, case.tensor("scores"))
    assert_loss(loss, case.tensor("loss"))
    assert_loss(pretext_loss, case.tensor("loss_pretext"))
