"""`fsf runs export --config`: the file that makes a run."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import fsframework
from fsf_trackers.configuration import configuration_of
from tests.conftest import Fsf
from tests.toys import image_folder

SMALL = (
    *("--sampler", "random", "--way", "2", "--shot", "1", "--queries", "2"),
    *("-o", "dataset.n_per_class=8", "-o", "dataset.size=16"),
)
SHAPE = {"n_way": 2, "n_shot": 1, "n_query": 2}


def test_the_file_has_what_was_given_and_finds_the_run_as_finished(
    fsf: Fsf, tmp_path: Path
) -> None:
    trained = (
        "-o",
        "training.epochs=1",
        "-o",
        "training.steps=2",
        "-o",
        "training.augment=flip,color-jitter",
    )
    done = fsf(
        *("run", "--method", "ifsl:protonet", "--tasks", "9", "--seeds", "2,3", *SMALL, *trained),
        *("--precision", "bf16", "--statistic", "acc", "--level", "0.9"),
    )
    assert done.returncode == 0, done.stderr
    exported = fsf("runs", "export", "seed=3", "--config", "made.toml")
    assert (exported.returncode, exported.stdout) == (0, "")
    assert tomllib.loads((tmp_path / "made.toml").read_text()) == {
        "method": "ifsl:protonet",
        "tasks": 9,
        "training_seed": 3,
        "precision": "bf16",
        "level": 0.9,
        "statistics": ["acc"],
        "training": {"epochs": 1, "steps": 2, "augment": ["flip", "color-jitter"]},
        "sampler": {"name": "random", **SHAPE},
        "dataset": {"n_per_class": 8, "size": 16},
    }
    again = fsf("run", "--config", "made.toml")
    assert "already finished" in again.stderr, again.stderr
    assert fsf("runs", "export", "seed=3", "--config", "made.toml").returncode == 2, "it exists"
    printed = fsf("runs", "export", "seed=3", "--config")
    assert printed.stdout == (tmp_path / "made.toml").read_text()
    assert configuration_of(next((tmp_path / "runs").glob("*seed3*"))) == printed.stdout


def test_names_paths_tables_and_later_statistics_are_kept(fsf: Fsf, tmp_path: Path) -> None:
    place = image_folder(tmp_path / 'my "birds"', "ab", each=8)
    options = {
        "method": "ncc", "sampler": {"name": "random", **SHAPE}, "tasks": "all", "split": "all",
        "dataset": f"folder:{place}", "image_size": 16, "name": "mine", "progress": False,
        "training": [{"epochs": 0}, {"epochs": 0, "freeze": ["backbone"]}],
    }  # fmt: skip
    options |= {"sampler": {"name": "depleting", **SHAPE}}
    fsframework.run(**options)
    fsframework.run(**options, statistics=["acc", "wacc"], interval="bca")
    text = configuration_of("mine")
    found = tomllib.loads(text)
    assert (found["tasks"], found["interval"], "statistics" in found) == ("all", "bca", False)
    assert found["training"]["stages"][1] == {"epochs": 0, "freeze": ["backbone"]}
    (tmp_path / "made.toml").write_text(text)
    again = fsf("run", "--config", "made.toml")
    assert "already finished" in again.stderr, again.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "--config"),
        (("--to", "mlflow", "--config", "a.toml"), "--config"),
        (("--config", "a.json"), ".toml"),
        (("other", "--config", "a.toml"), "one run"),
    ],
)
def test_one_destination_is_given_for_one_run(
    fsf: Fsf, arguments: tuple[str, ...], named: str
) -> None:
    done = fsf("runs", "export", "mine", *arguments)
    assert (done.returncode, named in done.stderr) == (2, True)
