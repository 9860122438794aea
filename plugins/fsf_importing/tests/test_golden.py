"""Agreement with LibFewShot on its checkpoints: outputs, labels and training losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fsf_importing import read_checkpoint
from fsf_importing.deviation import _split, deviation
from fsf_importing.reference import read_reference
from tests.golden_heads import assert_scores

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden" / "libfewshot"
BACKBONES = {
    **dict.fromkeys(("ProtoNet", "R2D2", "RENet"), ("conv64f", "resnet12")),
    **dict.fromkeys(("DeepBDC", "FEAT", "FGFL"), ("resnet12",)),
}
METHODS = (
    *("ADM", "ANIL", "ATLNet", "BOIL", "Baseline", "BaselinePlus", "CAN", "ConvMNet", "DN4", "DSN"),
    *("DeepBDC", "FEAT", "FGFL", "FRN", "LEO", "MAML", "MTL", "NegNet", "ProtoNet", "R2D2"),
    *("RENet", "RFS", "RelationNet", "SKD", "VERSA"),
)
CASES = [
    f"{method}_{backbone}_{episode}"
    for method in METHODS
    for backbone in BACKBONES.get(method, ("conv64f",))
    for episode in ("1shot_s0", "5shot_s1")
]
"""Listed by name, so that a missing case is noticed."""

TOLERANCE = 1e-3


@pytest.mark.one_in(3)
@pytest.mark.shared_data
@pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"the reference checkpoints are not at {GOLDEN}")
@pytest.mark.parametrize("case", CASES)
def test_agrees_with_the_reference(case: str) -> None:
    read = read_checkpoint("libfewshot", GOLDEN / case)
    reference = read_reference(GOLDEN / case / "episode.npz", read.read)
    assert (reference.labels is not None) == case.startswith(("RFS", "SKD"))
    assert reference.train_loss is not None
    before = read.fingerprint
    found = deviation(read, reference, tolerance=TOLERANCE, perturbations=1)
    assert found.agrees, (found.outputs, found.loss, reference.train_loss)
    assert read.fingerprint == before, "the comparison must leave the model alone"


@pytest.mark.shared_data
@pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"the reference checkpoints are not at {GOLDEN}")
@pytest.mark.parametrize("episode", ["1shot_s0", "5shot_s1"])
def test_versa_agrees_from_the_noise_given(episode: str) -> None:
    folder = GOLDEN / f"VERSA_conv64f_{episode}"
    read = read_checkpoint("libfewshot", folder)
    reference = read_reference(folder / "episode.npz", read.read)
    with np.load(folder / "episode.npz", allow_pickle=False) as arrays:
        noise, expected = torch.from_numpy(arrays["eps"]), torch.from_numpy(arrays["output_eps"])
        loss = float(arrays["train_loss_eps"])
    labels = torch.arange(reference.way).repeat_interleave(reference.query)[None]
    for training in (False, True):
        network = read.model_as_there().network.train(training)
        method: Any = network.method
        with torch.no_grad():
            items = method.embed(network.encode(network.images(torch.from_numpy(reference.pixels))))
            support, query = _split(items, reference)
            if training:
                found = float(method.loss_from(support, query, labels, noise))
                assert found == pytest.approx(loss, rel=TOLERANCE)
            else:
                assert_scores(method.scores_from(support, query, noise)[0], expected)
