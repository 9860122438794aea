from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fsf_backbones import Conv64F
from fsf_methods.cross_domain import FT
from fsf_methods.cross_domain._ft import Transformation
from fsf_methods.gradient import MAML
from fsf_methods.metric import ProtoNet, RelationNet
from fsf_methods.transductive import GNN, TPN
from fsf_methods.transfer import NCC
from fsframework.interfaces import Batch, OptionError
from fsframework.testing import parametrize_with_checks
from fsframework.testing.method import ToyBackbone
from tests.golden_heads import assert_array, golden_heads, read_case


def wrapped(base: type, **options: Any) -> FT:
    return FT(base=base(), **options)


@parametrize_with_checks([partial(wrapped, TPN), partial(wrapped, ProtoNet)])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


@golden_heads("FWT")
def test_golden_heads_fwt(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = read_case(path)
    width = case.arrays["input"].shape[1]
    norm = nn.BatchNorm2d(width, eps=case.number("eps"), momentum=case.number("momentum"))
    parameters = case.parameters
    for name in ("weight", "bias", "running_mean", "running_var"):
        getattr(norm, name).data.copy_(parameters[name])
    layer = Transformation(width, 0.3, 0.5)
    for name in ("gamma", "beta"):
        getattr(layer, name).data.copy_(parameters[name].flatten())
    norm.register_forward_hook(layer)
    with torch.no_grad():
        assert_array(norm.eval()(case.tensor("input")), case.tensor("output_eval"))
        # In evaluation nothing is transformed, and training of another method does not either.
        norm.train()
        layer.eval()
        plain = copy.deepcopy(norm)(case.tensor("input"))
        noise = iter([case.tensor("noise_gamma").flatten(), case.tensor("noise_beta").flatten()])
        monkeypatch.setattr(torch, "randn", lambda *shape, device: next(noise))
        layer.train()
        found = norm(case.tensor("input"))
    assert_array(found, case.tensor("output"))
    assert (found - plain).abs().max() > 0.1
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert_array(norm.running_mean, case.tensor("running_mean_after"))
    assert_array(norm.running_var, case.tensor("running_var_after"))


def episode(items: Tensor) -> Batch:
    """One task of two ways, one shot and two queries."""
    return Batch(
        support=items[:2].reshape(1, 2, 1, *items.shape[1:]),
        query=items[None, 2:4],
        query_labels=torch.tensor([[0, 1]]),
    )


@pytest.mark.parametrize("base", [RelationNet, partial(GNN, n_way=2, nf=8), TPN])
def test_training_differs_from_step_to_step_and_evaluation_is_that_of_the_base(
    base: Any,
) -> None:
    torch.manual_seed(0)
    backbone, images = ToyBackbone(), torch.randn(4, 3, 20, 20)
    method = FT(base=base())
    maps = method.consumes == "maps"
    method.build((32, 5, 5) if maps else (32,), 0, backbone)

    def items() -> Tensor:
        return backbone(images) if maps else backbone.encode(images)

    plain = items()  # nothing is drawn before the method is trained
    method.train()
    first, second = items(), items()
    assert not torch.allclose(first, second)
    assert not torch.allclose(first, plain)
    assert torch.isfinite(method.loss(episode(first)))
    method.eval()
    torch.testing.assert_close(items(), plain)
    method.train()
    backbone.eval()  # frozen
    torch.testing.assert_close(items(), items())
    batch = episode(items())
    method.eval()
    own = method.scores(*method.embed_episode(batch))
    torch.testing.assert_close(own, method.base.scores(*method.base.embed_episode(batch)))


def test_a_copy_has_transformations_of_its_own() -> None:
    backbone, method = ToyBackbone(), FT(base=ProtoNet())
    method.build((32,), 0, backbone)
    own, other = copy.deepcopy((backbone, method))
    images = torch.randn(2, 3, 20, 20)
    method.train()  # and not the copy, such as a teacher
    torch.testing.assert_close(own(images), own(images))
    method.eval()
    other.train()
    torch.testing.assert_close(backbone(images), backbone(images))
    assert not torch.allclose(own(images), own(images))


def test_it_nests_on_a_method_that_runs_the_backbone_itself() -> None:
    torch.manual_seed(0)
    backbone = ToyBackbone()
    method = FT(base=MAML(n_way=2, train_steps=1), layers=("blocks.1.1",))
    method.build((3, 20, 20), 0, backbone)
    assert method.consumes == "images"
    assert method.n_way == 2
    assert len(method.transformations) == 1
    batch = episode(torch.randn(4, 3, 20, 20))
    method.train()
    assert method.loss(batch) != method.loss(batch)


def test_what_cannot_be_transformed_is_one_sentence() -> None:
    method = FT(base=ProtoNet(), layers=("layer?.bn2",))
    with pytest.raises(OptionError, match=r"got layer\?.bn2; it has blocks.0.1, blocks.1.1"):
        method.build((32,), 0, ToyBackbone())
    with pytest.raises(OptionError, match="a method that learns, but NCC does not"):
        FT(base=NCC())
    with pytest.raises(OptionError, match="theta_beta must be finite, got nan"):
        FT(base=ProtoNet(), theta_beta=float("nan"))
    with pytest.raises(OptionError, match="layers must name at least one layer"):
        FT(base=ProtoNet(), layers=())


def test_all_norms_of_a_backbone_are_transformed_by_default() -> None:
    method = FT(base=ProtoNet())
    method.build((1600,), 0, Conv64F())
    assert len(method.transformations) == 4
    assert not list(method.parameters())
    assert not method.state_dict()
