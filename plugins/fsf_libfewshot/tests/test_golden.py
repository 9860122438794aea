"""Agreement with LibFewShot on its checkpoints: outputs, labels and training losses."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsf_importing.checkpoints import read_checkpoint
from fsf_importing.deviation import deviation
from fsf_importing.reference import read_reference

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden" / "libfewshot"
CASES = [
    f"{method}_{backbone}_{episode}"
    for method, backbones in {
        "ADM": ["conv64f"],
        "ANIL": ["conv64f"],
        "ATLNet": ["conv64f"],
        "BOIL": ["conv64f"],
        "CAN": ["conv64f"],
        "ConvMNet": ["conv64f"],
        "DN4": ["conv64f"],
        "DSN": ["conv64f"],
        "DeepBDC": ["resnet12"],
        "FEAT": ["resnet12"],
        "FGFL": ["resnet12"],
        "FRN": ["conv64f"],
        "LEO": ["conv64f"],
        "MAML": ["conv64f"],
        "ProtoNet": ["conv64f", "resnet12"],
        "R2D2": ["conv64f", "resnet12"],
        "RENet": ["conv64f", "resnet12"],
        "RFS": ["conv64f"],
    }.items()
    for backbone in backbones
    for episode in ("1shot_s0", "5shot_s1")
]
"""Listed by name, so that a missing case is noticed."""

TOLERANCE = 1e-3


@pytest.mark.shared_data
@pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"the reference checkpoints are not at {GOLDEN}")
@pytest.mark.parametrize("case", CASES)
def test_agrees_with_the_reference(case: str) -> None:
    read = read_checkpoint("libfewshot", GOLDEN / case)
    reference = read_reference(GOLDEN / case / "episode.npz", read.read)
    assert (reference.labels is not None) == case.startswith("RFS")
    assert reference.train_loss is not None
    before = read.fingerprint
    found = deviation(read, reference, tolerance=TOLERANCE)
    assert found.agrees, (found.outputs, found.loss, reference.train_loss)
    assert read.fingerprint == before, "the comparison must leave the model alone"
