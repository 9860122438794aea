"""The models of the package: what has a name never changes, and answers without training."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fsframework
from tests.conftest import Fsf

FOLDER = Path(__file__).parents[1] / "fsf_weights_cifar_fs/cifar-fs"
SHARED = Path(os.environ.get("FSF_GOLDEN", Path(__file__).parents[4] / "shared/golden")).parent
SMALL = SHARED / "data/cifar100_small.zip"
MODELS = {
    "baseline-plus-plus": ("849a8c6ac1ba", 70.3),
    "maml": ("47dcd9901fb2", 63.0),
    "protonet": ("c05e075d4d6c", 76.0),
    "r2d2": ("86127b70c3ae", 73.9),
    "renet": ("765e7a0dde46", 59.0),
    "rfs": ("899fc9c72589", 71.6),
    "simclr": ("cc2600d09020", 54.9),
}
"""The beginning of each digest of weights, never to be edited, and Acc on 60 images per class."""


def test_every_model_has_its_digest_here() -> None:
    found = {folder.name: _digest(folder.name) for folder in FOLDER.iterdir()}
    assert found == {name: digest for name, (digest, _) in MODELS.items()}


def _digest(name: str) -> str:
    return fsframework.load_run(f"cifar-fs/{name}").record.digests["weights"][:12]


def test_a_model_answers_without_training_and_says_where_it_was_trained(fsf: Fsf) -> None:
    small = "-o", "dataset.n_per_class=30"
    done = fsf("run", "--model", "cifar-fs/rfs", "--sampler", "random", "--tasks", "10", *small)
    assert done.returncode == 0, done.stderr
    assert "nothing was trained" in done.stdout
    [run] = fsframework.runs()
    assert [data.options["name"] for data in run.record.data.trained_on] == ["cifar-fs"]
    start = "-o", "training.init_from=cifar-fs/rfs", "-o", "training.epochs=0"
    other = fsf("run", *start, "--method", "ncc", "--sampler", "random", "--tasks", "10", *small)
    assert other.returncode == 0, other.stderr
    [head] = [one for one in fsframework.runs() if one.record.components["method"].name == "ncc"]
    assert head.record.data.trained_on == run.record.data.trained_on


@pytest.mark.shared_data
@pytest.mark.skipif(not SMALL.is_file(), reason=f"the reference data is not at {SMALL}")
@pytest.mark.parametrize(
    "names", [["protonet"], pytest.param(list(MODELS), marks=pytest.mark.slow, id="all")]
)
def test_models_know_the_test_classes_as_well_as_is_said(names: list[str]) -> None:
    found = {}
    for name in names:
        run = fsframework.run(
            model=f"cifar-fs/{name}", dataset=f"cifar-fs:{SMALL}", sampler="random", shot=5,
            tasks=100, progress=False,
        )  # fmt: skip
        found[name] = 100 * run.estimates["acc-random"].value
    assert found == pytest.approx({name: MODELS[name][1] for name in names}, abs=1)
