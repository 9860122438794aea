"""Images: decoded once, read in any order, broken or edited ones named, damaged ones made again."""

from __future__ import annotations

import builtins
import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsf_tools import pack_images
from fsframework._files import atomic_write, load_sealed, save_sealed
from fsframework.errors import DataError
from fsframework.values import IntArray, UInt8Array
from tests.conftest import Fsf
from tests.toys import Blobs, Counting, Killed, Still, run

ONLY_TEST: dict[str, Any] = {"method": Still}
"""A run that reads no split but the one under test."""


def arrays(tmp_path: Path, stage: str = "images") -> list[Path]:
    return sorted((tmp_path / "cache" / stage).glob("*/array.npy"))


def test_one_array_holds_every_split_and_what_is_there_is_kept(tmp_path: Path) -> None:
    first, second = Counting(), Counting()
    run(None, first, **ONLY_TEST)
    run(None, second, training={"epochs": 1, "steps": 1})
    assert first.units["test images"] == 60
    decoded = {name: n for name, n in second.units.items() if name.endswith(" images")}
    assert decoded == {"train images": 120, "val images": 60}
    [file] = arrays(tmp_path)
    found, expected = np.load(file, mmap_mode="r"), Blobs().images(np.arange(240), 16)
    assert found.shape == (240, 16, 16, 3)
    assert (found == expected).all()
    shutil.rmtree(tmp_path / "cache")
    assert run(**ONLY_TEST).reused
    assert not arrays(tmp_path), "a finished run needs no image"


class Resplit(Blobs):
    """Says that its seed does not concern its pixels."""

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__()
        self.fingerprint = f"blobs {seed}"

    @property
    def pixels_fingerprint(self) -> str:
        return "blobs"


class Reseeded(Resplit):
    """Says nothing of what concerns its pixels."""

    pixels_fingerprint = Blobs.pixels_fingerprint


def test_only_what_decides_pixels_makes_another_array(tmp_path: Path) -> None:
    for seed in (0, 1):
        run(dataset={"name": Resplit, "seed": seed}, **ONLY_TEST)
    assert len(arrays(tmp_path)) == 1
    for seed in (0, 1):
        run(dataset={"name": Reseeded, "seed": seed}, **ONLY_TEST)
    assert len(arrays(tmp_path)) == 3
    for change in ({"image_size": 20}, {"decoding": "scaled"}):
        run(dataset=Resplit, **ONLY_TEST, **change)
    assert len(arrays(tmp_path)) == 5


class Damaged(Blobs):
    """Image 7 of every class cannot be read, and another may not be opened, until mended."""

    def image(self, index: int) -> UInt8Array:
        if "toy_mended" not in vars(builtins):
            if index == 185:
                raise PermissionError(13, "Permission denied", self.keys[index])
            if index % 20 == 7:
                raise DataError(f"{self.keys[index]}: not a readable image")
        return super().image(index)


def test_broken_images_are_fatal_or_left_out_and_taken_up_when_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"dataset": Damaged, **ONLY_TEST}
    with pytest.raises(DataError, match="c09/185'; broken=.skip. leaves out images"):
        run(**given)
    skipped = run(**given, broken="skip")
    assert skipped.pool.class_sizes.tolist() == [18, 19, 19]
    assert any("images cannot be read" in line for line in skipped.record.notes)
    [file] = arrays(tmp_path)
    kept = [i for i in range(240) if i != 185 and i % 20 != 7]
    assert (np.load(file)[kept] == Blobs().images(kept, 16)).all()
    again = Counting()
    run(None, again, **given, broken="skip", task_seed=1)
    assert "images" not in again.units, "what is known to be broken is not tried again"
    with pytest.raises(DataError, match="c09/185|Permission denied"):
        run(**given)
    monkeypatch.setattr(builtins, "toy_mended", True, raising=False)
    late = run(**given, broken="skip", task_seed=2)
    assert any("when it was first decoded" in line for line in late.record.notes)
    mended = run(**given)
    assert mended.pool.class_sizes.tolist() == [20, 20, 20]
    assert mended.record.digests["images"] == run(**ONLY_TEST).record.digests["images"]


def test_only_the_splits_in_use_are_decoded_to_find_broken_images() -> None:
    counted = Counting()
    one = run(None, counted, dataset=Damaged, **ONLY_TEST, split="test", broken="skip")
    assert counted.units["images"] == 60
    run(dataset=Damaged, training={"epochs": 1, "steps": 1}, broken="skip")
    other = run(dataset=Damaged, **ONLY_TEST, split="test", broken="skip")
    assert other.reused, "whatever is known of the other splits"
    assert other.folder == one.folder


class Sloppy(Blobs):
    """Makes many images at once, as it likes."""

    def __init__(self, *, how: str) -> None:
        super().__init__()
        self.how = how

    def images(
        self,
        indices: IntArray,
        size: int,
        interpolation: str = "bilinear",  # type: ignore[override]
    ) -> UInt8Array:
        made = super().images(indices, size, interpolation)
        if self.how == "int64":
            return made.astype(np.int64)  # type: ignore[return-value]
        return made[:, ::-1, ::-1, ::-1] if self.how == "a view" else made[:, :8, :8]


def test_images_of_another_type_or_size_are_refused_and_a_view_is_as_good_as_an_array(
    tmp_path: Path,
) -> None:
    for how in ("int64", "too small"):
        with pytest.raises(DataError, match="Sloppy: images must be uint8 of shape"):
            run(dataset={"name": Sloppy, "how": how}, **ONLY_TEST)
    run(dataset={"name": Sloppy, "how": "a view"}, **ONLY_TEST)
    expected = Sloppy(how="a view").images(np.arange(180, 240), 16)
    assert any((np.load(file)[180:] == expected).all() for file in arrays(tmp_path))


class Coarse(Damaged):
    """Scaled decoding is two levels brighter."""

    def scaled_images(
        self,
        indices: IntArray,
        size: int,
        interpolation: str = "bilinear",  # type: ignore[override]
    ) -> UInt8Array:
        return np.minimum(self.images(indices, size, interpolation), 253) + np.uint8(2)


class Unreadable(Coarse):
    """None of its images can be read."""

    def image(self, index: int) -> UInt8Array:
        raise DataError(f"{self.keys[index]}: not a readable image")


def test_scaled_decoding_says_how_far_it_is_if_any_image_can_be_read() -> None:
    given: dict[str, Any] = {"decoding": "scaled", "broken": "skip", "progress": False}
    apart = pack_images(Coarse(), **given).scaled_decoding_differs_by
    assert apart is not None
    assert 1.9 < apart.mean <= 2
    assert (apart.percentile_99, apart.largest) == (2, 2)
    assert pack_images(Unreadable(), **given).scaled_decoding_differs_by is None


def test_images_are_decoded_a_block_at_a_time_and_a_kill_loses_one_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsframework.engine.cache.images._BYTES_A_BLOCK", 8 * 16 * 16 * 3)
    with pytest.raises(Killed):
        run(None, Counting("test images", 20), **ONLY_TEST)
    rest = Counting()
    run(None, rest, **ONLY_TEST)
    assert rest.units["test images"] == 60 - 24
    [file] = arrays(tmp_path)
    assert (np.load(file)[180:] == Blobs().images(np.arange(180, 240), 16)).all()


class Edited(Blobs):
    """One image can be moved or edited without a change of the fingerprint."""

    def local_states(self, indices: IntArray) -> list[str]:  # type: ignore[override]
        return [vars(builtins).get("toy_state", "") if i == 185 else "" for i in indices]

    def image(self, index: int) -> UInt8Array:
        edited = index == 185 and vars(builtins).get("toy_state") == "edited"
        found = super().image(index)
        return 255 - found if edited else found


def test_an_edited_image_is_decoded_again_and_the_run_is_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digests = []
    for state, said in (("first", 0), ("moved", 0), ("edited", 1)):
        monkeypatch.setattr(builtins, "toy_state", state, raising=False)
        counted = Counting()
        found = run(None, counted, dataset=Edited, **ONLY_TEST)
        digests.append(found.record.digests["images"])
        assert counted.units["test images"] == (60 if state == "first" else 1)
        assert found.reused == (state == "moved")
        notes = [line for line in counted.said if "changed since they were decoded" in line]
        assert len(notes) == said
    assert digests[0] == digests[1] != digests[2]


def outcomes(reporter: Counting, **options: Any) -> str:
    """Return the digest of the outcomes of a fresh run on what is cached."""
    found = run(None, reporter, **{"training": {"epochs": 0}, **options})
    digest = found.outcomes["random"].digest
    shutil.rmtree(found.folder)
    return digest


def test_only_the_damaged_image_is_decoded_again(tmp_path: Path) -> None:
    first = Counting()
    expected = outcomes(first)
    shutil.rmtree(tmp_path / "cache" / "features")
    shutil.rmtree(tmp_path / "cache" / "outcomes")
    [file] = arrays(tmp_path)
    raw = bytearray(file.read_bytes())
    raw[-16 * 16 * 3 * 7 - 1] ^= 1
    file.write_bytes(raw)
    again = Counting()
    assert outcomes(again) == expected
    assert again.units["images"] == 1
    assert [line for line in again.said if "damaged and are made again" in line]


def test_a_pipe_in_the_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    expected = outcomes(Counting())
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".npy", ".bin", ".parquet", ".safetensors"}
    for path in files:
        if path.name != "lock":
            path.unlink()
            os.mkfifo(path)
    assert outcomes(Counting()) == expected


def _without_privileges() -> None:
    """Take from root what lets it write anywhere."""
    for privilege in (1, 2):
        ctypes.CDLL(None).prctl(24, privilege, 0, 0, 0)


@pytest.mark.slow
def test_what_is_cached_can_be_read_where_nothing_can_be_written(fsf: Fsf, tmp_path: Path) -> None:
    arguments = (
        "run", "--method", "ncc", "--sampler", "random", "--tasks", "5", "--way", "2",
        "--image-size", "16", "-o", "dataset.n_per_class=8", "-o", "training.epochs=0",
        "--recipe", "none", "--queries", "2", "--json",
    )  # fmt: skip
    first = json.loads(fsf(*arguments).stdout)
    for lock in (tmp_path / "cache").rglob("*lock"):
        lock.unlink()
    places = [tmp_path / "cache", *(tmp_path / "cache").rglob("*")]
    for path in places:
        path.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-m", "fsframework", *arguments, "--runs-dir", "others"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        preexec_fn=_without_privileges if os.geteuid() == 0 else None,
    )  # fmt: skip
    for path in places:
        path.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["estimates"] == first["estimates"]
    assert "test images" not in done.stderr


def test_packing_imports_no_torch() -> None:
    """A store of any size is packed in little memory, of which torch would take most."""
    code = "import sys, fsframework.engine.cache.images; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_file_may_be_that_of_before_a_kill(tmp_path: Path) -> None:
    """The digest is written first, and then the file."""
    path, reporter = tmp_path / "stage" / "key.txt", Counting()
    save_sealed(path, lambda place: atomic_write(place, "one"))
    save_sealed(path, lambda place: atomic_write(place, "two"))
    assert load_sealed(path, Path.read_text, reporter.note) == "two"
    path.write_text("one")
    assert load_sealed(path, Path.read_text, reporter.note) == "one"
    assert reporter.said == []
    path.write_text("three")
    assert load_sealed(path, Path.read_text, reporter.note) is None
    assert len(reporter.said) == 1
