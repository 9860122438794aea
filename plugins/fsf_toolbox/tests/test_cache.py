"""`fsf cache`: what is kept, and what may go."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fsf_tools import clean_cache
from fsframework._files import locked
from fsframework.errors import OptionError
from fsframework.records import RunRecord
from tests.conftest import Fsf

KEY = "0123456789abcdef0123456"
RUN = (
    "run", "--json", "--method", "ncc", "--sampler", "random", "--way", "2", "--shot", "1",
    "--queries", "2", "--tasks", "5", "--image-size", "16", "-o", "training.epochs=0",
    "-o", "dataset.n_per_class=8",
)  # fmt: skip


def test_an_image_edited_at_equal_size_and_time_is_noticed(fsf: Fsf, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in "abc":
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(8):
            pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{i}.bmp")
    run = (*RUN[:-2], "--dataset", f"folder:{tmp_path / 'images'}", "--split", "all")
    before = json.loads(fsf(*run).stdout)
    assert json.loads(fsf(*run).stdout)["reused"]
    for edited in (tmp_path / "images").rglob("*.bmp"):
        state, raw = edited.stat(), edited.read_bytes()
        edited.write_bytes(raw[:54] + bytes(255 - b for b in raw[54:60]) + raw[60:])
        os.utime(edited, ns=(state.st_atime_ns, state.st_mtime_ns))
        assert (edited.stat().st_size, edited.stat().st_mtime_ns) == (len(raw), state.st_mtime_ns)
    done = fsf(*run)
    now = json.loads(done.stdout)
    assert not now["reused"]
    assert "cached images have changed since they were decoded" in done.stderr
    assert "images of all have changed; it is made anew" in done.stderr
    fresh = json.loads(fsf(*run, "--cache-dir", "other", "--runs-dir", "others").stdout)
    names = ("runs", "others")
    digests = [RunRecord.load(next((tmp_path / name).glob("*"))).digests for name in names]
    assert digests[0] == digests[1]
    assert now["estimates"] == fresh["estimates"] != before["estimates"]
    assert json.loads(fsf(*run).stdout)["reused"]


def test_a_damaged_list_of_added_data_is_one_note(fsf: Fsf, tmp_path: Path) -> None:
    (tmp_path / "added").mkdir()
    (tmp_path / "added" / "datasets.json").write_text("{")
    for command in (RUN, ("data", "list")):
        done = fsf(*command)
        assert done.returncode == 0, done.stderr
        notes = [line for line in done.stderr.splitlines() if "datasets.json" in line]
        assert len(notes) == 1
        assert notes[0].startswith("note: ")
    refused = fsf("run", "--dataset", "birds")
    assert refused.returncode == 2
    assert "datasets.json: the list of added data sets cannot be read" in refused.stderr


def put(cache: Path, name: str, size: int = 5000, days: float = 0.0) -> Path:
    """Write an item of the cache: a file, or where the name ends in / a folder with a lock."""
    path = cache / name
    file = path / "array.npy" if name.endswith("/") else path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)
    if name.endswith("/"):
        (path / "lock").touch()
    for one in (file, path, *([path / "lock"] if path.is_dir() else [])):
        os.utime(one, (time.time() - days * 86400,) * 2)
    return path


def test_a_run_makes_again_what_was_cleaned(fsf: Fsf, tmp_path: Path) -> None:
    first = json.loads(fsf(*RUN).stdout)
    found = json.loads(fsf("cache", "size", "--json").stdout)
    assert found["folder"] == str(tmp_path / "cache")
    assert found["stages"]["images"]["items"] == found["stages"]["features"]["items"] == 1
    assert found["bytes"] == sum(stage["bytes"] for stage in found["stages"].values()) > 0
    folders = {folder.name for folder in (tmp_path / "cache").iterdir()}
    assert folders - {"running"} <= set(found["stages"]), "no stage is forgotten"
    assert "images" in fsf("cache", "size").stdout
    done = fsf("cache", "clean", "--yes")
    assert done.returncode == 0, done.stderr
    assert json.loads(fsf("cache", "size", "--json").stdout)["items"] == 0
    again = json.loads(fsf(*RUN, "--runs-dir", "elsewhere").stdout)
    assert again["estimates"] == first["estimates"]
    assert json.loads(fsf(*RUN).stdout)["reused"], "finished runs stay"


def test_only_what_is_asked_for_is_removed(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    old = put(cache, f"images/{KEY}a/", days=40)
    young = put(cache, f"images/{KEY}b/", days=2)
    tasks = put(cache, f"tasks/{KEY}c.safetensors", days=40)
    put(cache, "images/holiday.jpg")
    put(cache, f"mine/{KEY}d")
    planned = clean_cache(["images"], older_than=30, dry_run=True)
    assert planned.removed.stages == {"images": (1, planned.removed.bytes)}
    assert planned.removed.bytes >= 5000
    assert old.exists()
    assert clean_cache(["images"], older_than=30).removed.items == 1
    assert [path.exists() for path in (old, young, tasks)] == [False, True, True]
    clean_cache()
    left = sorted(str(p.relative_to(cache)) for p in cache.rglob("*") if p.is_file())
    assert left == ["images/holiday.jpg", f"mine/{KEY}d"], "what is not ours stays"


def test_what_is_in_use_is_skipped(fsf: Fsf, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    training, images = put(cache, f"training/{KEY}a/"), put(cache, f"images/{KEY}b/")
    tasks = put(cache, f"tasks/{KEY}c.safetensors")
    with locked(training):
        done = fsf("cache", "clean", "--yes")
        assert f"skipped, in use by a running process: {training}" in done.stdout
    assert training.exists()
    assert not tasks.exists()
    assert not images.exists()
    images = put(cache, f"images/{KEY}b/")
    with locked(cache / "running" / KEY):
        assert clean_cache().in_use == (images,), "a run reads images without locking them"
    assert not training.exists()
    assert not tasks.exists()
    assert clean_cache(["images"]).removed.items == 1


def test_it_asks_first(fsf: Fsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item = put(tmp_path / "cache", f"tasks/{KEY}a.safetensors")
    monkeypatch.setattr("click.confirm", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    assert fsf("cache", "clean").returncode != 0
    assert "nothing is removed" in fsf("cache", "clean", "--dry-run").stdout
    assert item.exists()
    fsf("cache", "clean", "--yes")
    assert "nothing to remove" in fsf("cache", "clean").stdout
    done = fsf("cache", "clean", "--stage", "image")
    assert done.returncode == 2
    assert "unknown stage 'image' (did you mean 'images'?)" in done.stderr
    with pytest.raises(OptionError, match="older_than must be at least 0 days, not -1"):
        clean_cache(older_than=-1)


def test_a_folder_removed_while_another_process_waits_is_made_again(tmp_path: Path) -> None:
    """A lock on a folder that is gone keeps nobody out."""
    folder, seen = tmp_path / "item", []
    waiting = threading.Event()

    def work() -> None:
        with locked(folder, waiting=waiting.set):
            seen.append((folder / "lock").exists())

    with locked(folder):
        thread = threading.Thread(target=work)
        thread.start()
        assert waiting.wait(30)
        shutil.rmtree(folder)
    thread.join()
    assert seen == [True]
