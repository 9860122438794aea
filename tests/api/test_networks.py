"""Networks of users and of libraries as backbones, small and random."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fsframework as fsf
from fsf_timm._library import load_timm
from fsframework.errors import OptionError, PluginError
from tests.toys import image_folder

PLANTED = {"name": "planted", "n_per_class": 4, "size": 32}
TASKS: dict[str, Any] = {"sampler": "random", "way": 2, "shot": 1, "queries": 2, "tasks": 20}
TOWER = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip


class Viewing(nn.Module):
    """Takes a view of its maps, as many networks do; counts its images."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.pool = nn.Conv2d(3, 8, 3, stride=4), nn.AdaptiveAvgPool2d(3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.pool(self.convolution(images))
        return maps.view(len(maps), -1)


def transformers(name: str, **options: Any) -> nn.Module:
    load_timm()  # Transformers uses torchvision where it is there
    library = pytest.importorskip("transformers")
    config = getattr(library, name.replace("ModelWithProjection", "Model"), None)
    config = config or getattr(library, name)
    made: nn.Module = getattr(library, name)(config.config_class(**{**TOWER, **options}))
    return made


def open_clip() -> nn.Module:
    load_timm()
    made: nn.Module = pytest.importorskip("open_clip").model.CLIP(
        embed_dim=16,
        vision_cfg={"layers": 2, "width": 32, "head_width": 16, "patch_size": 8, "image_size": 32},
        text_cfg={"context_length": 8, "vocab_size": 50, "width": 32, "heads": 2, "layers": 1},
    )
    return made


def clip() -> nn.Module:
    text = {k: v for k, v in TOWER.items() if k not in ("image_size", "patch_size")}
    both = {"vision_config": TOWER, "text_config": text, "projection_dim": 24}
    load_timm()
    library = pytest.importorskip("transformers")
    made: nn.Module = library.CLIPModel(library.CLIPConfig(**both))
    return made


def torchvision(name: str, **options: Any) -> nn.Module:
    load_timm()
    models = pytest.importorskip("torchvision").models
    made: nn.Module = getattr(models, name)(**options)
    return made


def timm(name: str, **options: Any) -> nn.Module:
    made: nn.Module = load_timm().create_model(name, **options)
    return made


NETWORKS: dict[str, tuple[Any, int]] = {
    "own": (Viewing, 72),
    "double": (lambda: Viewing().double(), 72),
    "half": (lambda: Viewing().half(), 72),
    "bfloat16": (lambda: Viewing().bfloat16(), 72),
    "timm": (lambda: timm("resnet10t"), 512),
    "timm-vit": (lambda: timm("vit_tiny_patch16_224", img_size=32, depth=2), 192),
    "torchvision": (lambda: torchvision("resnet18"), 512),
    "torchvision-vit": (
        lambda: torchvision(
            "VisionTransformer", image_size=32, patch_size=8, num_layers=2, num_heads=2,
            hidden_dim=32, mlp_dim=64,
        ),
        32,
    ),
    "vit": (lambda: transformers("ViTModel"), 32),
    "vit-classifier": (lambda: transformers("ViTForImageClassification"), 32),
    "clip-tower": (lambda: transformers("CLIPVisionModel"), 32),
    "clip-projected": (
        lambda: transformers("CLIPVisionModelWithProjection", projection_dim=24), 24,
    ),
    "clip": (clip, 24),
    "dinov2": (lambda: transformers("Dinov2Model"), 32),
    "open-clip": (open_clip, 16),
    "open-clip-tower": (lambda: open_clip().visual, 16),
}  # fmt: skip


def run_of(module: nn.Module, folder: Path, **given: Any) -> fsf.Run:
    return fsf.run(
        method="ncc", backbone=module, dataset=PLANTED, **TASKS, **given, progress=False,
        runs_dir=folder / "runs", cache_dir=folder / "cache",
    )  # fmt: skip


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.filterwarnings("ignore")
def test_any_network_makes_a_run_like_any_other(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make, width = NETWORKS[name]
    module = make()
    made = run_of(module, tmp_path)
    assert not made.reused
    assert run_of(module, tmp_path).reused
    embedded = made.model(device="cpu").embed(np.zeros((2, 32, 32, 3), np.uint8))
    assert (embedded.shape, embedded.dtype) == ((2, width), np.float32)
    with torch.no_grad():
        next(module.parameters()).add_(0.25)
    changed = run_of(module, tmp_path)
    assert not changed.reused
    with pytest.raises(PluginError, match="backbone=module"):  # the old weights are gone
        made.model()


class Returning(nn.Module):
    """Returns something else than vectors or maps."""

    def __init__(self, function: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: torch.Tensor) -> object:
        return self.function(images)


def one_number(images: torch.Tensor) -> torch.Tensor:
    return images.mean((1, 2, 3))


def one_column(images: torch.Tensor) -> torch.Tensor:
    return one_number(images)[:, None]


def first_image(images: torch.Tensor) -> torch.Tensor:
    return images[:1].flatten(1).expand(3, -1)


def nothing(images: torch.Tensor) -> tuple[()]:
    return ()


def sparse(images: torch.Tensor) -> torch.Tensor:
    return images.flatten(1).to_sparse()


MISFITS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "(n,)": (lambda: Returning(one_number), r"shape \(1,\)"),
    "(n, 1)": (lambda: Returning(one_column), r"shape \(1, 1\)"),
    "another n": (lambda: Returning(first_image), "shape"),
    "sparse": (lambda: Returning(sparse), "Tensor"),
    "none": (lambda: Returning(lambda images: None), "NoneType"),
    "empty": (lambda: Returning(nothing), "tuple"),
    "text": (lambda: Returning(lambda images: "features"), "str"),
    "error": (lambda: Returning(lambda images: {}["key"]), "KeyError"),
    "exit": (lambda: Returning(lambda images: sys.exit(3)), "SystemExit"),
    "complex": (lambda: Returning(lambda images: images.flatten(1) + 0j), "Tensor"),
    "random": (lambda: Returning(lambda x: torch.rand(len(x), 5)), "in another call"),
    "batch": (lambda: Returning(lambda x: (x - x.mean(0)).flatten(1)), "others of its batch"),
    "lazy": (lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(4)), "lazy"),
    "meta": (lambda: nn.Conv2d(3, 4, 3, device="meta"), "device meta"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_module_that_is_no_backbone_is_named(name: str) -> None:
    make, fault = MISFITS[name]
    module = make()
    with pytest.raises(OptionError, match=f"the module {type(module).__name__} .*{fault}"):
        fsf.model("ncc", backbone=module, size=16, device="cpu").embed(
            np.zeros((1, 16, 16, 3), np.uint8)
        )


def test_each_image_is_embedded_once(tmp_path: Path) -> None:
    seen: list[int] = []
    data, module = fsf.dataset(**PLANTED), Viewing()
    arms = fsf.draw("fewstab", fsf.pool(data), tasks=30, way=2, shot=1, queries=2)
    model = fsf.model("ncc", backbone=module, size=32, device="cpu")
    module_in = model.network.extractor.module
    module_in.register_forward_hook(lambda _, images, __: seen.append(len(images[0])))
    fsf.evaluate(model, arms, data, progress=False)
    different = np.unique(np.concatenate([tasks.images.ravel() for tasks in arms.values()]))
    assert sum(seen) == len(different)


def test_size_mean_and_std_are_options_of_the_backbone(tmp_path: Path) -> None:
    """A mean of 0.5 and a std of 0.25 map black to -2."""
    pixels = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = fsf.model(
        "ncc", backbone=pixels, size=24, mean=(0.5,) * 3, std=(0.25,) * 3, device="cpu"
    )
    assert model.image_size == 24
    np.testing.assert_allclose(model.embed(np.zeros((1, 24, 24, 3), np.uint8)), [[-2, -2, -2]])
    run = run_of({"name": pixels, "size": 24}, tmp_path)
    assert run.record.seen_size == 24
    assert fsf.model("ncc", backbone=NETWORKS["timm-vit"][0](), device="cpu").image_size == 32
    with pytest.raises(OptionError, match=r"backbone\.sizes"):
        fsf.model("ncc", backbone=pixels, sizes=24)
    array = fsf.model("ncc", backbone=pixels, size=24, mean=np.full(3, 0.5), std=torch.ones(3))
    np.testing.assert_allclose(array.embed(np.zeros((1, 24, 24, 3), np.uint8)), [[-0.5] * 3])
    for wrong in ({"mean": (123.7, 116.3, 103.5)}, {"std": (0, 0, 0)}):
        with pytest.raises(OptionError, match=r"module Sequential.* in 0\.\.1"):
            fsf.model("ncc", backbone=pixels, size=24, **wrong)
    endless = nn.Sequential(nn.Flatten(), nn.Threshold(1e9, float("nan")))
    with pytest.raises(PluginError, match=r"the module Sequential: .*not finite"):
        fsf.model("ncc", backbone=endless, size=8).embed(np.zeros((1, 8, 8, 3), np.uint8))
    with pytest.raises(OptionError, match="size=PIXELS"):
        fsf.model("ncc", backbone=nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), size=16)


def test_what_the_weights_have_seen_is_an_option_of_the_backbone(tmp_path: Path) -> None:
    module, folder = Viewing(), image_folder(tmp_path / "images", "abcdef")

    def run(**options: Any) -> fsf.Run:
        return fsf.run(
            method="ncc", backbone={"name": module, **options}, dataset=f"folder:{folder}",
            **TASKS, progress=False, runs_dir=tmp_path / "runs", cache_dir=tmp_path / "cache",
        )  # fmt: skip

    [note] = run().record.cautions
    assert "unknown data (pretrained_on of the backbone" in note
    none, places = run(pretrained_on="none"), run(pretrained_on="places365")
    assert (none.record.cautions, none.record.data.pretrained_on) == ((), ())
    assert places.record.data.pretrained_on == ("places365",)
    assert run(pretrained_on="places365").reused


def test_a_function_says_how_long_it_takes(capfd: pytest.CaptureFixture[str]) -> None:
    data = fsf.dataset(**PLANTED)
    arms = fsf.draw("random", fsf.pool(data), tasks=10, way=2, shot=1, queries=2)
    fsf.evaluate(lambda support, labels, query: np.zeros((len(query), 2)), arms, data)
    said = capfd.readouterr().err
    assert "10 tasks one by one" in said
    assert "backbone=module" in said
