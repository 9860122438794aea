"""Work that the workers of a launcher divide: one is killed, nothing is lost or made twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fsf_tools import sharing
from fsframework.pipeline.cache import images
from fsframework.values import AttributeTable
from tests.conftest import Fsf

PLUGINS = '''
"""Plugins that tell what they do, and that may end their process."""

import os
import signal
import time
from pathlib import Path

import numpy as np
from fsframework.errors import DataError
from fsframework.interfaces import AttributeDetector, Dataset
from fsframework.values import digest_of

HERE = Path(__file__).parent


def tell(line):
    with (HERE / "told.txt").open("ab", buffering=0) as file:
        file.write(line.encode() + b"\\n")


def meet(key):
    """End this process if it is the first to meet the fatal image."""
    fatal = HERE / "fatal.txt"
    if fatal.exists() and fatal.read_text() == key:
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
'''
BACKBONE = '''
"""A backbone that tells what it embeds, and that may end its process."""

import os
import signal
from pathlib import Path

import torch

from fsframework.interfaces import Backbone

HERE = Path(__file__).parent


class Small(Backbone):
    """A convolution; tells the batches that it embeds."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 4, 3, stride=4)
        self.calls = 0

    def forward(self, images):
        self.calls += 1
        if self.calls == 4:  # the second batch
            self.meet()
        with (HERE / "told.txt").open("ab", buffering=0) as file:
            file.write(f"batch of {len(images)}: {images.double().sum().item()!r}\\n".encode())
        return self.layer(images)

    def meet(self):
        try:
            (HERE / "fatal.txt").unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
'''
PLUGIN = ("--plugin", "plugins.py")
EXTRACT = ("attributes", "extract", *PLUGIN, "--detector", "telling", "--batch-size", "5")
DATA = ("--dataset", "noise", "--split", "all")
PACK = ("data", "pack", *PLUGIN, "--dataset", "noise", "--image-size", "16", "--json")
EMBED = (
    "data", "embed", *PLUGIN, "--plugin", "backbone.py", "--method", "ncc",
    "--backbone", "small", "--dataset", "noise", "--split", "all", "--image-size", "16",
    "--json", "-o", "training.epochs=0",
)  # fmt: skip
SHARED = ("--launcher", "local", "-o", "launcher.processes=2")
N_IMAGES = 120


@pytest.fixture(autouse=True)
def _plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugins.py").write_text(PLUGINS)
    (tmp_path / "backbone.py").write_text(BACKBONE)
    monkeypatch.setattr(sharing, "_LEAST_ROWS", 20)
    monkeypatch.setattr(images, "_IMAGES_A_BLOCK", 4)


def told(tmp_path: Path) -> list[str]:
    """Return what the plugins have told since the last call."""
    path = tmp_path / "told.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def test_words_of_workers_are_those_of_one_process(
    fsf: Fsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSF_CACHE", str(tmp_path / "other"))
    assert fsf(*EXTRACT, "alone.parquet", *DATA).returncode == 0
    calls = told(tmp_path)
    assert len(calls) == N_IMAGES // 5

    monkeypatch.setenv("FSF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "fatal.txt").write_text(calls[13].split()[0])
    done = fsf(*EXTRACT, "shared.parquet", *DATA, *SHARED, "--json")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "fatal.txt").exists(), "a worker was killed"
    assert sorted(told(tmp_path)) == sorted(calls), "the same calls, each once"
    assert json.loads(done.stdout)["reused"] == 0
    files = [tmp_path / name for name in ("alone.parquet", "shared.parquet")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert not list((tmp_path / "cache" / "shared").glob("*/*"))
    parts = [path.name for path in (tmp_path / "cache").glob("detections/*/*.jsonl")]
    assert parts == ["answers.jsonl"]

    again = fsf(*EXTRACT, "again.parquet", *DATA, *SHARED, "--json")
    assert json.loads(again.stdout)["reused"] == N_IMAGES
    assert told(tmp_path) == []


@pytest.mark.slow
def test_the_process_that_shares_the_work_may_be_killed(fsf: Fsf, tmp_path: Path) -> None:
    arguments = [*EXTRACT, "words.parquet", *DATA, *SHARED]
    process = subprocess.Popen(
        [sys.executable, "-c", FEW_ROWS, *arguments], cwd=tmp_path, env=dict(os.environ),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    path = tmp_path / "told.txt"
    while not path.exists() or len(path.read_text().splitlines()) < 8:
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = fsf(*arguments, "-o", "launcher.processes=1")
    assert done.returncode == 0, done.stderr
    counts = Counter(key for line in told(tmp_path) for key in line.split())
    assert len(counts) == N_IMAGES
    # Its workers end with it; what they had in hand is done again.
    assert max(counts.values()) <= 2
    assert len(AttributeTable.load(tmp_path / "words.parquet")) == N_IMAGES


FEW_ROWS = """
import sys
from fsframework.cli.main import main
from fsf_tools import sharing
sharing._LEAST_ROWS = 20
sys.argv[0] = "fsf"
main()
"""


def test_images_of_workers_are_those_of_one_process(
    fsf: Fsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSF_CACHE", str(tmp_path / "other"))
    alone = json.loads(fsf(*PACK).stdout)
    assert sorted(told(tmp_path)) == [f"{i:03d}" for i in range(N_IMAGES)]

    monkeypatch.setenv("FSF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "fatal.txt").write_text("050")
    done = fsf(*PACK, *SHARED)
    assert done.returncode == 0, done.stderr
    shared = json.loads(done.stdout)
    assert shared["decoded_now"] == N_IMAGES
    counts = Counter(told(tmp_path))
    assert len(counts) == N_IMAGES
    # A worker died of image 50; what it had decoded of the block in hand is decoded again.
    assert {key for key, count in counts.items() if count > 1} <= {
        f"{i:03d}" for i in range(40, 50)
    }
    assert shared["digest"] == alone["digest"]
    assert Path(shared["file"]).read_bytes() == Path(alone["file"]).read_bytes()
    assert not list((tmp_path / "cache" / "shared").glob("*/*"))
    assert json.loads(fsf(*PACK, *SHARED).stdout)["decoded_now"] == 0
    assert told(tmp_path) == []


def batches_told(tmp_path: Path) -> list[str]:
    """Return what was embedded, but for single images, by which each process finds the shape."""
    lines = [line for line in told(tmp_path) if line.startswith("batch of ")]
    return [line for line in lines if not line.startswith("batch of 1:")]


def test_features_of_workers_are_those_of_one_process(
    fsf: Fsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSF_CACHE", str(tmp_path / "other"))
    alone = json.loads(fsf(*EMBED).stdout)
    batches = batches_told(tmp_path)
    assert alone["shape"] == [N_IMAGES, 4]
    assert len(set(batches)) == len(batches) == 8

    monkeypatch.setenv("FSF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "fatal.txt").write_text("batch")
    done = fsf(*EMBED, *SHARED)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "fatal.txt").exists(), "a worker was killed"
    shared = json.loads(done.stdout)
    assert shared["embedded_now"] == N_IMAGES
    assert sorted(batches_told(tmp_path)) == sorted(batches), "the same batches, each once"
    assert Path(shared["file"]).read_bytes() == Path(alone["file"]).read_bytes()

    run = [*EMBED[2:], "--sampler", "random", "--way", "3", "--shot", "1", "--queries", "2"]
    assert fsf("run", *run, "--tasks", "5").returncode == 0
    assert batches_told(tmp_path) == [], "a run finds the features"
    refused = fsf(*EMBED, "--method", "protonet", "-o", "training.epochs=1")
    assert refused.returncode == 2
    assert "protonet is to be trained, and has features only then; train it" in refused.stderr


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


def test_an_unknown_launcher_is_one_sentence(fsf: Fsf) -> None:
    done = fsf(*EXTRACT, "words.parquet", *DATA, "--launcher", "nowhere")
    assert done.returncode == 2
    assert "nowhere" in done.stderr


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
