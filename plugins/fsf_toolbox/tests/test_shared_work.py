"""Work that the workers of a launcher divide: one is killed, nothing is lost or made twice."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fsf_tools import sharing
from fsframework.engine.cache import images
from fsframework.values import AttributeTable
from tests.conftest import Fsf

PLUGINS = '''
"""Plugins that tell what they do, and that may end their process."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import torch
from fsframework.errors import DataError
from fsframework.interfaces import AttributeDetector, Backbone, Dataset
from fsframework.values import digest_of

HERE = Path(__file__).parent


def tell(line):
    with (HERE / "told.txt").open("ab", buffering=0) as file:
        file.write(line.encode() + b"\\n")


def meet(what):
    """End this process if it is the first to meet what is fatal."""
    fatal = HERE / "fatal.txt"
    if fatal.exists() and fatal.read_text() == what:
        fatal.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


class Telling(AttributeDetector):
    """Words of the data set; tells the images of each call."""

    consumes = "records"

    def detect(self, images):
        for image in images:
            meet(image.key)
        tell(" ".join(image.key for image in images))
        time.sleep(0.005 * len(images))
        return [frozenset(image.metadata["words"].split(";")) - {""} for image in images]


class Noise(Dataset):
    """Noise; tells the images that it makes."""

    def __init__(self, *, broken: int = -1) -> None:
        self.broken = broken
        self.keys = tuple(f"{i:03d}" for i in range(120))
        self.labels = np.arange(120) // 20
        self.class_names = tuple("abcdef")
        self.splits = {"train": ("a", "b"), "val": ("c",), "test": ("d", "e", "f")}
        words = ["grass", "snow", "sofa", "road", "sand"]
        self.metadata = {"words": tuple(f"{words[i % 5]};{words[i % 7 % 5]}" for i in range(120))}
        self.fingerprint = digest_of("noise")

    def image(self, index):
        meet(self.keys[index])
        if index == self.broken:
            raise DataError(f"{self.keys[index]}: is broken")
        tell(self.keys[index])
        time.sleep(0.002)
        return np.random.default_rng(index).integers(0, 256, (16, 16, 3), dtype=np.uint8)


class Small(Backbone):
    """A convolution; tells the batches that it embeds, and dies of its second."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 4, 3, stride=4)
        self.calls = 0

    def forward(self, images):
        self.calls += 1
        if self.calls == 4:
            meet("batch")
        tell(f"batch of {len(images)}: {images.double().sum().item()!r}")
        return self.layer(images)
'''
PLUGIN = ("--plugin", "plugins.py")
EXTRACT = ("attributes", "extract", *PLUGIN, "--detector", "telling", "--batch-size", "5")
DATA = ("--dataset", "noise", "--split", "all")
PACK = ("data", "pack", *PLUGIN, "--dataset", "noise", "--image-size", "16", "--json")
EMBED = (
    "data", "embed", *PLUGIN, "--method", "ncc", "--backbone", "small", "--dataset", "noise",
    "--split", "all", "--image-size", "16", "--json", "-o", "training.epochs=0",
)  # fmt: skip
SHARED = ("--launcher", "local", "-o", "launcher.processes=2")
N_IMAGES = 120


@pytest.fixture(autouse=True)
def _plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugins.py").write_text(PLUGINS)
    monkeypatch.setattr(sharing, "_LEAST_ROWS", 20)
    monkeypatch.setattr(images, "_IMAGES_A_BLOCK", 4)


def told(tmp_path: Path) -> list[str]:
    """Return what the plugins have told since the last call."""
    path = tmp_path / "told.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    # Each process finds the shape of features by a single image.
    return [line for line in lines if not line.startswith("batch of 1:")]


WORK = {
    "words": ((*EXTRACT, "words.parquet", *DATA, "--force", "--json"), "065"),
    "images": (PACK, "050"),
    "features": (EMBED, "batch"),
}
"""Commands whose workers divide the images, and what one of them dies of."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "made", ["words", pytest.param("images", marks=pytest.mark.slow), "features"]
)
def test_workers_make_what_one_process_makes(
    fsf: Fsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    command, fatal = WORK[made]
    files, calls = [], []
    for cache, workers in (("alone", ()), ("shared", SHARED)):
        monkeypatch.setenv("FSF_CACHE", str(tmp_path / cache))
        if workers:
            (tmp_path / "fatal.txt").write_text(fatal)
        done = fsf(*command, *workers)
        assert done.returncode == 0, done.stderr
        files.append((tmp_path / json.loads(done.stdout)["file"]).read_bytes())
        calls.append(told(tmp_path))
    assert not (tmp_path / "fatal.txt").exists(), "a worker was killed"
    assert files[0] == files[1]
    assert set(calls[0]) == set(calls[1]), "the same calls"
    assert len(calls[1]) - len(calls[0]) <= 10, "only what it had in hand is done again"
    assert not list((tmp_path / "shared" / "shared").glob("*/*"))
    assert fsf(*command, *SHARED).returncode == 0
    assert told(tmp_path) == [], "nothing is left to do"


@pytest.mark.slow
def test_the_process_that_shares_the_work_may_be_killed(fsf: Fsf, tmp_path: Path) -> None:
    arguments = [*EXTRACT, "words.parquet", *DATA, *SHARED]
    process = subprocess.Popen([sys.executable, "-c", FEW_ROWS, *arguments], cwd=tmp_path)
    path = tmp_path / "told.txt"
    while not path.exists() or len(path.read_text().splitlines()) < 8:
        assert process.poll() is None
        time.sleep(0.002)
    process.kill()
    process.wait()
    done = fsf(*arguments, "-o", "launcher.processes=1")
    assert done.returncode == 0, done.stderr
    counts = Counter(key for line in told(tmp_path) for key in line.split())
    assert len(counts) == N_IMAGES
    assert max(counts.values()) <= 2, "what its workers had in hand is done again"
    assert len(AttributeTable.load(tmp_path / "words.parquet")) == N_IMAGES


FEW_ROWS = """
import sys
from fsframework.cli.main import main
from fsf_tools import sharing
sharing._LEAST_ROWS = 20
sys.argv[0] = "fsf"
main()
"""


def test_a_run_finds_features_which_a_method_to_be_trained_does_not_have(
    fsf: Fsf, tmp_path: Path
) -> None:
    assert fsf(*EMBED).returncode == 0
    assert any("batch" in line for line in told(tmp_path))
    run = [*EMBED[2:], "--sampler", "random", "--way", "3", "--shot", "1", "--queries", "2"]
    assert fsf("run", *run, "--tasks", "5").returncode == 0
    assert told(tmp_path) == []
    refused = fsf(*EMBED, "--method", "protonet", "-o", "training.epochs=1")
    assert refused.returncode == 2
    assert "protonet" in refused.stderr


@pytest.mark.slow
def test_what_is_wrong_in_a_shard_is_one_sentence(fsf: Fsf, tmp_path: Path) -> None:
    broken = ("-o", "dataset.broken=70")
    done = fsf(*PACK, *broken, *SHARED)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "fsf: 070: is broken; --broken skip leaves out images that cannot be read"
    )
    told(tmp_path)
    # The fingerprint does not tell, so that what was decoded before counts.
    done = fsf(*PACK, *broken, *SHARED, "--broken", "skip")
    assert done.returncode == 0, done.stderr
    packed = json.loads(done.stdout)
    assert list(packed["broken"]) == ["070"]


@pytest.mark.slow  # tests of sweeps kill every worker, too
def test_rows_that_kill_every_worker_are_given_up(
    fsf: Fsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "_LEAST_ROWS", N_IMAGES)
    plugins = tmp_path / "plugins.py"
    plugins.write_text(plugins.read_text().replace("        fatal.unlink()\n", ""))
    (tmp_path / "fatal.txt").write_text("050")
    done = fsf(*PACK, *SHARED)
    assert done.returncode == 2
    told = done.stderr.splitlines()[-1]
    assert "3 processes that worked on the same 120 images died; the last one: killed by" in told
    (tmp_path / "fatal.txt").unlink()
    assert fsf(*PACK, *SHARED).returncode == 0


@pytest.mark.parametrize(
    ("count", "block", "size"), [(10, 1, 256), (100_000, 64, 448), (100_000, 4096, 4096)]
)
def test_slices_end_where_batches_end(
    monkeypatch: pytest.MonkeyPatch, count: int, block: int, size: int
) -> None:
    monkeypatch.setattr(sharing, "_LEAST_ROWS", 256)
    slices = sharing.slices_of(np.arange(count), block)
    assert {len(one) for one in slices[:-1]} <= {size}
    assert np.array_equal(np.concatenate(slices), np.arange(count))
