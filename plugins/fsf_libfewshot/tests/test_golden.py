"""Agreement with LibFewShot on its checkpoints: outputs, labels and training losses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.pipeline.importing import compare, read_checkpoint, read_episode

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden" / "libfewshot"
CASES = [
    f"{method}_{backbone}_{episode}"
    for method, backbones in {
        "ANIL": ["conv64f"],
        "BOIL": ["conv64f"],
        "CAN": ["conv64f"],
        "DN4": ["conv64f"],
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
    registry = Registry()
    importer = resolve_component(registry, "importer", "libfewshot")
    imported = read_checkpoint(registry, importer, GOLDEN / case)
    episode = read_episode(GOLDEN / case / "episode.npz", imported.read)
    assert (episode.labels is not None) == case.startswith("RFS")
    assert episode.train_loss is not None
    before = imported.fingerprint
    found = compare(imported, episode, registry, torch.device("cpu"), TOLERANCE)
    assert found.agrees, (found.outputs, found.loss, episode.train_loss)
    assert imported.fingerprint == before, "the comparison must not change the model"
