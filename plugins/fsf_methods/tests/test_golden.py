"""Agreement of methods with the reference heads."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_backbones import ResNet10
from fsf_methods.adaptation import CDKT, DETA, TSA
from fsf_methods.adaptation._adapters import Adapters, vectors_of
from fsf_methods.adaptation._deta import clustering_loss, patch_scores, patch_weights, prototypes
from fsf_methods.adaptation._logistic_softmax import MeanField, drawn_probabilities
from fsf_methods.cross_domain._ft import Transformation
from fsf_methods.interventional import IFSL
from fsf_methods.local import CPEA, FRN, DeepBDC, STLDeepBDC
from fsf_methods.transductive import GNN, SIB, TPN
from fsf_methods.transfer import LPFTFB, RFS, DistributionCalibration
from fsf_methods.transfer._classifiers import penalised_loss
from fsf_methods.transfer._fit import n_steps
from fsframework.interfaces import Backbone, Batch, FewShotMethod
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


def batch_of(case: Case) -> Batch:
    names = "support", "query", "query_labels"
    return Batch(*(case.tensor(name)[None] for name in names))


def built(method: Any, case: Case, n_base: int = 0) -> Any:
    """Build a method for the items of a case."""
    method.build(case.arrays["query"].shape[1:], n_base, ToyBackbone())
    return method


CPEA_LAYERS = {
    "fc1.fc1": "shift.first",
    "fc1.fc2": "shift.second",
    "fc2.fc1": "relate.first",
    "fc2.fc2": "relate.second",
    "fc_norm1": "norm",
}


@golden_heads("CPEA")
def test_cpea(path: Path) -> None:
    case = read_case(path)
    method = CPEA(smoothing=case.number("label_smoothing"))
    n_tokens, channels = case.arrays["query"].shape[1:]
    method.build((channels, n_tokens - 1, 1), 0, ToyBackbone())
    load(method, case, CPEA_LAYERS)
    method.eval()
    with torch.no_grad():
        support = method.adapt(case.tensor("support").flatten(0, 1))
        query = method.adapt(case.tensor("query"))
        support = support.reshape(1, case.way, case.shot, *support.shape[1:])
        scores = method.scores(support, query[None])
        assert_scores(scores[0], case.tensor("scores"))
        loss = method.smoothed(scores, case.tensor("query_labels")[None])
        assert_loss(loss, case.tensor("loss"))


def with_pooling(method: Any, case: Case) -> Any:
    """Build a method and load the pooling of a case."""
    built(method, case)
    load(method.pool, case, {"dcov.temperature": "log_scale", "dcov.conv_dr_block": "reduce"})
    return method.eval()


@golden_heads("DeepBDC")
def test_deepbdc(path: Path) -> None:
    case = read_case(path)
    method = with_pooling(DeepBDC(reduce_dim=int(case.number("reduce_dim"))), case)
    batch = batch_of(case)
    vectors = method.embed_episode(batch)
    by_class = torch.cat([vectors[0][0], vectors[1].reshape(case.way, -1, vectors[1].shape[2])], 1)
    assert_array(by_class.flatten(0, 1), case.tensor("embeddings"))
    assert_scores(method.scores(*vectors)[0], case.tensor("scores"))
    assert_loss(method.train().loss(batch).detach(), case.tensor("loss"))


@golden_heads("DeepBDC")
def test_stl_deepbdc(path: Path) -> None:
    case = read_case(path)
    c, width = case.number("penalty_C"), int(case.number("reduce_dim"))
    method = with_pooling(STLDeepBDC(classifier=RFS(c=c, tol=1e-8), reduce_dim=width), case)
    found = method.scores(*method.embed_episode(batch_of(case)))[0]
    # The stopping rule of the reference's solver leaves 4e-3 of the spread with a small C.
    tolerance = 4e-2 if c < 1 else 1e-3
    assert_scores(found, case.tensor("stl_decision"), tolerance)
    assert torch.equal(found.argmax(dim=1), case.tensor("stl_labels"))
    probability = case.tensor("stl_probability")
    torch.testing.assert_close(found.softmax(dim=1), probability, rtol=0, atol=tolerance)


@golden_heads("FRN")
def test_frn(path: Path) -> None:
    case = read_case(path)
    method, without = FRN(auxiliary_norm="task"), FRN(auxiliary_weight=0.0)
    for one in (method, without):
        parameters = case.parameters
        one.load_state_dict({"scale": parameters["scale"], "exponents": parameters["r"]})
    batch = batch_of(case)
    embedded = method.embed_episode(batch)
    assert_scores(method.eval().scores(*embedded)[0], case.tensor("scores"))
    assert_scores(-method.errors(*embedded)[0], case.tensor("neg_l2_dist"))
    overlap = method.auxiliary_weight * method.overlap(embedded[0])
    assert_array(overlap, case.tensor("auxiliary")[None])
    assert_loss(method.train().loss(batch).detach(), case.tensor("loss"))
    assert_loss(without.loss(batch).detach(), case.tensor("nll"))


def gnn(case: Case, prefix: str, **options: Any) -> GNN:
    """The method with a case's parameters, whose names are translated."""
    method = built(GNN(n_way=case.way, nf=int(case.number("nf")), **options), case)
    layers = {"fc.0": "reduce", "fc.1": "reduce_norm", f"{prefix}.layer_last.fc": "last"}
    for number, stem in enumerate(("w0", "w1", "w_comp_last")):
        block = f"{prefix}.{stem if number == 2 else 'layer_' + stem}"
        for place in range(4):
            layers[f"{block}.conv2d_{place + 1}"] = f"edges.{number}.layers.{place}"
            layers[f"{block}.bn_{place + 1}"] = f"edges.{number}.norms.{place}"
        layers[f"{block}.conv2d_last"] = f"edges.{number}.last"
    for number in range(2):
        layers[f"{prefix}.layer_l{number}.fc"] = f"layers.{number}"
        layers[f"{prefix}.layer_l{number}.bn"] = f"norms.{number}"
    load(method, case, layers)
    return method


@golden_heads("GNN")
def test_gnn(path: Path) -> None:
    case = read_case(path)
    method = gnn(case, "gnn", width=128, statistics="batch", graph="class", unknown="zeros")
    batch = batch_of(case)
    # Several tasks at once: the other one has other statistics.
    support = torch.cat([batch.support, batch.support.flip(3)])
    query = torch.cat([batch.query, 2 * batch.query])
    assert_scores(method.eval().scores(support, query)[0], case.tensor("scores"))
    assert_loss(method.train().loss(batch).detach(), case.number("loss"))


@golden_heads("GNNoriginal")
def test_gnn_original(path: Path) -> None:
    case = read_case(path)
    method, batch = gnn(case, "gnn_obj", unknown="zeros").eval(), batch_of(case)
    assert_scores(method.scores(batch.support, batch.query)[0], case.tensor("scores"))
    method.train()
    assert_scores(method.scores(batch.support, batch.query)[0], case.tensor("scores_train"))
    assert_loss(method.loss(batch).detach(), case.number("loss"))


SIB_LAYERS = {
    "bias": "bias",
    "scale_cls": "scale",
    "wnLayerFavg.weight": "weight",
    "dni.layer1.0": "gradient.0",
    "dni.layer1.2": "gradient.2",
    "dni.layer2.0": "gradient.3",
    "dni.layer2.2": "gradient.5",
    "dni.layer3": "gradient.6",
}


def sib(case: Case, **options: Any) -> SIB:
    """The method with a case's parameters, without running statistics, which are never used."""
    given = {"steps": int(case.number("q_steps")), "lr": case.number("lr"), **options}
    method = built(SIB(n_way=case.way, **given), case)
    load(method, case, SIB_LAYERS)
    return method


@golden_heads("SIB")
def test_sib(path: Path) -> None:
    case = read_case(path)
    batch = batch_of(case)
    method = sib(case)
    # Several tasks at once: the other one has other statistics.
    support = torch.cat([batch.support, batch.support.flip(3)])
    query = torch.cat([batch.query, batch.query.roll(1, 2)])
    assert_scores(method.eval().scores(support, query)[0], case.tensor("scores"))
    start = sib(case, steps=0).scores(batch.support, batch.query)
    assert_scores(start[0], case.tensor("scores_initial"))
    assert_loss(method.train().loss(batch).detach(), case.number("loss"))


TPN_LAYERS = {
    "relation.layer1.0": "scale.0",
    "relation.layer1.1": "scale.1",
    "relation.layer2.0": "scale.4",
    "relation.layer2.1": "scale.5",
    "relation.fc3": "scale.9",
    "relation.fc4": "scale.11",
}


@golden_heads("TPN")
def test_tpn(path: Path) -> None:
    case = read_case(path)
    method = built(TPN(k=int(case.number("k")), alpha=case.number("alpha")), case).eval()
    load(method, case, TPN_LAYERS)
    batch = batch_of(case)
    maps = torch.cat([batch.support.flatten(0, 2), batch.query[0]])
    assert_array(method.scale(maps), case.tensor("sigma"))
    embedded = method.embed_episode(batch)
    assert_scores(method.scores(*embedded)[0], case.tensor("scores"))
    n = batch.support.shape[1:3].numel()
    assert_scores(method._propagated(*embedded)[0][:n], case.tensor("scores_support"))
    assert_loss(method.loss(batch).detach(), case.number("loss_eval"))
    assert_loss(method.train().loss(batch).detach(), case.number("loss"))


@golden_heads("FWT")
def test_fwt(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert_array(norm.running_mean, case.tensor("running_mean_after"))
    assert_array(norm.running_var, case.tensor("running_var_after"))


class LinearBase(FewShotMethod):
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


VARIANTS: dict[str, dict[str, Any]] = {
    "feature": {"adjustment": "feature"},
    "class": {"adjustment": "class"},
    "class_pd": {"adjustment": "class", "context": "probabilities"},
    "combined": {"adjustment": "combined"},
}


@pytest.mark.parametrize("variant", VARIANTS)
@golden_heads("IFSL")
def test_ifsl(path: Path, variant: str) -> None:
    case = read_case(path)
    weight = case.tensor(f"{variant}_initial_weight")
    bias = case.tensor(f"{variant}_initial_bias")
    support, query = case.tensor("support")[None], case.tensor("query")[None]
    for steps, name in ((0, "scores_initial"), (int(case.number("n_steps")), "scores")):
        base = LinearBase(weight[0], bias[0], case, len(weight), steps)
        method = IFSL(
            base=base,
            n_splits=len(weight),
            **VARIANTS[variant],
            average="log-probabilities",
            divide=False,
            posterior="whole",
        )
        for part, own in enumerate(zip(weight, bias, strict=True)):
            method.bases[part].start = own
        method.build((support.shape[-1],), len(case.arrays["class_means"]), ToyBackbone())
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


@golden_heads("LPFTFB")
def test_lp_ft_fb(path: Path) -> None:
    case = read_case(path)
    support, query = batch_of(case).support, batch_of(case).query
    if case.text("loss_type") == "softmax":
        names = {"initial_weight": "weight", "initial_bias": "bias"}
    else:
        names = {"initial_weight_v": "directions", "initial_weight_g": "lengths"}
    start = {ours: case.tensor(theirs)[None] for theirs, ours in names.items()}
    if "lengths" in start:
        start["lengths"] = start["lengths"].flatten(1)
    batch_size, firth = int(case.number("batch_size")), case.number("firth_c")
    options: dict[str, Any] = {
        "head": case.text("loss_type"),
        "steps": n_steps(case.way * case.shot, int(case.number("epochs")), batch_size),
        "lr": case.number("lr"),
    }
    for firth_c, name in ((firth, "scores"), (0.0, "scores_without")):
        method = LPFTFB(firth_c=firth_c, **options)
        found = method.scores_from(start, support, query, batch_size=batch_size)[0]
        assert_scores(found, case.tensor(name))
        if firth_c:
            labels = case.tensor("query_labels")
            assert_loss(penalised_loss(found, labels, firth=firth), case.number("loss"))


def remembering(means: Tensor, covariances: Tensor, **options: Any) -> DistributionCalibration:
    """Return a method whose memory has exactly these means and covariances."""
    n, dim = means.shape
    method = DistributionCalibration(memory=2 * dim, **options)
    method.build((dim,), n, ToyBackbone())
    values, vectors = torch.linalg.eigh(covariances.double())
    away = (vectors * values.clamp(min=0).sqrt()[:, None]).mT * ((2 * dim - 1) / 2) ** 0.5
    method.double()
    method.remembered.copy_(means[:, None] + torch.cat([away, -away], dim=1))
    method.seen.fill_(2 * dim)
    return method


@golden_heads("DistributionCalibration")
def test_distribution_calibration(path: Path) -> None:
    case = read_case(path)
    support, query = case.tensor("support")[None], case.tensor("query")[None]
    method = remembering(
        case.tensor("base_means"),
        case.tensor("base_covs"),
        k=int(case.number("k")),
        alpha=case.number("alpha"),
        beta=case.number("beta"),
    )
    mean, covariance = method.calibrated(support.flatten(0, 2))
    assert_array(mean, case.tensor("calibrated_mean").double())
    assert_array(covariance, case.tensor("calibrated_cov").double())
    samples = case.tensor("samples").unflatten(0, (1, case.way, case.shot))
    scores = method.scores_from(support, query, samples)[0]
    assert_scores(scores, case.tensor("scores"))
    assert torch.equal(scores.argmax(dim=1), case.tensor("labels"))


def cdkt(case: Case) -> CDKT:
    method = CDKT(
        kernel=case.text("kernel"),
        kernels="per-way",
        n_way=case.way,
        temperature=float(case.arrays["temperature"].item()),
        mean=float(case.arrays["negmean"].item()),
        train_steps=int(case.arrays["steps_train"].item()),
        test_steps=int(case.arrays["steps_test"].item()),
        form="code",
    )
    method.build((case.arrays["query"].shape[1],), 0, ToyBackbone())
    state = {"raw_outputscale": case.tensor("outputscale")}
    if method.kernel == "rbf":
        state["raw_lengthscale"] = case.tensor("lengthscale")
    method.load_state_dict({name: scale.expm1().log() for name, scale in state.items()})
    return method.eval()


def started(case: Case, method: CDKT, items: Tensor, targets: Tensor, prefix: str) -> MeanField:
    """Return the posterior of items ``(m, D)`` from the given start, after its steps."""
    field = MeanField(
        method.covariance(items[None], items[None]),
        targets[None],
        temperature=method.temperature,
        mean=method.mean,
    )
    field.mu = case.tensor(f"{prefix}_mu")[None]
    field.alpha = case.tensor(f"{prefix}_alpha")[None]
    field.omega = case.tensor(f"{prefix}_omega")[None]
    for _ in range(method.test_steps if prefix == "initial" else method.train_steps):
        field.step()
    return field


@golden_heads("CDKT")
def test_cdkt(path: Path) -> None:
    case = read_case(path)
    method = cdkt(case)
    support, query = (method.embed(case.tensor(name)) for name in ("support", "query"))
    ways = torch.eye(case.way)
    field = started(
        case, method, support.flatten(0, 1), ways.repeat_interleave(case.shot, 1), "initial"
    )
    assert_array(field.mu[0], case.tensor("mu"))
    assert_array(field.variance[0], case.tensor("sigma").diagonal(dim1=1, dim2=2))
    cross = method.covariance(query[None], support.flatten(0, 1)[None])
    mean = field.predictive_mean(cross, with_prior=False)
    covariance = field.predictive_covariance(cross, method.covariance(query[None], query[None]))
    assert_array(mean[0], case.tensor("posterior_mean"))
    assert_array(covariance[0], case.tensor("posterior_covariance"))
    drawn = drawn_probabilities(mean, covariance, case.tensor("eps"), method.temperature)
    assert_scores(drawn[0].mT, case.tensor("scores"))
    # With its own start, and the integral for 200 samples, whose standard error is about 0.01.
    exact = method.scores(support[None], query[None])[0].exp()
    torch.testing.assert_close(exact, case.tensor("scores"), atol=0.08, rtol=0)
    # The bound is that of support and queries, class by class.
    together = torch.cat([support, query.reshape(case.way, -1, query.shape[1])], dim=1)
    targets = ways.repeat_interleave(together.shape[1], 1)
    field = started(case, method, together.flatten(0, 1), targets, "initial_train")
    assert_array(field.mu[0], case.tensor("elbo_mu"))
    assert_loss(-field.lower_bound(complete=False)[0].detach(), case.tensor("loss"))


@golden_heads("DETA")
def test_deta(path: Path) -> None:
    case = read_case(path)
    n_patches = int(case.number("K_patch"))
    images = case.tensor("support_features").reshape(case.way, case.shot, -1)
    patches = case.tensor("patch_features").reshape(case.way, case.shot, n_patches, -1)
    ways = torch.arange(case.way)
    assert torch.equal(case.tensor("support_labels"), ways.repeat_interleave(case.shot))
    trust = patch_weights(patches)
    assert_array(trust.flatten(), case.tensor("patch_weight"))
    assert_array(trust.mean(dim=2).flatten(), case.tensor("image_weight"))
    method = DETA(
        n_patches=n_patches,
        balance=case.number("balance"),
        momentum=case.number("momentum"),
        temperature=case.number("temperature"),
    )
    projector = case.parameters["projector.weight"]
    earlier = case.tensor("previous_image_weight").reshape(case.way, case.shot)
    loss, of_images = method.denoised_loss(projector, images, patches, earlier)
    assert_array(of_images.flatten(), case.tensor("image_weight_momentum"))
    scores = patch_scores(patches, trust, prototypes(images, of_images))
    assert_scores(scores, case.tensor("scores"))
    labels = case.tensor("query_labels")
    assert_loss(functional.cross_entropy(scores, labels), case.tensor("loss_prototype"))
    clusters = clustering_loss(patches @ projector.mT, trust, method.temperature)
    assert_loss(clusters, case.tensor("loss_clustering"))
    assert_loss(loss, case.tensor("loss"))


def resnet(case: Case) -> Backbone:
    """Return the network of a case, whose last stage keeps the size of its maps."""
    backbone = ResNet10(stem="3x3", widths=(8, 12, 16, 16))
    backbone.layer4 = ResNet10(stem="3x3", widths=(16, 16, 16, 16)).layer1
    own = {
        name.removeprefix("backbone.").replace(".conv.weight", ".weight"): value
        for name, value in case.parameters.items()
        if name.startswith("backbone.") and "alpha" not in name
    }
    missing, unexpected = backbone.load_state_dict(own, strict=False)
    assert not unexpected
    assert all(name.endswith("num_batches_tracked") for name in missing)
    return backbone.eval()


def adapter_weights(arrays: dict[str, Tensor], start: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the reference's adapters in the shapes and under the names of ``start``."""
    theirs = {}
    for name, like in start.items():
        place, _, part = name.rpartition(".")
        key = {"alpha": f"backbone.{place}.alpha", "bias": f"backbone.{place}.alpha_bias"}
        theirs[name] = arrays[key.get(part, "beta.weight")].reshape(like.shape)
    return theirs


@golden_heads("TSA")
def test_tsa(path: Path) -> None:
    case = read_case(path)
    backbone = resnet(case)
    support, query = case.tensor("support"), case.tensor("query")
    method = TSA(
        adapter=case.text("ad_type"),
        form=case.text("ad_form"),
        lr=case.number("lr"),
        alignment_lr=case.number("lr_beta"),
    )
    method.build(support.shape[2:], 0, backbone)
    adapters = Adapters(backbone, method.adapter, method.form)
    with torch.no_grad():
        start = method.start(adapters, support.flatten(0, 1))
        given = adapter_weights(case.parameters, start)
        features = vectors_of(adapters)(given, support.flatten(0, 1))
        assert_array(features, case.tensor("support_features_before").flatten(1))
        for steps, suffix in ((0, "_before"), (int(case.number("max_iter")), "")):
            method.steps = steps
            scores, after = method.fitted_scores(adapters, given, support, query)
            assert_scores(scores, case.tensor(f"scores{suffix}"))
            loss = functional.cross_entropy(scores, case.tensor("query_labels"))
            assert_loss(loss, case.tensor(f"loss{suffix}"))
    expected = {
        key.removeprefix("after."): case.tensor(key)
        for key in case.arrays
        if key.startswith("after.")
    }
    for name, value in adapter_weights(expected, start).items():
        assert_array(after[name], value)
