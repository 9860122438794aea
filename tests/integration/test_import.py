"""`fsf import`: a checkpoint of another library becomes a run, or one line says why not."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from fsf_importing.libfewshot import LibFewShot
from fsframework.engine.learning.model import load_tensors
from fsframework.records import ImportedRecord, RunRecord

MEAN = torch.tensor([120.39586422, 115.59361427, 104.54012653]) / 255
STD = torch.tensor([70.68188272, 68.27635443, 72.54505529]) / 255


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A ProtoNet of random weights, as LibFewShot saves one."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    LibFewShot().example(folder)
    return folder


def images_of(way: int, shot: int, query: int, size: int = 84) -> np.ndarray:
    generator = np.random.default_rng(way * 100 + shot * 10 + query)
    # Ways of colours of their own, or all scores would be about the same.
    tone = generator.integers(0, 160, (way, 1, 3, 1, 1))
    noise = generator.integers(0, 96, (way, shot + query, 3, size, size))
    return (tone + noise).reshape(-1, 3, size, size).astype(np.uint8)


def reference(folder: Path, images: np.ndarray, way: int, shot: int, training: bool):
    """Scores and loss of a ProtoNet with Conv64F, written down anew."""
    state = torch.load(folder / "model_best.pth", weights_only=True)
    x = (torch.from_numpy(images) / 255 - MEAN[:, None, None]) / STD[:, None, None]
    for i in range(1, 5):
        weights = {k: state[f"emb_func.layer{i}.{k}"] for k in ("0.weight", "0.bias")}
        x = functional.conv2d(x, *weights.values(), padding=1)
        names = ("1.running_mean", "1.running_var", "1.weight", "1.bias")
        norm = [state[f"emb_func.layer{i}.{k}"].clone() for k in names]
        x = functional.batch_norm(x, *norm, training=training)
        x = functional.max_pool2d(functional.relu(x), 2)
    by_way = x.flatten(1).reshape(way, -1, 1600)
    prototypes = by_way[:, :shot].mean(dim=1)
    query = by_way[:, shot:].reshape(-1, 1600)
    scores = -((query[:, None] - prototypes) ** 2).sum(dim=2)
    labels = torch.arange(way).repeat_interleave(len(query) // way)
    return scores.numpy(), functional.cross_entropy(scores, labels).item()


def episode(folder: Path, way: int, shot: int, query: int, **other) -> Path:
    """Write what the reference makes of random images, or something else in its place."""
    images = images_of(way, shot, query)
    arrays = {
        "images": images,
        "output": reference(folder, images, way, shot, training=False)[0],
        "train_loss": np.array(reference(folder, images, way, shot, training=True)[1]),
        **other,
    }
    path = folder / "episode.npz"
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def one_line(done: subprocess.CompletedProcess[str], *said: str) -> None:
    """Require exit code 2, one line of complaint and no run."""
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("fsf: ")
    assert done.stderr.count("\n") == 1, done.stderr
    for text in said:
        assert text in done.stderr


@pytest.mark.slow
def test_a_run_is_written_that_the_other_commands_know(fsf, tmp_path, checkpoint) -> None:
    done = fsf("import", "libfewshot", str(checkpoint))
    assert done.returncode == 0, done.stderr
    [folder] = (tmp_path / "runs").iterdir()
    assert f"run: {folder}" in done.stdout
    assert folder.name.startswith("protonet-libfewshot-")
    assert sorted(p.name for p in folder.iterdir()) == ["run.json", "weights.safetensors"]

    record = RunRecord.load(folder)
    assert record.status == "imported"
    assert record.method is not None
    assert record.backbone is not None
    assert record.method.to_tree() == {"name": "protonet"}
    assert record.backbone.name == "conv64f"
    assert record.backbone.options["mean"] == pytest.approx(MEAN.tolist())
    assert record.seen_size == 84
    assert record.method.origins["name"] == "libfewshot"
    assert {p.kind for p in record.plugins} == {"importer", "method", "backbone"}
    assert record.imported == ImportedRecord(
        source="LibFewShot's ProtoNet with Conv64F",
        folder=str(checkpoint),
        n_way=5,
        n_shot=1,
        n_query=15,
    )

    weights, _ = load_tensors(folder / "weights.safetensors")
    stored = torch.load(checkpoint / "model_best.pth", weights_only=True)
    assert len(weights) == len(stored)
    assert torch.equal(weights["backbone.blocks.2.conv.weight"], stored["emb_func.layer3.0.weight"])

    shown = fsf("runs", "show", "protonet").stdout
    assert "LibFewShot's ProtoNet with Conv64F" in shown
    [listed] = json.loads(fsf("runs", "list", "--json").stdout)
    assert (listed["run"], listed["status"]) == (folder.name, "imported")

    more = ("--sampler", "random", "--tasks", "2", "--queries", "2", "--json")
    done = fsf("run", "--model", folder, *more)
    assert done.returncode == 0, done.stderr
    run = RunRecord.load(Path(json.loads(done.stdout)["folder"]))
    assert run.digests["weights"] == record.digests["weights"]
    assert run.backbone.to_tree() == record.backbone.to_tree()
    assert run.seen_size == 84, "not the data set's own size"


def test_the_same_checkpoint_is_the_same_run(fsf, tmp_path, checkpoint) -> None:
    path = episode(checkpoint, 2, 1, 2)
    first = json.loads(
        fsf("import", "libfewshot", str(checkpoint), "--check", str(path), "--json").stdout
    )
    second = json.loads(fsf("import", "libfewshot", str(checkpoint), "--json").stdout)
    assert first["folder"] == second["folder"]
    assert first["notes"] == second["notes"], "what was compared once stays noted"
    assert len(list((tmp_path / "runs").iterdir())) == 1
    weights = torch.load(checkpoint / "model_best.pth", weights_only=True)
    weights["emb_func.layer1.0.bias"] += 1e-3
    torch.save(weights, checkpoint / "model_best.pth")
    assert fsf("import", "libfewshot", str(checkpoint)).returncode == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2


# Way, shot and query of the configuration stay 5, 1 and 15.
@pytest.mark.parametrize(("way", "shot", "query"), [(3, 2, 4), (2, 1, 1)])
def test_agreement_is_found_for_any_shape_of_tasks(fsf, checkpoint, way, shot, query) -> None:
    path = episode(checkpoint, way, shot, query)
    done = fsf("import", "libfewshot", str(checkpoint), "--check", str(path), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["check"]
    assert (found["way"], found["shot"], found["query"]) == (way, shot, query)
    assert found["compared"] == "scores"
    assert found["output_difference"] < 1e-5
    assert found["train_loss_difference"] < 1e-4


@pytest.mark.slow
def test_a_difference_is_told_and_nothing_written(fsf, tmp_path, checkpoint) -> None:
    check = ("import", "libfewshot", str(checkpoint), "--check")
    _, loss = reference(checkpoint, images_of(5, 1, 3), 5, 1, training=True)
    scores, _ = reference(checkpoint, images_of(5, 1, 3), 5, 1, training=False)
    scores[3, 2] += 0.02 * (scores.max(axis=1) - scores.min(axis=1)).mean()
    path = str(episode(checkpoint, 5, 1, 3, output=scores))
    done = fsf(*check, path)
    assert done.returncode == 1
    outputs, training = (line for line in done.stdout.splitlines() if "0.001" in line)
    assert "2.0e-02" in outputs
    assert outputs.endswith("DIFFERS")
    assert training.endswith("agrees")
    assert not (tmp_path / "runs").exists()
    assert fsf(*check, path, "--tolerance", "0.03", "--json").returncode == 0
    # Without a training loss, only outputs are compared.
    path = str(episode(checkpoint, 5, 1, 3, output=scores, train_loss=None))
    assert "training loss" not in fsf(*check, path).stdout
    # A training loss that differs fails too, and nothing agrees with what is no number.
    done = fsf(
        *check, str(episode(checkpoint, 5, 1, 3, train_loss=np.array(1.01 * loss))), "--json"
    )
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["folder"] is None
    assert found["check"]["train_loss_difference"] == pytest.approx(0.01 / 1.01, rel=1e-2)
    path = str(episode(checkpoint, 5, 1, 3, train_loss=np.array(np.nan)))
    assert fsf(*check, path).returncode == 1


def test_labels_must_be_equal(fsf, checkpoint) -> None:
    scores, _ = reference(checkpoint, images_of(5, 1, 3), 5, 1, training=False)
    labels = scores.argmax(axis=1)
    path = episode(checkpoint, 5, 1, 3, output=labels.reshape(1, -1).astype(np.float32))
    done = fsf("import", "libfewshot", str(checkpoint), "--check", str(path))
    assert done.returncode == 0, done.stderr
    assert "0 of 15" in done.stdout
    labels[4] = (labels[4] + 1) % 5
    path = episode(checkpoint, 5, 1, 3, output=labels)
    done = fsf("import", "libfewshot", str(checkpoint), "--check", str(path), "--tolerance", "1")
    assert done.returncode == 1
    assert "1 of 15" in done.stdout


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"images": None}, "'images'"),
        ({"output": None}, "'output'"),
        ({"images": images_of(5, 1, 3, size=32)}, "(n, 3, 84, 84)"),
        ({"images": images_of(5, 1, 3)[:19]}, "19 images and 15 queries"),
        ({"output": np.zeros((14, 5))}, "20 images and 14 queries"),
        ({"output": np.zeros((20, 5))}, "20 images and 20 queries"),
        ({"output": np.zeros((2, 3, 5))}, "(2, 3, 5)"),
        ({"output": np.full(15, 5)}, "from 0 to 4"),
        ({"output": np.full(15, 0.5)}, "from 0 to 4"),
        ({"train_loss": np.zeros(3)}, "train_loss"),
        ({"images": np.array([None])}, ".npz"),
    ],
)
def test_a_file_to_compare_with_that_does_not_fit(fsf, tmp_path, checkpoint, other, said) -> None:
    path = episode(checkpoint, 5, 1, 3, **other)
    done = fsf("import", "libfewshot", str(checkpoint), "--check", str(path))
    one_line(done, f"--check {path}: ", said)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("libfewshot", "checkpoint", "--check", "nowhere.npz"), ("nowhere.npz", "no such file")),
        (("libfewshot", "checkpoint", "--tolerance", "0"), ("--tolerance", "0.0")),
        (("libfewshot", "checkpoint", "-o", "importer.checkpoint=last.pth"), ("last.pth: no",)),
        (("libfewshot", "checkpoint", "-o", "importer.file=x"), ("importer.file",)),
        (("libfewshot", "checkpoint", "-o", "checkpoint"), ("KEY=VALUE",)),
        (("libfewshot", "checkpoint", "-o", "checkpoint=x"), ("-o importer.checkpoint=",)),
        (("libfewshot", "incomplete"), ("config.yaml: no such file",)),
        (("libfewshot", "nowhere"), ("nowhere: no such folder",)),
        (("libfewshots", "nowhere"), ("'libfewshots'", "did you")),
    ],
)
def test_what_does_not_fit_is_named(fsf, tmp_path, checkpoint, arguments, said) -> None:
    (tmp_path / "incomplete").mkdir()
    one_line(fsf("import", *arguments), *said)
    assert not (tmp_path / "runs").exists()


class Touch:
    """A call that leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def test_code_in_a_checkpoint_is_refused_in_a_process_of_its_own(
    fsf_process, tmp_path, checkpoint
) -> None:
    torch.save({"weight": Touch(tmp_path / "mark")}, checkpoint / "model_best.pth")
    done = fsf_process("import", "libfewshot", str(checkpoint))
    one_line(done, "model_best.pth: contains more than tensors", "could run code")
    assert not (tmp_path / "mark").exists()
    assert not (tmp_path / "runs").exists()


def test_a_run_that_cannot_be_written_whole_is_not_left_in_part(
    fsf, tmp_path, checkpoint, monkeypatch
) -> None:
    def full(self: RunRecord, folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunRecord, "save", full)
    done = fsf("import", "libfewshot", str(checkpoint))
    assert done.returncode == 2
    assert not list((tmp_path / "runs").iterdir())
