"""Every known class of LibFewShot, with random weights, can be read and works.

Names and shapes of weights are listed here as LibFewShot has them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor

from fsf_importing.checkpoints import Checkpoint, read_checkpoint
from fsf_importing.deviation import _scores, deviation
from fsf_importing.libfewshot._backbones import BACKBONES
from fsf_importing.libfewshot._classifiers import CLASSIFIERS
from fsf_importing.reference import Reference, read_reference
from fsframework.errors import DataError

WAY, SHOT, QUERY = 3, 2, 4
N_BASE = 11
SIZE = 42
"""Images of 42 x 42 pixels leave maps of 2 x 2, which is enough here and fast."""
DIM = 64 * 2 * 2
SIZES = {"GAINModel": 84}
"""Of the images, for classes that work with one size only."""

Shapes = dict[str, tuple[int, ...]]


def norm(name: str, channels: int) -> Shapes:
    parts = ("weight", "bias", "running_mean", "running_var")
    return {**{f"{name}.{p}": (channels,) for p in parts}, f"{name}.num_batches_tracked": ()}


def conv_norm(name: str, *shape: int) -> Shapes:
    return {f"{name}.0.weight": shape, **norm(f"{name}.1", shape[0])}


def linear(name: str, out: int, inner: int, *kernel: int) -> Shapes:
    return {f"{name}.weight": (out, inner, *kernel), f"{name}.bias": (out,)}


def conv64f() -> Shapes:
    shapes: Shapes = {}
    for i in range(1, 5):
        shapes |= linear(f"emb_func.layer{i}.0", 64, 3 if i == 1 else 64, 3, 3)
        shapes |= norm(f"emb_func.layer{i}.1", 64)
    return shapes


def resnet12(*planes: int, name: str = "emb_func") -> Shapes:
    shapes: Shapes = {}
    for i, (before, width) in enumerate(zip((3, *planes), planes, strict=False), 1):
        block = f"{name}.layer{i}.0"
        for j in (1, 2, 3):
            shapes[f"{block}.conv{j}.weight"] = (width, before if j == 1 else width, 3, 3)
            shapes |= norm(f"{block}.bn{j}", width)
        shapes |= conv_norm(f"{block}.downsample", width, before, 1, 1)
    return shapes


PLANES = (4, 4, 6, 6)
BACKBONE: Mapping[str, tuple[Mapping[str, Any], Shapes]] = {
    "DeepBDC": (
        {"name": "resnet12Bdc", "kwargs": {"planes": list(PLANES), "reduce_dim": 3}},
        resnet12(*PLANES),
    ),
    "GAINModel": (
        {"name": "fgfl_resnet12", "kwargs": {"planes": list(PLANES)}},
        resnet12(*PLANES, name="encoder") | resnet12(*PLANES, name="encoder_f"),
    ),
}
"""Configuration and weights of the backbone, where it is not Conv64F."""


def renet(channels: int) -> Shapes:
    scr, cca = "scr_layer.model.1", "cca_layer.cca_module.conv"
    shapes = linear("fc", N_BASE, channels)
    shapes |= conv_norm(f"{scr}.conv1x1_in", 64, channels, 1, 1)
    shapes |= conv_norm(f"{scr}.conv1", 64, 64, 1, 3, 3)
    shapes |= conv_norm(f"{scr}.conv2", 64, 64, 1, 3, 3)
    shapes |= conv_norm(f"{scr}.conv1x1_out", channels, 64, 1, 1)
    shapes |= conv_norm("cca_layer.cca_1x1", 64, channels, 1, 1)
    for place, inner, outer in ((0, 1, 16), (2, 16, 1)):
        shapes |= conv_norm(f"{cca}.{place}.proj", outer, inner, 1, 1)
        shapes |= conv_norm(f"{cca}.{place}.conv1", inner, inner, 1, 3, 3)
        shapes |= conv_norm(f"{cca}.{place}.conv2", inner, inner, 3, 3, 1)
    return shapes


def can(side: int) -> Shapes:
    cam = "cam_layer.cam"
    return {
        **linear(f"{cam}.conv1.conv", side, side**2, 1, 1),
        **norm(f"{cam}.conv1.bn", side),
        **linear(f"{cam}.conv2", side**2, side, 1, 1),
        **linear("cam_layer.classifier", N_BASE, 64, 1, 1),
    }


def attention(name: str, length: int) -> Shapes:
    return {
        **{f"{name}.w_{x}s.weight": (length, length) for x in "qkv"},
        **linear(f"{name}.fc", length, length),
        f"{name}.layer_norm.weight": (length,),
        f"{name}.layer_norm.bias": (length,),
    }


def versa(dim: int) -> Shapes:
    shapes = {**linear("h.0", dim, DIM), **norm("h.1", dim)}
    for part in ("weight_mean", "weight_logvar", "bias_mean", "bias_logvar"):
        for layer in (0, 2, 4):
            out = 1 if part.startswith("bias") and layer == 4 else dim
            shapes |= linear(f"{part}.layers.{layer}", out, dim)
    return shapes


LAYERS = (1, 2, 3, 4)
HEAD = linear("classifier.layers.0", WAY, DIM)

TABLES = yaml.safe_load("""
kwargs:  # of a class, as in a configuration of LibFewShot
  ADM: {n_k: 2}
  ANIL: &steps {feat_dim: 256, inner_param: {lr: 0.02, train_iter: 2, test_iter: 3}}
  ATLNet:
    {feat_dim: 64, atten_scale_value: 40, from_value: 0.4, scale_value: 20, value_interval: 0.6}
  BOIL:
    feat_dim: 256
    inner_param: {classifier_lr: 0.0, extractor_lr: 0.02}
    testing_method: NIL
  Baseline: &baseline
    feat_dim: 256
    num_class: 11
    inner_param: &fitted
      inner_batch_size: 4
      inner_optim:
        {name: SGD, kwargs: {lr: 0.02, momentum: 0.9, dampening: 0.9, weight_decay: 0.003}}
      inner_train_iter: 10
  BaselinePlus: *baseline
  CAN: {HW: 2, iter_num_prob: 0.4667, nFeat: 64, num_classes: 11, scale_cls: 7}
  ConvMNet: {n_local: 4}
  DN4: {n_k: 2}
  DSN: {discriminative: true, enable_scale: true, eps: 0.2, lamb: 0.05}
  DeepBDC: {}
  FEAT: {balance: 0.1, hdim: 256, mode: cos_sim, temperature: 2, temperature2: 3}
  FRN: {}
  GAINModel: {balance: 0.02, temperature: 60.0, temperature2: 30, use_euclidean: true}
  LEO:
    encoder_penalty_weight: 1.0e-9
    feat_dim: 256
    hid_dim: 8
    inner_para: {finetune_iter: 2, finetune_lr: 0.01, iter: 3, lr: 0.5}
    kl_weight: 0.002
    orthogonality_penalty_weight: 0.003
  MAML: *steps
  MTL: {feat_dim: 256, inner_param: {iter: 4}, num_classes: 11, use_MTL: true}
  NegNet:
    feat_dim: 256
    inner_param: &negative {<<: *fitted, inner_margin: -0.1, inner_scale_factor: 5.0}
    margin: -0.2
    num_class: 11
    scale_factor: 10.0
  ProtoNet: {}
  R2D2: {}
  RENet:  # 5e-1 is a string in YAML, since it has no point
    {feat_dim: 64, lambda_epi: 5e-1, num_classes: 11, temperature: 0.2, temperature_attn: 2}
  RFSModel: {feat_dim: 256, num_class: 11, is_distill: false}
  RelationNet: {feat_dim: 64, feat_height: 1, feat_width: 1}
  SKDModel: {alpha: 0.2, feat_dim: 256, gamma: 0.9, is_distill: false, num_class: 11}
  VERSA: {d_theta: 8, drop_rate: 0.1, feat_dim: 256, sample_num: 4}

options:  # class, changes of its kwargs, and options of the method that follow
- [RENet, {}, {temperature: 0.2, temperature_attn: 2.0, lambda_epi: 0.5}]
- [ANIL, {}, {n_way: 3, inner_lr: 0.02, train_steps: 2, test_steps: 3}]
- [MAML, {}, {n_way: 3, inner_lr: 0.02, train_steps: 2, test_steps: 3}]
- [ANIL, {inner_param: {lr: 0.02, iter: 4}}, {train_steps: 4, test_steps: 4}]
- [MAML, {inner_param: {lr: 0.02, iter: 4}}, {train_steps: 4, test_steps: 4}]
# Both rates of BOIL are the extractor's, as in LibFewShot's code.
- [BOIL, {}, {n_way: 3, testing: nil, extractor_lr: 0.02, classifier_lr: 0.02}]
- [BOIL, {testing_method: Once_update}, {testing: adapted}]
- [LEO, {}, {latent_size: 8, inner_steps: 3, finetune_steps: 2, inner_lr: 0.5, finetune_lr: 0.01}]
- - LEO
  - {}
  - {kl_weight: 0.002, encoder_penalty_weight: 1.0e-9, orthogonality_weight: 0.003, sample: true}
# LibFewShot's CAN is the inductive one.
- [CAN, {}, {scale: 7.0, reduction: 2, fusion: mean, transductive: false}]
- [ADM, {}, {n_way: 3, n_k: 2}]
- [DN4, {}, {n_k: 2}]
- - ATLNet
  - {}
  - {scale: 20.0, attention_scale: 40.0, least_threshold: 0.4, threshold_range: 0.6}
- [ConvMNet, {}, {divisor: locations, dropout: 0.5}]
- [DeepBDC, {}, {reduce_dim: 3, metric: by-shot}]
- [FRN, {}, {divisor: 1.0, loss_divisor: 25.298221281347036, auxiliary_norm: task}]
- - DSN
  - {}
  - {centre: false, mirror: channels, learn_scale: true, smoothing: 0.2,
     discriminative_weight: 0.05}
- - DSN
  - {discriminative: false, enable_scale: false}
  - {discriminative_weight: 0.0, learn_scale: false}
- - FEAT
  - {}
  - {metric: cosine, temperature: 2.0, regulariser_temperature: 3.0, balance: 0.1,
     objective: libfewshot, dropout: 0.5, attention_dropout: 0.1}
- - GAINModel
  - {}
  - {temperature: 60.0, regulariser_temperature: 30.0, balance: 0.02, dropout: 0.5,
     attention_dropout: 0.1}
# Ten epochs of six images, four at a time.
- [Baseline, {}, {steps: 20, lr: 0.02, weight_decay: 0.003}]
- [BaselinePlus, {}, {steps: 20, lr: 0.02, weight_decay: 0.003}]
- [Baseline, {inner_param: {<<: *fitted, inner_train_iter: 100}}, {steps: null}]
- [BaselinePlus, {inner_param: {<<: *fitted, inner_train_iter: 100}}, {steps: null}]
- - Baseline
  - inner_param: {<<: *fitted, inner_optim: &adam {name: Adam, kwargs: {lr: 0.02}}}
  - &as_adam {optimizer: adam, lr: 0.02, weight_decay: 0.0}
- [BaselinePlus, {inner_param: {<<: *fitted, inner_optim: *adam}}, *as_adam]
- [NegNet, {inner_param: {<<: *negative, inner_optim: *adam}}, *as_adam]
- [NegNet, {}, {margin: -0.2, scale: 10.0, inner_margin: -0.1, inner_scale: 5.0}]
# Its batches are of 4 whatever the configuration says.
- [NegNet, {inner_param: {<<: *negative, inner_batch_size: 8}}, {steps: 20}]
- [MTL, {}, {n_way: 3, inner_lr: 0.01, train_steps: 4, test_steps: 4}]
- [VERSA, {}, {dim: 8, n_samples: 4, dropout: 0.1, average: logits, sample: true}]
- [SKDModel, {is_distill: false, kd_T: 3}, {gamma: 0.9, alpha: 0.2, temperature: 3.0}]
- [SKDModel, {is_distill: true}, {distill_gamma: 0.9, distill_alpha: 0.2}]
""")
KWARGS: Mapping[str, Mapping[str, Any]] = TABLES["kwargs"]
FITTED: Mapping[str, Any] = KWARGS["Baseline"]["inner_param"]

STEPS: Mapping[str, Any] = KWARGS["MAML"]["inner_param"]

WEIGHTS: Mapping[str, Shapes] = {
    "ADM": {**norm("adm_layer.normLayer", 2 * WAY), "adm_layer.fcLayer.weight": (1, 1, 2)},
    "ANIL": HEAD,
    "ATLNet": {
        **conv_norm("atlLayer.W", 64, 64, 1, 1),
        **linear("atlLayer.attenLayer.f_psi.0", 4, 64),
        **linear("atlLayer.attenLayer.f_psi.2", 1, 4),
    },
    "BOIL": HEAD,
    "Baseline": linear("classifier", N_BASE, DIM),
    "BaselinePlus": {
        "classifier.fc.weight_g": (N_BASE, 1),
        "classifier.fc.weight_v": (N_BASE, DIM),
    },
    "CAN": can(2),
    "ConvMNet": {
        "convm_layer.conv1dLayer.2.weight": (1, 1, 4),
        "convm_layer.conv1dLayer.2.bias": (1,),
    },
    "DN4": {},
    "DSN": {"scale": (1,)},
    "FEAT": attention("slf_attn", DIM),
    "DeepBDC": {
        "emb_func.bdc_pool.temperature": (1, 1),
        **conv_norm("emb_func.bdc_pool.conv_dr_block", 3, PLANES[-1], 1, 1),
    },
    "FRN": {"frn_layer.scale": (1,), "frn_layer.r": (2,)},
    "GAINModel": attention("slf_attn2", PLANES[-1]),
    "LEO": {
        **linear("encoder.encoder_func", 8, DIM),
        **{f"encoder.relation_net.{i}.weight": (16, 16) for i in (0, 2, 4)},
        **linear("decoder.decoder_func", 2 * DIM, 8),
    },
    "MAML": HEAD,
    "MTL": {
        **{f"emb_func.layer{i}.0.mtl_weight": (64, 3 if i == 1 else 64, 1, 1) for i in LAYERS},
        **{f"emb_func.layer{i}.0.mtl_bias": (64,) for i in LAYERS},
        "base_learner.vars.0": (WAY, DIM),
        "base_learner.vars.1": (WAY,),
    },
    "NegNet": {"NegLayer.weight": (N_BASE, DIM)},
    "ProtoNet": {},
    "R2D2": {f"classifier.{name}": (1,) for name in ("alpha", "beta", "gamma")},
    "RENet": renet(64),
    "RFSModel": linear("classifier", N_BASE, DIM),
    "RelationNet": {
        **linear("relation_layer.layers.0", 64, 128, 3, 3),
        **norm("relation_layer.layers.1", 64),
        **linear("relation_layer.layers.4", 64, 64, 3, 3),
        **norm("relation_layer.layers.5", 64),
        **linear("relation_layer.fc.0", 8, 64),
        **linear("relation_layer.fc.2", 1, 8),
    },
    "SKDModel": {**linear("cls_classifier", N_BASE, DIM), **linear("rot_classifier", 4, N_BASE)},
    "VERSA": versa(8),
}

ON_MAPS = ("ADM", "ATLNet", "CAN", "ConvMNet", "DN4", "FRN", "RENet", "RelationNet")
ON_LARGE_MAPS = {"last_pool": False, "maxpool_last2": False}
"""For RelationNet, whose convolutions do not pad: maps of 10 x 10 here."""


def random_weights(shapes: Shapes) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    weights: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        if name.endswith("num_batches_tracked"):
            weights[name] = torch.tensor(3)
        else:
            value = torch.randn(shape, generator=generator) / math.sqrt(math.prod(shape[1:]) or 1)
            # Variances, ridge terms and lengths are above 0.
            weights[name] = value.abs() + 0.5 if len(shape) < 2 or shape[1] == 1 else value
    return weights


def made_up(folder: Path, name: str, **changes: Any) -> Path:
    """Write a checkpoint of a class; ``changes`` are of its ``kwargs``."""
    larger = ON_LARGE_MAPS if name == "RelationNet" else {}
    conv64f_there = {"name": "Conv64F", "kwargs": {"is_flatten": name not in ON_MAPS, **larger}}
    config = {
        "backbone": BACKBONE[name][0] if name in BACKBONE else conv64f_there,
        "classifier": {"name": name, "kwargs": {**KWARGS[name], **changes}},
        "image_size": SIZES.get(name, SIZE),
        "way_num": WAY,
        "shot_num": SHOT,
        "query_num": QUERY,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    torch.save(random_weights(shapes_of(name)), folder / "model_best.pth")
    return folder


def shapes_of(name: str) -> Shapes:
    """Return the weights of a class and its backbone."""
    backbone = BACKBONE[name][1] if name in BACKBONE else conv64f()
    return backbone | WEIGHTS[name]


def imported(folder: Path) -> Checkpoint:
    return read_checkpoint("libfewshot", folder)


def test_every_class_is_covered() -> None:
    assert KWARGS.keys() == WEIGHTS.keys() == CLASSIFIERS.keys()
    assert BACKBONES.keys() == {"Conv64F", "fgfl_resnet12", "resnet12", "resnet12Bdc"}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", sorted(CLASSIFIERS))
def test_a_class_is_read_and_works(name: str, tmp_path: Path) -> None:
    found = imported(made_up(tmp_path, name))
    assert set(shapes_of(name)) <= set(found.read.names.values())
    shape = (WAY * (SHOT + QUERY), 3, found.read.image_size, found.read.image_size)
    images = np.random.default_rng(0).integers(0, 256, shape)
    path = tmp_path / "episode.npz"
    arrays = {"images": images.astype(np.uint8), "train_loss": np.array(1.0)}
    np.savez(path, output=np.zeros((WAY * QUERY, WAY)), **arrays)
    reference = read_reference(path, found.read)
    assert (reference.way, reference.shot, reference.query) == (WAY, SHOT, QUERY)
    answered = deviation(found, reference, tolerance=1e-3, perturbations=1)
    assert math.isfinite(answered.outputs.value)
    assert answered.outputs.value > 0
    assert math.isfinite(answered.outputs.rounding)
    assert answered.loss is not None
    assert math.isfinite(answered.loss)
    again = deviation(found, reference, tolerance=1e-3, perturbations=1)
    assert (again.outputs, again.loss) == (answered.outputs, answered.loss)


@pytest.mark.slow
def test_what_rounding_does_to_inner_steps_is_allowed_and_another_rate_is_not(
    tmp_path: Path,
) -> None:
    found = imported(made_up(tmp_path, "MAML", inner_param={**STEPS, "test_iter": 10}))
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (WAY * (SHOT + QUERY), SIZE, SIZE, 3)).astype(np.uint8)
    exact = found.model_as_there()
    images = exact.network.double().eval().images(torch.from_numpy(pixels))
    task = Reference(tmp_path / "a.npz", pixels, WAY, SHOT, QUERY, None, None, None)
    scores = _scores(exact, task, images, found.read)
    task = dataclasses.replace(task, scores=scores)
    # A tolerance that rounding to 32 bits exceeds.
    answered = deviation(found, task, tolerance=1e-9).outputs
    assert 1e-9 < answered.value <= answered.limit < 0.05
    (tmp_path / "other").mkdir()
    faster = {**STEPS, "lr": 0.03, "test_iter": 10}
    other = imported(made_up(tmp_path / "other", "MAML", inner_param=faster))
    assert not deviation(other, task, tolerance=1e-9).agrees


def refused(folder: Path, weights: Mapping[str, Tensor] | None = None) -> str:
    """Return the sentence with which a checkpoint, or one with other weights, is refused."""
    if weights is not None:
        torch.save(weights, folder / "model_best.pth")
    with pytest.raises(DataError) as caught:
        imported(folder)
    return str(caught.value)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", sorted(CLASSIFIERS))
def test_every_weight_of_a_class_is_needed_and_known(name: str, tmp_path: Path) -> None:
    state = torch.load(made_up(tmp_path, name) / "model_best.pth", weights_only=True)
    tried = WEIGHTS[name] or {"emb_func.layer1.1.bias": (64,)}
    told = refused(tmp_path, {k: v for k, v in state.items() if k not in tried})
    assert set(told.partition("weights missing: ")[2].split(", ")) == set(tried)
    told = refused(tmp_path, state | {k: torch.zeros(*tried[k], 2) for k in tried})
    assert all(f"{key} is " in told for key in tried), told
    told = refused(tmp_path, {**state, "more.weight": torch.zeros(2)})
    assert told.endswith("not in the model: more.weight")
    told = refused(made_up(tmp_path, name, surprise=1))
    assert "classifier.kwargs.surprise: unknown key" in told


FOR_COMPARISON = {
    "LEO": {"sample": False},
    "ConvMNet": {"dropout": 0.0},
    "FEAT": {"dropout": 0.0, "attention_dropout": 0.0},
}
"""A comparison is made without random numbers."""


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "changes", "expected"), TABLES["options"])
def test_the_options_of_a_class(
    name: str, changes: Mapping[str, Any], expected: Mapping[str, Any], tmp_path: Path
) -> None:
    found = imported(made_up(tmp_path, name, **changes))
    assert {key: found.method.options[key] for key in expected} == expected
    if name in FOR_COMPARISON:
        assert found.read.check_method_options == FOR_COMPARISON[name]
    if name == "DeepBDC":
        assert found.backbone.options["widths"] == PLANES
        assert not found.backbone.options["last_pool"]
    if name == "DSN":
        assert ("method.scale" in found.read.weights) == expected["learn_scale"]


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("BOIL", "testing_method", "Directly"),
        ("GAINModel", "use_euclidean", False),
        ("MTL", "use_MTL", False),
    ],
)
def test_a_variant_not_here_is_named(name: str, key: str, value: object, tmp_path: Path) -> None:
    assert f"{key} must be " in refused(made_up(tmp_path, name, **{key: value}))


def test_the_backbone_of_fgfl_that_is_not_used_is_ignored(tmp_path: Path) -> None:
    path = made_up(tmp_path, "GAINModel") / "model_best.pth"
    state = torch.load(path, weights_only=True)
    more = {"slf_attn2.attention.ba": torch.zeros(()), "emb_func.any": torch.zeros(2)}
    torch.save({**state, **more}, path)
    assert len(imported(tmp_path).read.names) == len(state)


@pytest.mark.parametrize(
    ("name", "message"),
    [("RMSprop", "by RMSprop"), ("SGD", "by SGD with momentum 0 and dampening 0")],
)
def test_another_optimiser_of_baseline_is_noted(name: str, message: str, tmp_path: Path) -> None:
    optimiser = {"name": name, "kwargs": {"lr": 0.01}}
    made_up(tmp_path, "Baseline", inner_param={**FITTED, "inner_optim": optimiser})
    found = imported(tmp_path)
    assert found.method.options["lr"] == 0.01, "the default, which suits the momentum"
    assert found.method.options["weight_decay"] == 0.001
    assert message in found.read.notes[-1]


def test_a_comparison_starts_where_the_reference_did(tmp_path: Path) -> None:
    fitted = KWARGS["NegNet"]["inner_param"] | {"inner_train_iter": 1}
    found = imported(made_up(tmp_path, "NegNet", inner_param=fitted))
    images = np.random.default_rng(0).integers(0, 256, (WAY * (SHOT + QUERY), 3, SIZE, SIZE))
    arrays = {"images": images.astype(np.uint8), "output": np.zeros((WAY * QUERY, WAY))}
    values = []
    for start in (None, np.eye(WAY, DIM, dtype=np.float32), -np.eye(WAY, DIM, dtype=np.float32)):
        given = {} if start is None else {"inner_weight": start}
        np.savez(tmp_path / "episode.npz", **arrays, **given)
        reference = read_reference(tmp_path / "episode.npz", found.read)
        assert set(reference.given) == set(given)
        answered = deviation(found, reference, tolerance=1e-3, perturbations=1)
        values.append(answered.outputs.value)
    assert len(set(values)) == 3


def test_relationnets_kernels_have_the_class_first(tmp_path: Path) -> None:
    found = imported(made_up(tmp_path, "RelationNet"))
    theirs = torch.load(tmp_path / "model_best.pth", weights_only=True)
    kernel = theirs["relation_layer.layers.0.weight"]
    ours = found.read.weights["method.first.conv.weight"]
    assert torch.equal(ours[:, :64], kernel[:, 64:])
    assert torch.equal(ours[:, 64:], kernel[:, :64])


def test_a_distilled_rfs_omits_its_teacher(tmp_path: Path) -> None:
    made_up(tmp_path, "RFSModel", is_distill=True, gamma=0.3, alpha=0.7, kd_T=2)
    path = tmp_path / "model_best.pth"
    state = torch.load(path, weights_only=True)
    torch.save({**state, "distill_layer.classifier.weight": torch.zeros(N_BASE, DIM)}, path)
    found = imported(tmp_path)
    chosen = found.method.options
    assert (chosen["alpha"], chosen["beta"], chosen["temperature"]) == (0.3, 0.7, 2.0)
    assert "teacher" in found.read.notes[0]
