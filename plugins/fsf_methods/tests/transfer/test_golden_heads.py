"""Agreement with the reference heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fsf_backbones import Conv64F
from fsf_methods.transfer import LPFTFB, DistributionCalibration
from fsf_methods.transfer._classifiers import penalised_loss
from fsf_methods.transfer._fit import n_steps
from tests.golden_heads import assert_array, assert_loss, assert_scores, golden_heads, read_case


@pytest.mark.shared_data
@golden_heads("LPFTFB")
def test_golden_heads_lp_ft_fb(path: Path) -> None:
    case = read_case(path)
    support, query = case.tensor("support")[None], case.tensor("query")[None]
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
    method.build((dim,), n, Conv64F())
    values, vectors = torch.linalg.eigh(covariances.double())
    away = (vectors * values.clamp(min=0).sqrt()[:, None]).mT * ((2 * dim - 1) / 2) ** 0.5
    method.double()
    method.remembered.copy_(means[:, None] + torch.cat([away, -away], dim=1))
    method.seen.fill_(2 * dim)
    return method


@pytest.mark.shared_data
@golden_heads("DistributionCalibration")
def test_golden_heads_distribution_calibration(path: Path) -> None:
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
