from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fsf_methods.metric import DN4, R2D2, ProtoNet
from fsf_self_supervised.pretext import HTS, SSFSL
from fsf_self_supervised.pretext._hts import TreeLSTM
from fsf_self_supervised.views import ColorPermutation, Jigsaw, Patches, Rotation
from fsframework.interfaces import Batch, OptionError
from fsframework.testing.method import ToyBackbone, built


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_a_tree_of_two_leaves_worked_by_hand() -> None:
    tree = TreeLSTM(1)
    with torch.no_grad():
        for layer, values in ((tree.W_iou, (1, 0, 2)), (tree.U_iou, (0, 1, 1))):
            layer.weight.copy_(torch.tensor(values)[:, None])
        tree.W_iou.bias.copy_(torch.tensor([0.0, 1.0, 0.0]))
        tree.W_f.weight.fill_(1.0)
        tree.W_f.bias.fill_(0.5)
        tree.U_f.weight.fill_(-1.0)
        root, leaves = tree([torch.tensor([[2.0]]), torch.tensor([[1.0], [-1.0]])], [2])
    cells = [sigmoid(x) * math.tanh(2 * x) for x in (1.0, -1.0)]
    hidden = [sigmoid(1.0) * math.tanh(c) for c in cells]
    torch.testing.assert_close(leaves, torch.tensor(hidden)[None, :, None])
    forget = [sigmoid(2.0 + 0.5 - h) for h in hidden]
    below = sum(f * c for f, c in zip(forget, cells, strict=True))
    cell = sigmoid(2.0) * math.tanh(4.0 + sum(hidden)) + below
    expected = sigmoid(1.0 + sum(hidden)) * math.tanh(cell)
    assert root.item() == pytest.approx(expected, rel=1e-5)


def node(tree: TreeLSTM, x: Tensor, children: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return hidden state and cell of one node ``(D,)``, plainly."""
    gates = tree.W_iou(x)
    if children:
        gates = gates + tree.U_iou(torch.stack([h for h, _ in children]).sum(dim=0))
    i, o, u = gates.split(len(x))
    cell = i.sigmoid() * u.tanh()
    for h, c in children:
        cell = cell + (tree.W_f(x) + tree.U_f(h)).sigmoid() * c
    return o.sigmoid() * cell.tanh(), cell


@torch.no_grad()
def test_two_levels_hang_on_their_own_views() -> None:
    turn, swap = Rotation(angles=(0, 180)), ColorPermutation(orders=("rgb", "grb", "bgr"))
    method = built(lambda: HTS(base=ProtoNet(), views=turn, deeper=(swap,), beta=0.5))
    images = torch.randn(4, 3, 20, 20)
    root, first, second = method.nodes(images, method.viewed(images))
    assert (first.shape, second.shape) == ((4, 2, 32), (8, 3, 32))
    encode, tree = method.backbone.encode, method.tree
    for i, image in enumerate(images):
        above = []
        for j, view in enumerate(method.viewed(image[None])[0]):
            deep = encode(method.made(swap, view[None]).images[0])
            below = [node(tree, x, []) for x in deep]
            torch.testing.assert_close(second[2 * i + j], torch.stack([h for h, _ in below]))
            above.append(node(tree, encode(view[None])[0], below))
        torch.testing.assert_close(first[i], torch.stack([h for h, _ in above]))
        torch.testing.assert_close(root[i], node(tree, encode(image[None])[0], above)[0])
    assert torch.equal(method.embed(images), root)
    # The loss: the base's on the roots, and half of both levels'.
    labels = torch.tensor([[1, 0]])
    batch = Batch(images[None, :2, None], images[None, 2:], labels)
    scores = ProtoNet().scores(root[None, :2, None], root[None, 2:])[0]
    expected = functional.cross_entropy(scores, labels[0])
    for classify, hidden in zip(method.classifiers, (first, second), strict=True):
        numbers = torch.arange(hidden.shape[1]).repeat(len(hidden))
        expected += 0.5 * functional.cross_entropy(classify(hidden.flatten(0, 1)), numbers)
    torch.testing.assert_close(method.loss(batch), expected)


def test_all_images_of_a_tree_pass_the_backbone_together() -> None:
    seen: list[int] = []
    method = built(lambda: HTS(base=R2D2(), views=Rotation()))
    [backbone] = [m for m in method.modules() if isinstance(m, ToyBackbone)]
    backbone.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    method.embed(torch.randn(3, 3, 20, 20))
    assert seen == [15]
    patched = built(lambda: HTS(base=R2D2(), views=Patches(gap=0.0)))
    assert patched.embed(torch.randn(3, 3, 20, 20)).shape == (3, 32)


def test_what_does_not_fit_is_one_sentence() -> None:
    with pytest.raises(OptionError, match="nodes of a tree are, but DN4 is not"):
        HTS(base=DN4(), views=Rotation())
    with pytest.raises(OptionError, match="nodes of a tree are, but SSFSL is not"):
        HTS(base=SSFSL(base=ProtoNet(), views=Rotation()), views=Rotation())
    with pytest.raises(OptionError, match="views must make .* but Jigsaw does not"):
        HTS(base=ProtoNet(), views=Jigsaw())
    with pytest.raises(OptionError, match="deeper must make .* but Jigsaw does not"):
        HTS(base=ProtoNet(), views=Rotation(), deeper=(Jigsaw(),))
    with pytest.raises(OptionError, match="beta must be at least 0, got -1"):
        HTS(base=ProtoNet(), views=Rotation(), beta=-1.0)
