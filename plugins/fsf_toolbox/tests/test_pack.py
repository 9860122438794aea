"""`fsf data pack`: images decoded once, whatever comes of it, and runs that read from there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fsf_tools import pack_images
from fsframework.records import RunRecord
from tests.conftest import Fsf
from tests.forked import finished, started

RUN = ("--method", "ncc", "--sampler", "random", "--tasks", "20", "--way", "3", "--shot", "1",
       "--queries", "2", "-o", "training.epochs=0", "--recipe", "none")  # fmt: skip


def photographs(root: Path, classes: int = 6, images: int = 6, side: int = 160) -> Path:
    rng = np.random.default_rng(0)
    for c in range(classes):
        (root / f"klasse-ä{c}").mkdir(parents=True)
        for i in range(images):
            coarse = rng.integers(0, 256, (6, 6, 3)).astype(np.uint8)
            image = Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)
            image.save(root / f"klasse-ä{c}" / f"{i}.JPG", quality=90)
    return root


def dataset(folder: Path) -> tuple[str, ...]:
    return ("--dataset", f"folder:{folder}", "-o", "dataset.split_fractions=0,0,1")


@pytest.fixture(autouse=True)
def _workers_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the variable back that ``--workers`` sets in this process."""
    monkeypatch.setenv("FSF_WORKERS", "2")


def test_a_data_set_is_packed_once_and_runs_read_from_it(fsf: Fsf, tmp_path: Path) -> None:
    folder = photographs(tmp_path / "images")
    data = dataset(folder)
    found = json.loads(fsf("data", "pack", *data, "--json").stdout)
    assert (found["images"], found["decoded_now"], found["broken"]) == (36, 36, {})
    assert np.load(found["file"], mmap_mode="r").shape == (36, 84, 84, 3)
    again = fsf("data", "pack", *data)
    assert "36 images of 84 x 84 pixels, 0.8 MB; nothing to do" in again.stdout
    ran = fsf("run", *data, *RUN, "--json")
    assert ran.returncode == 0, ran.stderr
    assert "images of test" not in ran.stderr, "the run decodes nothing"
    # A call packs what the command packs.
    named = {"name": f"folder:{folder}", "split_fractions": [0, 0, 1]}
    packed = pack_images(named, image_size=24, progress=False)
    assert (packed.images, packed.decoded_now, packed.size) == (36, 36, 24)
    assert np.load(packed.file, mmap_mode="r").nbytes == packed.bytes == 36 * 24 * 24 * 3
    told = json.loads(fsf("data", "pack", *data, "--image-size", "24", "--json").stdout)
    assert told.pop("seconds") >= 0
    assert told == {**packed.to_json(), "decoded_now": 0}
    assert pack_images(named, image_size=24, backbone="conv64f", progress=False).decoded_now == 0


def test_scaled_decoding_says_how_far_its_pixels_are(fsf: Fsf, tmp_path: Path) -> None:
    """An eighth of the scale would be too small: 160 pixels are decoded at a half or more."""
    data = dataset(photographs(tmp_path / "images", side=360))
    done = fsf("data", "pack", *data, "--decoding", "scaled", "--image-size", "32", "--json")
    apart = json.loads(done.stdout)["scaled_decoding_differs_by"]
    assert 0 < apart["mean"] < 3
    assert apart["mean"] <= apart["percentile_99"] <= apart["largest"]
    scaled = ("--decoding", "scaled", "--image-size", "32")
    assert "pixels differ from exact ones by" in fsf("data", "pack", *data, *scaled).stdout
    ran = fsf("run", *data, *RUN, *scaled, "--json")
    assert any("--decoding scaled" in note for note in json.loads(ran.stdout)["notes"])


def test_a_truncated_image_is_fatal_or_left_out(fsf: Fsf, tmp_path: Path) -> None:
    folder = photographs(tmp_path / "images")
    bad = folder / "klasse-ä2" / "3.JPG"
    bad.write_bytes(bad.read_bytes()[:200])
    data = dataset(folder)
    for command in (("data", "pack", *data), ("run", *data, *RUN)):
        done = fsf(*command)
        assert done.returncode == 2
        last = done.stderr.strip().splitlines()[-1]
        for part in (f"{bad}: not a readable image", "--broken skip"):
            assert part in last
    assert not (tmp_path / "runs").exists()
    packed = fsf("data", "pack", *data, "--broken", "skip")
    assert packed.returncode == 0
    assert f"skipped: {bad}: not a readable image" in packed.stdout
    ran = fsf("run", *data, *RUN, "--broken", "skip", "--json")
    result = json.loads(ran.stdout)
    assert any(note.startswith("1 of 36 images cannot be read") for note in result["notes"])
    assert RunRecord.load(Path(result["folder"])).arms["random"].class_sizes == (6, 6, 5, 6, 6, 6)
    assert fsf("run", *data, *RUN).returncode == 2, "a run that may not skip still stops"


def killed_while_decoding(process: subprocess.Popen[bytes], cache: Path) -> int:
    """Kill a process once it has decoded an image, and return how many it has decoded."""
    states, decoded = None, 0
    while process.poll() is None and not decoded:
        states = states or next(cache.rglob("rows.bin"), None)
        decoded = filled(states) if states is not None else 0
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert states is not None
    return filled(states)


def filled(digests: Path) -> int:
    """Return the number of images with a record of 32 bytes, after a header of 16."""
    records = np.fromfile(digests, np.uint8, offset=16).reshape(-1, 32)
    return int(records.any(axis=1).sum())


@pytest.mark.slow
def test_killed_while_packing_it_goes_on_where_it_stopped(fsf: Fsf, tmp_path: Path) -> None:
    asked = ("data", "pack", *dataset(photographs(tmp_path / "images", 20, 30, 400)))
    argv = [sys.executable, "-m", "fsframework", *asked]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    before = killed_while_decoding(process, tmp_path / "cache")
    assert 0 < before < 600
    found = json.loads(fsf(*asked, "--json").stdout)
    assert found["decoded_now"] == 600 - before
    other = json.loads(fsf(*asked, "--cache-dir", tmp_path / "other", "--json").stdout)
    assert found["digest"] == other["digest"]


@pytest.mark.parametrize("workers", ["1", "7"])
def test_the_number_of_workers_changes_no_pixel(fsf: Fsf, tmp_path: Path, workers: str) -> None:
    folder = photographs(tmp_path / "images")
    done = fsf("data", "pack", *dataset(folder), "--json", "--workers", workers)
    array = np.load(json.loads(done.stdout)["file"])
    for row, file in enumerate(sorted(folder.rglob("*.JPG"))):
        with Image.open(file) as image:
            small = image.convert("RGB").resize((84, 84), Image.Resampling.BILINEAR)
        assert (array[row] == np.asarray(small)).all()


@pytest.mark.slow
def test_a_run_killed_while_it_decodes_is_equal_with_other_workers(tmp_path: Path) -> None:
    """With 1 worker, and with 2 that are killed and go on: equal to a byte."""
    folder = photographs(tmp_path / "images", classes=16, images=30, side=300)
    command = ["run", "--json", *dataset(folder)[:2], "--method", "protonet",
               "--sampler", "random", "--tasks", "30", "--way", "3", "--queries", "5",
               "--image-size", "32", "-o", "training.epochs=2", "-o", "training.steps=3",
               "-o", "training.validation_tasks=10"]  # fmt: skip
    found = []
    for workers in ("1", "2"):
        cache, runs = tmp_path / f"cache-{workers}", tmp_path / f"runs-{workers}"
        given = [*command, "--runs-dir", str(runs), "--cache-dir", str(cache), "--workers", workers]
        if workers == "2":
            killed_while_decoding(started(tmp_path, *given), cache)
            assert not list(runs.rglob("outcomes-random.parquet"))
        done = finished(tmp_path, *given)
        assert done.returncode == 0, done.stderr
        (run,) = runs.glob("*/run.json")
        made = ("outcomes-random.parquet", "weights.safetensors")
        found.append([(run.parent / file).read_bytes() for file in made])
    assert found[0] == found[1]


def test_refused_options_name_what_is_allowed(fsf: Fsf, tmp_path: Path) -> None:
    done = fsf("data", "pack", "--dataset", "planted", "--image-size", "3")
    assert done.returncode == 2
    assert "--image-size must be at least 8 pixels, not 3" in done.stderr
    assert fsf("data", "pack", "--decoding", "quick").returncode == 2
    done = fsf("tasks", "make", "t.safetensors", "--sampler", "random", "-o", "broken=skip")
    assert done.returncode == 2
    assert "--broken skip: these tasks are drawn without reading an image" in done.stderr
