"""What is read from a folder and what is refused; no test needs the reference material."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn

from fsf_importing.libfewshot import LibFewShot
from fsframework.interfaces import DataError
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks([LibFewShot])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a ProtoNet with Conv64F and random weights."""
    LibFewShot().example(tmp_path)
    return tmp_path


def configure(folder: Path, **changes: Any) -> None:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))


def refused(folder: Path, *message: str, checkpoint: str = "model_best.pth") -> None:
    with pytest.raises(DataError) as caught:
        LibFewShot(checkpoint=checkpoint).read(folder)
    for text in message:
        assert text in str(caught.value)


def test_what_a_checkpoint_declares(folder: Path) -> None:
    configure(folder, way_num=7, shot_num=3, query_num=4)
    model = LibFewShot().read(folder)
    assert model.source == "LibFewShot's ProtoNet with Conv64F"
    assert (model.method, model.backbone) == ("protonet", "conv64f")
    assert (model.n_way, model.n_shot, model.n_query, model.image_size) == (7, 3, 4, 84)
    assert model.backbone_options["std"][2] == pytest.approx(72.54505529 / 255)
    assert model.names["backbone.blocks.3.norm.bias"] == "emb_func.layer4.1.bias"
    assert len(model.weights) == 4 * 7


def test_what_concerns_training_is_ignored(folder: Path) -> None:
    configure(
        folder,
        includes=["headers/data.yaml"],
        optimizer={"name": "Adam", "kwargs": {"lr": 1e-3}, "other": None},
        data_root="./miniImageNet--ravi",
        parallel_part=["emb_func"],
        test_way=None,
        tb_scale=0.5,
        image_size=[84, 84],
    )
    assert LibFewShot().read(folder).image_size == 84


def test_missing_keys_have_libfewshots_defaults(folder: Path) -> None:
    config = {
        "backbone": {"name": "resnet12", "kwargs": {}},
        "classifier": {"name": "ProtoNet", "kwargs": None},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    torch.save(resnet12(64, 160, 320, 640), folder / "model_best.pth")
    model = LibFewShot().read(folder)
    assert model.backbone_options["widths"] == (64, 160, 320, 640)
    assert model.backbone_options["drop_rate"] == 0.1
    assert model.check_backbone_options == {"drop_rate": 0.0}, "outputs are made without dropout"
    assert (model.n_way, model.n_shot, model.n_query, model.image_size) == (5, 1, 15, 84)


def resnet12(*widths: int) -> dict[str, Tensor]:
    """Return weights as LibFewShot's resnet12 names them."""
    state: dict[str, Tensor] = {}
    for i, (before, width) in enumerate(zip((3, *widths), widths, strict=False), 1):
        layers: dict[str, nn.Module] = {
            **{f"bn{j}": nn.BatchNorm2d(width) for j in (1, 2, 3)},
            "downsample.0": nn.Conv2d(before, width, 1, bias=False),
            "downsample.1": nn.BatchNorm2d(width),
        }
        for j in (1, 2, 3):
            layers[f"conv{j}"] = nn.Conv2d(before if j == 1 else width, width, 3, bias=False)
        for name, layer in layers.items():
            for key, value in layer.state_dict().items():
                state[f"emb_func.layer{i}.0.{name}.{key}"] = value
    return state


@pytest.mark.parametrize(
    ("kwargs", "pooling"),
    [({"avg_pool": True}, "mean"), ({"avg_pool": False, "is_flatten": True}, "flatten")],
)
def test_vectors_of_resnet12_are_means_or_whole_maps(
    folder: Path, kwargs: dict[str, Any], pooling: str
) -> None:
    configure(folder, backbone={"name": "resnet12", "kwargs": {**kwargs, "planes": [2, 3, 4, 5]}})
    torch.save(resnet12(2, 3, 4, 5), folder / "model_best.pth")
    model = LibFewShot().read(folder)
    assert model.backbone_options["pooling"] == pooling
    assert model.backbone_options["widths"] == (2, 3, 4, 5)
    assert model.weights["backbone.stages.2.drop.n_steps"] == 0


@pytest.mark.parametrize("place", [".", "checkpoints"])
def test_weights_are_next_to_the_configuration_or_below(folder: Path, place: str) -> None:
    (folder / place).mkdir(exist_ok=True)
    (folder / "model_best.pth").rename(folder / place / "model_epoch.pth")
    assert LibFewShot(checkpoint="model_epoch.pth").read(folder).weights
    refused(folder, "model_best.pth: no such file")


def test_a_training_state_contains_the_weights_too(folder: Path) -> None:
    plain = LibFewShot().read(folder).weights
    state = torch.load(folder / "model_best.pth", weights_only=True)
    optimiser = torch.optim.Adam(nn.Linear(2, 2).parameters())
    training = {"epoch": 3, "model": state, "optimizer": optimiser.state_dict()}
    torch.save(training, folder / "model_last.pth")
    last = LibFewShot(checkpoint="model_last.pth").read(folder).weights
    assert all(torch.equal(last[name], plain[name]) for name in plain)


@pytest.mark.parametrize(
    ("before", "after"), [("emb_func", "emb_func.module"), ("emb_func", "module.emb_func")]
)
def test_names_of_data_parallel_are_understood(folder: Path, before: str, after: str) -> None:
    plain = LibFewShot().read(folder).weights
    path = folder / "model_best.pth"
    state = torch.load(path, weights_only=True)
    torch.save({k.replace(before, after): v for k, v in state.items()}, path)
    assert LibFewShot().read(folder).weights.keys() == plain.keys()
    torch.save({**state, **torch.load(path, weights_only=True)}, path)
    refused(folder, "contains the weight 'emb_func.layer1.0.weight' twice")


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ([torch.zeros(2)], "no named tensors"),
        (torch.zeros(2), "no named tensors"),
        ({"epoch": 3}, "no named tensors"),
        ({3: torch.zeros(2)}, "no named tensors"),
        ({"a": torch.zeros(2)}, "missing: emb_func.layer1.0.weight, emb_func.layer1.0.bias"),
        (nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
        (b"", "cannot be read as weights"),
        (b"not weights", "cannot be read as weights"),
        (b"PK\x03\x04 half of a zip", "cannot be read as weights"),
    ],
)
def test_a_file_that_is_not_a_state_dict(folder: Path, stored: Any, message: str) -> None:
    path = folder / "model_best.pth"
    if isinstance(stored, bytes):
        path.write_bytes(stored)
    else:
        torch.save(stored, path)
    refused(folder, str(path), message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "is not a configuration of LibFewShot, since it has no keys"),
        ("a: [", "cannot be read as YAML"),
        ("a: !!python/object:os.system {}", "cannot be read as YAML"),
        ("way_num: 5", "backbone.name: is missing"),
        ("classifier: ProtoNet", "classifier.name: is missing"),
    ],
)
def test_a_file_that_is_not_a_configuration(folder: Path, text: str, message: str) -> None:
    both = "" if "classifier" in text else "\nclassifier: {name: ProtoNet}\n"
    (folder / "config.yaml").write_text(text + (both if text.startswith("way") else ""))
    refused(folder, str(folder / "config.yaml"), message)


CONV = {"name": "Conv64F", "kwargs": {"is_flatten": True}}
MAPS = {"name": "Conv64F", "kwargs": {"is_flatten": False}}
PROTO = {"name": "ProtoNet"}
GAIN = {"name": "GAINModel", "kwargs": {"use_euclidean": True}}


def conv(**kwargs: Any) -> dict[str, Any]:
    return {"backbone": {"name": "Conv64F", "kwargs": kwargs}}


def resnet(**kwargs: Any) -> dict[str, Any]:
    return {"backbone": {"name": "resnet12", "kwargs": kwargs}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classifier": {"name": "MetAL"}}, "LibFewShot's MetAL has no counterpart here; known: "),
        ({"classifier": {**PROTO, "args": 1}}, "classifier.args: unknown key; known: kwargs, name"),
        ({"classifier": {**PROTO, "kwargs": [1]}}, "classifier.kwargs must have keys, but is [1]"),
        ({"classifier": {**PROTO, "kwargs": {"k": 1}}}, "kwargs.k: unknown key; known: none"),
        ({"classifier": GAIN}, "encoders of its own, and its backbone must be fgfl_resnet12"),
        ({"classifier": {"name": "RENet"}, "backbone": MAPS}, "kwargs.temperature: is missing"),
        ({"classifier": {"name": "RENet"}, "backbone": CONV}, "kwargs.temperature: is missing"),
        ({"backbone": {"name": "resnet18"}}, "LibFewShot's resnet18 has no counterpart here"),
        ({"backbone": {"name": "resnet12Bdc"}}, "resnet12Bdc makes maps, but the classifier takes"),
        ({"backbone": {"name": "fgfl_resnet12"}}, "fgfl_resnet12 is for GAINModel only"),
        (conv(flat=1), "backbone.kwargs.flat: unknown key"),
        ({"backbone": MAPS}, "is_flatten must be true: the classifier takes vectors"),
        (conv(is_flatten=1), "is_flatten must be true or false, not 1"),
        (conv(is_flatten=True, is_feature=True), "is_feature: maps of all four blocks are not"),
        (conv(is_flatten=True, negative_slope="steep"), "negative_slope must be a number, not"),
        (resnet(planes=[8, 16, 24]), "planes must be 4 whole numbers of at least 1, not [8, 16"),
        ({**resnet(), "image_size": 64}, "avg_pool: averages windows of 5 x 5 locations, but ima"),
        (resnet(maxpool_last2=False), "leave maps of 21 x 21"),
        ({"image_size": [84, 96]}, "image_size must be a number, not [84, 96]"),
        ({"way_num": 1}, "way_num must be a whole number of at least 2, not 1"),
        ({"shot_num": 1.5}, "shot_num must be a whole number of at least 1, not 1.5"),
    ],
)
def test_a_configuration_that_is_not_understood(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    configure(folder, **changes)
    refused(folder, str(folder / "config.yaml"), message)
