from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import threading
from collections import defaultdict, deque
from contextlib import nullcontext
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.func import functional_call, vmap

from fsf_timm import Timm
from fsf_timm._library import load_timm
from fsf_timm._provenance import trained_on
from fsframework.errors import FsfWarning
from fsframework.interfaces import Backbone, DataError, OptionError, Preprocessing
from fsframework.testing import parametrize_with_checks
from plugins.fsf_timm.tests.files import Opens, put_in_hub, refusal

VIT = partial(Timm, model="test_vit", weights="none", image_size=32)
CNN = partial(Timm, model="test_resnet", weights="none", image_size=64)


# A transformer with its usual pooling is checked with all plugins.
@parametrize_with_checks([CNN, partial(VIT, pooling="mean"), partial(CNN, pooling="flatten")])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def images(height: int, width: int | None = None) -> torch.Tensor:
    return torch.randn(2, 3, height, width or height, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("model", "size", "patch", "prefix", "width"),
    [
        ("vit_small_patch16_224.dino", 224, 16, 1, 384),
        ("vit_small_patch14_reg4_dinov2.lvd142m", 518, 14, 5, 384),
        ("vit_small_patch16_dinov3.lvd1689m", 256, 16, 5, 384),
    ],
)
def test_tokens_of_patches_become_a_map(
    model: str, size: int, patch: int, prefix: int, width: int
) -> None:
    with torch.device("meta"), torch.no_grad():
        backbone = Timm(model=model, weights="none").eval()
        assert backbone.preprocessing.size == size
        side = size // patch
        tokens = backbone.net.forward_features(torch.zeros(1, 3, size, size))
        assert tokens.shape == (1, prefix + side**2, width)
        assert backbone(torch.zeros(1, 3, size, size)).shape == (1, width, side, side)
        # 84 pixels contain 84 // patch whole patches; position embeddings are resampled.
        assert backbone(torch.zeros(1, 3, 84, 130)).shape == (1, width, 84 // patch, 130 // patch)
        assert backbone.encode(torch.zeros(1, 3, 84, 84)).shape == (1, width)


@pytest.mark.parametrize(
    ("model", "size", "channels", "vector"),
    [
        ("resnet18.a1_in1k", 224, 512, 512),
        # Its attention pooling, without the projection into the space shared with text.
        ("resnet50_clip.openai", 224, 2048, 2048),
        ("swin_tiny_patch4_window7_224.ms_in1k", 224, 768, 768),
        ("mobilenetv3_small_050.lamb_in1k", 224, 288, 1024),
    ],
)
def test_maps_of_convolutions_and_of_windows(
    model: str, size: int, channels: int, vector: int
) -> None:
    with torch.device("meta"), torch.no_grad():
        backbone = Timm(model=model, weights="none").eval()
        assert backbone.preprocessing.size == size
        assert backbone(torch.zeros(2, 3, size, size)).shape == (2, channels, 7, 7)
        assert backbone.encode(torch.zeros(2, 3, size, size)).shape == (2, vector)


@pytest.mark.parametrize(
    ("model", "options"),
    [("vit_small_patch14_reg4_dinov2.lvd142m", {"image_size": 28}), ("test_vit", {})],
)
def test_every_token_is_at_the_position_of_its_patch(model: str, options: dict[str, Any]) -> None:
    backbone = Timm(model=model, weights="none", **options).eval()
    patch, prefix = backbone.net.patch_embed.patch_size[0], backbone.net.num_prefix_tokens
    shown = images(2 * patch, 3 * patch)
    with torch.no_grad():
        tokens, maps = backbone.net.forward_features(shown), backbone(shown)
    assert maps.shape == (2, tokens.shape[2], 2, 3)
    assert maps.is_contiguous(memory_format=torch.channels_last)
    for row in range(2):
        for column in range(3):
            token = tokens[:, prefix + 3 * row + column]
            torch.testing.assert_close(maps[:, :, row, column], token)


def test_channels_that_are_innermost_in_a_model_become_second() -> None:
    backbone = Timm(model="swin_tiny_patch4_window7_224", weights="none").eval()
    shown = images(64, 96)
    with torch.no_grad():
        maps, features = backbone(shown), backbone.net.forward_features(shown)
    assert features.shape == (2, 2, 3, 768)
    torch.testing.assert_close(maps, features.permute(0, 3, 1, 2))


def test_pooling_by_name() -> None:
    shown = images(32)
    made = {p: VIT(pooling=p).eval() for p in ("default", "class-token", "mean", "flatten")}
    for backbone in made.values():
        backbone.load_state_dict(made["default"].state_dict())
    with torch.no_grad():
        found = {p: b.encode(shown) for p, b in made.items()}
        tokens, maps = made["mean"].net.forward_features(shown), made["mean"](shown)
        whole = made["mean"].net(shown)
    torch.testing.assert_close(found["default"], whole)
    torch.testing.assert_close(found["class-token"], tokens[:, 0])
    torch.testing.assert_close(found["mean"], maps.mean(dim=(2, 3)))
    torch.testing.assert_close(found["flatten"], maps.reshape(2, -1))
    assert torch.equal(made["flatten"].vectors(maps), maps.flatten(1))
    assert torch.equal(made["default"].vectors(maps), maps.mean(dim=(2, 3)))
    with torch.no_grad():
        network = CNN().eval()
        torch.testing.assert_close(network.encode(images(64)), network.net(images(64)))


def test_edges_that_fill_no_patch_are_cropped() -> None:
    backbone, shown = VIT().eval(), images(37, 50)
    with torch.no_grad():
        torch.testing.assert_close(backbone(shown), backbone(shown[:, :, 2:34, 1:49]))
        torch.testing.assert_close(
            backbone.encode(shown), backbone.encode(shown[:, :, 2:34, 1:49].contiguous())
        )
    with pytest.raises(OptionError, match="at least 16 x 16 pixels to leave a map, got 15 x 40"):
        backbone(images(15, 40))


def test_a_model_for_one_size_refuses_others() -> None:
    backbone = Timm(model="mixer_s32_224", weights="none").eval()
    message = "mixer_s32_224 takes images of 224 x 224 pixels, but not of 64 x 64"
    with torch.no_grad(), pytest.raises(OptionError, match=message):
        backbone(images(64))
    smaller = Timm(model="mixer_s32_224", weights="none", image_size=64).eval()
    with torch.no_grad():
        assert smaller(images(64)).shape == (2, 512, 2, 2)


def test_a_model_without_a_map_is_refused() -> None:
    with torch.device("meta"), torch.no_grad():
        backbone = Timm(model="crossvit_tiny_240", weights="none").eval()
        with pytest.raises(OptionError, match="crossvit_tiny_240 must return one feature"):
            backbone(torch.zeros(1, 3, 240, 240))


def test_preprocessing_is_that_of_the_model() -> None:
    with torch.device("meta"):
        clip = Timm(model="vit_base_patch32_clip_224.openai", weights="none").preprocessing
        inception = Timm(model="inception_v3.tv_in1k", weights="none").preprocessing
        random = Timm(model="resnet18", weights="none").preprocessing
        given: Any = {"image_size": 100, "mean": (0.5, 0.4, 0.3), "std": (0.1, 0.2, 0.3)}
        own = Timm(model="resnet18", weights="none", **given).preprocessing
        hub = Timm(model="resnet18.a1_in1k").preprocessing
    assert clip == Preprocessing(
        size=224,
        mean=(0.48145466, 0.4578275, 0.40821073),
        std=(0.26862954, 0.26130258, 0.27577711),
        interpolation="bicubic",
        binding=True,
    )
    assert inception.size == 299
    assert (random.size, random.binding) == (224, False)
    assert own == Preprocessing(100, (0.5, 0.4, 0.3), (0.1, 0.2, 0.3), "bicubic", True)
    assert hub.binding, "pretrained weights ask for the size they were trained at"


@pytest.mark.parametrize(
    ("tag", "data"),
    [
        ("augreg_in21k_ft_in1k", "imagenet-21k+imagenet-1k"),
        ("fb_in22k_ft_in1k_384", "imagenet-22k+imagenet-1k"),
        ("sw_in12k_ft_in1k", "imagenet-12k+imagenet-1k"),
        ("openai_ft_in12k_in1k", "wit-400m+imagenet-12k+imagenet-1k"),
        ("clip_laion2b_augreg_ft_in1k", "laion-2b+imagenet-1k"),
        ("dino", "imagenet-1k"),
        ("fb_dino", "imagenet-1k"),
        ("mae", "imagenet-1k"),
        ("ns_jft_in1k", "jft-300m+imagenet-1k"),
        ("fb_swsl_ig1b_ft_in1k", "ig-1b+imagenet-1k"),
        ("fb", "unknown"),
        ("", "unknown"),
    ],
)
def test_pretraining_data_by_tag(tag: str, data: str) -> None:
    assert trained_on(tag) == data


def test_provenance() -> None:
    with torch.device("meta"):
        hub = Timm(model="vit_small_patch14_dinov2.lvd142m")
        tagged = Timm(model="vit_small_patch14_dinov2.lvd142m", weights="a.pth")
        bare = Timm(model="vit_small_patch14_dinov2", weights="a.pth")
        stated = Timm(model="resnet18", weights="a.pth", pretrained_on="places365")
        random = Timm(model="resnet18", weights="none")
    assert (hub.pretrained_on, hub.licence) == ("lvd-142m", "apache-2.0")
    assert (tagged.pretrained_on, tagged.licence) == ("lvd-142m", "apache-2.0")
    assert (bare.pretrained_on, bare.licence) == ("unknown", "unknown")
    assert (stated.pretrained_on, stated.licence) == ("places365", "unknown")
    assert (random.pretrained_on, random.licence) == (None, Backbone.licence)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "resnet19"}, "timm has no model 'resnet19'; did you mean resnet"),
        ({"model": "tf_efficientnet_lite"}, "did you mean tf_efficientnet_lite0"),
        ({"model": "DINOv2"}, "timm has no model 'DINOv2'; did you mean vit_base_patch14_dinov2"),
        ({"model": ""}, "model must be a name that timm lists, as in timm:resnet18"),
        ({"model": "vit_smal_patch14_dinov2.lvd142m"}, "did you mean .*vit_small_patch14_dinov2"),
        ({"model": "dinov2_vits14"}, "did you mean .*vit_base_patch14_reg4_dinov2"),
        ({"model": "qqqqq"}, "timm has no model 'qqqqq' and none with a similar name"),
        ({"model": "resnet18.lvd142m"}, "no weights 'lvd142m' for resnet18; it has .*a1_in1k"),
        ({"model": "hf-hub:a/b"}, "model must be a name that timm lists, such as resnet18"),
        ({"model": "mixer_s32_224"}, "timm has no weights for mixer_s32_224; .* mixer_b16_224"),
        ({"model": "test_resnet", "pooling": "max"}, "pooling must be one of default, class-token"),
        ({"model": "test_resnet", "pooling": "class-token"}, "test_resnet has no class token"),
        ({"model": "test_vit", "image_size": 40}, "a multiple of 16, .* 32 or 48, got 40"),
        ({"model": "test_vit", "image_size": 0}, "image_size must be at least 1 pixel, got 0"),
        ({"model": "test_resnet", "std": (0.1, 0.0, 0.1)}, "std must be three numbers in 0..1"),
        ({"model": "test_resnet", "mean": (99.0, 0.0, 0.1)}, "mean must be three numbers in 0..1"),
        (
            {"model": "resnet18", "weights": "none", "pretrained_on": "x"},
            "pretrained_on .* got 'x'",
        ),
    ],
)
def test_options_are_validated(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Timm(**options)


def weights_of(backbone: Backbone) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in backbone.net.state_dict().items()}


def with_prefix(prefix: str, tensors: dict[str, Any]) -> dict[str, Any]:
    return {prefix + k: v for k, v in tensors.items()}


def other_than(tensors: dict[str, Any]) -> dict[str, Any]:
    return {k: v + 1 for k, v in tensors.items()}


HEAD = {"fc.weight": torch.zeros(7, 4), "fc.bias": torch.zeros(7)}
SHAPES: dict[str, Any] = {
    "bare.safetensors": lambda own: own,
    "bare.pth": lambda own: own,
    "with a classifier.bin": lambda own: {**own, **HEAD},
    "of a training.pth": lambda own: {"model": own, "epoch": 3, "args": argparse.Namespace(lr=1)},
    "parallel.pth": lambda own: {"state_dict": with_prefix("module.", {**own, **HEAD})},
    # MoCo: the encoder of queries, that of keys and the projection.
    "moco.pth": lambda own: {
        "state_dict": {
            **with_prefix("module.encoder_q.", {**own, **HEAD}),
            **with_prefix("module.encoder_k.", {k: torch.zeros_like(v) for k, v in own.items()}),
            "module.queue": torch.zeros(3),
        }
    },
    # Closer Look, FEAT and MetaOptNet: the entry has another name, and other networks beside it.
    "closer.pth": lambda own: {"epoch": 9, "state": {**with_prefix("feature.", own), **HEAD}},
    "feat.pth": lambda own: {
        "params": {**with_prefix("encoder.", own), "slf_attn.w_qs.weight": torch.ones(3, 3)}
    },
    "metaopt.pth": lambda own: {
        "embedding": with_prefix("module.", own),
        "head": {"scale": torch.ones(1)},
    },
    "of an optimiser.pt": lambda own: {
        "optimizer_state_dict": {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": []},
        "model_state_dict": own,
    },
    "nested.ckpt": lambda own: {"net": {"state_dict": with_prefix("_orig_mod.module.", own)}},
    "of numpy.pth": lambda own: {
        "state_dict": own,
        "best_acc": np.float64(61.2),
        "curve": np.arange(3, dtype=np.float32),
        "args": argparse.Namespace(folder=Path("runs")),
    },
    "ema.pth": lambda own: {
        "state_dict": {k: 0 * v for k, v in own.items()},
        "state_dict_ema": with_prefix("module.", own),
    },
    # DINO: student and teacher; the teacher's weights are used.
    "dino.pth": lambda own: {
        "student": with_prefix("module.backbone.", {k: 0 * v for k, v in own.items()}),
        "teacher": {**with_prefix("backbone.", own), "head.mlp.0.weight": torch.zeros(2, 2)},
        "args": argparse.Namespace(arch="vit_small"),
    },
    "grad.pth": lambda own: {
        **{k: other_than(own) for k in ("grad", "fisher", "mask", "init_state_dict")},
        "state_dict": own,
    },
    "best.pth": lambda own: {"last_state_dict": other_than(own), "best_state_dict": own},
    "camel.pth": lambda own: {"model": other_than(own), "modelEMA": own},
    "flat.safetensors": lambda own: {
        **with_prefix("student.", other_than(own)),
        **with_prefix("teacher.", own),
    },
    "keys first.pth": lambda own: {
        **with_prefix("encoder_k.", other_than(own)),
        **with_prefix("encoder_q.", own),
    },
    "of other objects.pth": lambda own: {
        "state_dict": own,
        "more": [defaultdict(list, a=[1]), deque([1]), datetime(2024, 1, 1), timedelta(1), slice(1),
                 range(3), frozenset([1]), {1}, Decimal("1.2"), UUID(int=3), torch.__version__],
    },
}  # fmt: skip
TOLD = {"moco.pth", "ema.pth", "dino.pth", "best.pth", "camel.pth", "flat.safetensors"}
TOLD.add("keys first.pth")


@pytest.mark.filterwarnings("ignore:of several sets of weights")
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("make", [VIT, CNN])
def test_weights_of_a_file(make: Any, name: str, tmp_path: Path) -> None:
    trained, path = make().eval(), tmp_path / name
    content = SHAPES[name](weights_of(trained))
    if path.suffix == ".safetensors":
        save_file(content, path)
    else:
        torch.save(content, path)
    loaded = make(weights=str(path)).eval()
    shown = images(loaded.preprocessing.size)
    with torch.no_grad():
        assert not torch.allclose(loaded(shown), trained(shown))
        with pytest.warns(FsfWarning, match="taken") if name in TOLD else nullcontext():
            loaded.load_pretrained(offline=True)
        assert torch.equal(loaded(shown), trained(shown))


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("complex64", lambda v: v + 0j),
        ("int8", lambda v: v.to(torch.int8)),
        ("sparse", lambda v: v.to_sparse()),
        ("meta", lambda v: v.to("meta")),
        ("NaN or infinite", lambda v: v / 0),
    ],
)
def test_tensors_that_are_no_weights_are_refused(kind: str, change: Any, tmp_path: Path) -> None:
    path, own = tmp_path / "w.pth", weights_of(CNN())
    name = next(k for k, v in own.items() if v.ndim == 4)
    torch.save({**own, name: change(own[name])}, path)
    message = refusal("test_resnet", weights=str(path))
    assert kind in message
    assert repr(name) in message
    assert str(path) in message


def test_pretrained_weights_stay_unchanged() -> None:
    for options, frozen in (
        ({"weights": "published"}, True),
        ({"weights": "hub"}, True),
        ({"weights": "a.pth"}, True),
        ({"weights": "none"}, False),
        ({"weights": "none", "frozen": True}, True),
        ({"weights": "a.pth", "frozen": False}, False),
    ):
        backbone = Timm(model="test_resnet.r160_in1k", image_size=64, **options).train()
        assert {p.requires_grad for p in backbone.parameters()} == {not frozen}
        before = {k: v.clone() for k, v in backbone.state_dict().items()}
        backbone(images(64))
        same = all(torch.equal(v, before[k]) for k, v in backbone.state_dict().items())
        assert same == frozen, "the statistics of BatchNorm"


def test_weights_of_a_folder(tmp_path: Path) -> None:
    trained = CNN()
    save_file(weights_of(trained), tmp_path / "model.safetensors")
    make = partial(CNN, weights=str(tmp_path))

    def load(written: dict[str, Any], **options: Any) -> Timm:
        (tmp_path / "config.json").write_text(json.dumps(written))
        loaded = make(**options)
        loaded.load_pretrained()
        return loaded

    # timm writes a longer configuration; the model's own mean is 0.5.
    fitting = {"architecture": "test_resnet", "pretrained_cfg": {"mean": [0.5, 0.5, 0.5]}}
    state = load(fitting).state_dict()
    assert all(torch.equal(state[k], v) for k, v in trained.state_dict().items())
    with pytest.raises(DataError, match="config.json is for resnet18, not test_resnet"):
        load({"architecture": "resnet18"})
    other = {"pretrained_cfg": {"mean": [0.4, 0.3, 0.2]}}
    with pytest.raises(DataError, match=r"has the mean \[0.4, .* -o backbone.mean=0.4,0.3,0.2"):
        load(other)
    assert load(other, mean=(0.4, 0.3, 0.2)).preprocessing.mean == (0.4, 0.3, 0.2)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataError, match="config.json: cannot be read"):
        make().load_pretrained()


def test_position_embeddings_of_another_size_are_resampled(tmp_path: Path) -> None:
    trained = VIT()
    tensors = weights_of(trained)
    embedding = tensors["pos_embed"]
    prefix = embedding.shape[1] - 100  # of 160 pixels by 16
    smooth = torch.linspace(0, 1, 100).reshape(1, 100, 1).expand(-1, -1, embedding.shape[2])
    tensors["pos_embed"] = torch.cat([embedding[:, :prefix], smooth[:, :49]], dim=1)
    save_file(tensors, tmp_path / "a.safetensors")
    loaded = VIT(weights=str(tmp_path / "a.safetensors"))
    loaded.load_pretrained()
    found = loaded.net.pos_embed
    assert found.shape == embedding.shape
    assert torch.equal(found[:, :prefix], embedding[:, :prefix])
    assert found[:, prefix:].mean().item() == pytest.approx(smooth[:, :49].mean().item(), abs=0.02)


def test_a_file_that_does_not_fit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = weights_of(CNN())
    first = next(iter(own))
    count = sum(not k.endswith("num_batches_tracked") for k in own)

    def refused(name: str, content: Any = None, raw: bytes = b"") -> str:
        path = tmp_path / name
        if content is None:
            path.write_bytes(raw)
        else:
            torch.save(content, path)
        message = refusal("test_resnet", weights=str(path), image_size=64)
        assert name in message
        return message

    lacking = refused("a.pth", {k: v for k, v in own.items() if k != first})
    assert f"does not fit: it lacks 1 of {count} weights, such as '{first}'" in lacking
    other = refused("b.pth", {f"blocks.{k}": v for k, v in weights_of(VIT()).items()})
    assert f"it lacks {count} of {count} weights" in other
    assert "it has others, such as 'blocks." in other
    wrong = refused("c.pth", {**own, first: torch.zeros(2, 2)})
    assert f"'{first}' has the shape (2, 2), not {tuple(own[first].shape)}" in wrong
    heads = {"params": {"enc.1": torch.ones(2)}, "head": {"scale": torch.ones(1)}, "epoch": 3}
    several = refused("l.pth", heads)
    assert all(name in several for name in ("params", "head", first, "enc.1")), several
    assert "more than tensors" in refused("d.pth", {**own, "code": Opens()})
    assert "run on loading" not in capsys.readouterr().out
    refused("e.pth", raw=pickle.dumps({"a": 1}))
    assert "contains no named tensors" in refused("f.pth", {"a": 1})
    assert "contains no named tensors" in refused("g.pth", torch.zeros(3))
    assert "cannot be read" in refused("h.safetensors", raw=b"damaged")
    assert "cannot be read" in refused("i.safetensors", raw=b"")
    told = refusal("test_resnet", weights=str(tmp_path / "absent.pth"))
    assert "published, hub, none, a path" in told
    (tmp_path / "folder").mkdir()
    told = refusal("test_resnet", weights=str(tmp_path / "folder"))
    assert "model.safetensors" in told


def test_weights_of_the_hubs_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    hub = Timm(model="test_resnet.r160_in1k", image_size=64)
    told = refusal("test_resnet.r160_in1k")
    address = "https://huggingface.co/timm/test_resnet.r160_in1k/resolve/main/model.safetensors"
    assert address in told
    assert "-o backbone.weights=FILE" in told

    trained = CNN().eval()
    classifier = {"fc.weight": torch.zeros(3, 2), "fc.bias": torch.zeros(3)}
    put_in_hub(tmp_path, "test_resnet.r160_in1k", {**weights_of(trained), **classifier})
    hub.load_pretrained(offline=True)
    shown = images(64)
    with torch.no_grad():
        assert torch.equal(hub.eval()(shown), trained(shown))


@pytest.mark.parametrize("answer", [None, 503, 404])
def test_a_hub_that_does_not_answer_is_asked_once(
    answer: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants as hub

    asked = []

    class Refuses(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(self.path)
            self.send_response(answer or 500)
            if answer == 404:
                self.send_header("X-Error-Code", "EntryNotFound")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr(hub, "ENDPOINT", address)
        monkeypatch.setattr(
            hub,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
        )
        if answer is None:
            server.server_close()
        else:
            threading.Thread(target=server.serve_forever, daemon=True).start()
        told = refusal("test_resnet.r160_in1k", offline=False)
        if answer is not None:
            server.shutdown()
    assert "timm:tf_efficientnet_lite0" in told, "what works without the hub"
    tried = {None: [], 503: ["model.safetensors"], 404: ["model.safetensors", "pytorch_model.bin"]}
    assert [path.rpartition("/")[2] for path in asked] == tried[answer]


# On some devices attention has no kernel for several sets of weights: slower, but correct.
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("make", [VIT, CNN])
def test_runs_under_vmap_with_weights_per_task(make: Any) -> None:
    backbone = make().double().eval()
    shown = torch.randn(2, 3, 3, 32, 32, dtype=torch.float64)
    weights = {n: torch.stack([p, 1.1 * p]) for n, p in backbone.named_parameters()}
    together = vmap(lambda w, x: functional_call(backbone, w, (x,)))(weights, shown)
    for t in range(2):
        alone = functional_call(backbone, {n: p[t] for n, p in weights.items()}, (shown[t],))
        torch.testing.assert_close(together[t], alone)


def test_timm_is_imported_when_a_model_is_made() -> None:
    code = "import sys, fsf_timm; print([m for m in ('timm', 'torchvision') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_timm_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    load_timm.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "timm", None)
        with pytest.raises(OptionError, match="timm cannot be imported .*built for PyTorch 2"):
            Timm(model="resnet18")
    assert load_timm().__name__ == "timm"
