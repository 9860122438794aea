"""Agreement with a reference implementation, on its checkpoints, outputs and losses."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fsf_backbones import Conv64F, ResNet12
from fsf_metric_methods import ProtoNet, RENet
from fsframework.interfaces import Backbone, Batch, FewShotMethod

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden" / "libfewshot"
MEAN = torch.tensor([120.39586422, 115.59361427, 104.54012653]) / 255
STD = torch.tensor([70.68188272, 68.27635443, 72.54505529]) / 255
WAY = 5

CASES = [
    f"{method}_{backbone}_{episode}"
    for method in ("ProtoNet", "RENet")
    for backbone in ("conv64f", "resnet12")
    for episode in ("1shot_s0", "5shot_s1")
]

pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.skipif(
        not GOLDEN.is_dir(), reason=f"the reference checkpoints are not at {GOLDEN}"
    ),
    pytest.mark.parametrize("case", CASES),
]

# The reference's names, and the names here; the first pattern that matches a whole key renames it.
# Its 3-d kernels of size 1 in one direction are 2-d kernels here.
RENAMED = [
    (r"emb_func\.layer(\d)\.0\.(conv\d)\.(.*)", r"backbone.stages.\1.\2.\3"),
    (r"emb_func\.layer(\d)\.0\.bn(\d)\.(.*)", r"backbone.stages.\1.norm\2.\3"),
    (r"emb_func\.layer(\d)\.0\.downsample\.0\.(.*)", r"backbone.stages.\1.shortcut.\2"),
    (r"emb_func\.layer(\d)\.0\.downsample\.1\.(.*)", r"backbone.stages.\1.shortcut_norm.\2"),
    (r"emb_func\.layer(\d)\.0\.(weight|bias)", r"backbone.blocks.\1.conv.\2"),
    (r"emb_func\.layer(\d)\.1\.(.*)", r"backbone.blocks.\1.norm.\2"),
    (r"fc\.(.*)", r"classify.\1"),
    (r"scr_layer\.model\.1\.conv1x1_in\.(\d)\.(.*)", r"self_correlation.enter.step\1.\2"),
    (r"scr_layer\.model\.1\.conv1\.(\d)\.(.*)", r"self_correlation.shrink.step\1.\2"),
    (r"scr_layer\.model\.1\.conv2\.(\d)\.(.*)", r"self_correlation.shrink_more.step\1.\2"),
    (r"scr_layer\.model\.1\.conv1x1_out\.(\d)\.(.*)", r"self_correlation.leave.step\1.\2"),
    (r"cca_layer\.cca_1x1\.(\d)\.(.*)", r"reduce.step\1.\2"),
    (r"cca_layer\.cca_module\.conv\.(\d)\.conv2\.(\d)\.(.*)", r"refine.\1.over_hw.step\2.\3"),
    (r"cca_layer\.cca_module\.conv\.(\d)\.conv1\.(\d)\.(.*)", r"refine.\1.over_uv.step\2.\3"),
    (r"cca_layer\.cca_module\.conv\.(\d)\.proj\.(\d)\.(.*)", r"refine.\1.over_channels.step\2.\3"),
]


def renamed(key: str) -> str:
    for pattern, replacement in RENAMED:
        if match := re.fullmatch(pattern, key):
            key = match.expand(replacement)
            break
    # Stages and blocks count from 1 there and from 0 here; of a convolution and its BatchNorm only
    # the places are told there.
    key = re.sub(r"(stages|blocks)\.(\d)", lambda m: f"{m[1]}.{int(m[2]) - 1}", key)
    key = key.replace("refine.0", "widen").replace("refine.2", "narrow")
    return key.replace("step0", "conv").replace("step1", "norm")


def loaded(case: str) -> tuple[Backbone, FewShotMethod]:
    """Return the backbone and the method of a case, in evaluation mode, with its weights."""
    method_name, backbone_name, *_ = case.split("_")
    state = torch.load(GOLDEN / case / "model_best.pth", weights_only=True, map_location="cpu")
    parts: dict[str, dict[str, Tensor]] = {"backbone": {}, "method": {}}
    for key, value in state.items():
        name = renamed(key)
        part = "backbone" if name.startswith("backbone.") else "method"
        squeezed = value.reshape([*value.shape[:2], 3, 3]) if value.ndim == 5 else value
        parts[part][name.removeprefix("backbone.")] = squeezed

    backbone: Backbone
    if backbone_name == "conv64f":
        backbone = Conv64F()
        channels, attention = 64, 5.0
    else:
        backbone = ResNet12(widths=(8, 16, 24, 32))
        channels, attention = 32, 2.0
    method: FewShotMethod
    method = ProtoNet() if method_name == "ProtoNet" else RENet(temperature_attn=attention)
    method.build((channels, 5, 5), 64, backbone)
    for module, part in ((backbone, "backbone"), (method, "method")):
        missing, unexpected = module.load_state_dict(parts[part], strict=False)
        assert not unexpected
        # DropBlock's step counter is ours.
        assert all(name.endswith("n_steps") for name in missing)
    return backbone.eval(), method.eval()


def episode_of(case: str, backbone: Backbone, method: FewShotMethod) -> tuple[Batch, Tensor, float]:
    """Return the episode as items, the reference's output and its training loss."""
    with np.load(GOLDEN / case / "episode.npz") as stored:
        images = torch.from_numpy(stored["images"]).float() / 255
        output = torch.from_numpy(stored["output"])
        train_loss = float(stored["train_loss"])
    maps = backbone((images - MEAN[:, None, None]) / STD[:, None, None])
    items = maps if method.consumes == "maps" else backbone.vectors(maps)
    items = items.unflatten(0, (1, WAY, -1))
    shot = int(case.split("_")[2][0])
    n_query = items.shape[2] - shot
    labels = torch.arange(WAY).repeat_interleave(n_query)[None]
    batch = Batch(
        support=items[:, :, :shot],
        query=items[:, :, shot:].flatten(1, 2),
        query_labels=labels,
        support_classes=torch.arange(WAY)[None, :, None].expand(1, WAY, shot),
        query_classes=labels,
    )
    return batch, output, train_loss


def test_outputs_agree_with_the_reference(case: str) -> None:
    backbone, method = loaded(case)
    with torch.no_grad():
        batch, expected, _ = episode_of(case, backbone, method)
        scores = method.scores(*method.embed_episode(batch))[0]
    spread = (expected.amax(dim=1) - expected.amin(dim=1)).mean()
    assert (scores - expected).abs().max() / spread < 1e-4


def test_training_losses_agree_with_the_reference(case: str) -> None:
    backbone, method = loaded(case)
    backbone.train()
    method.train()
    with torch.no_grad():
        batch, _, expected = episode_of(case, backbone, method)
        loss = method.loss(batch).item()
    assert loss == pytest.approx(expected, rel=1e-4)
