"""The image store: decoded once, read in any order, broken images named."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fsf_tools.data.packing import decoding_difference
from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.engine.cache import images as module
from fsframework.engine.cache.images import (
    ImageStore,
    Readable,
    pixels_of,
    store_of,
    without_broken,
)
from fsframework.engine.cache.rows import Rows
from fsframework.engine.learning.evaluation import ImageSource, predict
from fsframework.engine.learning.model import FewShotModel, build_model
from fsframework.engine.progress import Reporter
from fsframework.engine.session import Workspace
from fsframework.errors import DataError, FsfError
from fsframework.values import IntArray, UInt8Array
from tests.toys import Blobs, Counting, PixelPrototypes, Prototypes, TinyBackbone, component


class Damaged(Blobs):
    """Image 7 of every class cannot be read until it is mended."""

    def __init__(self) -> None:
        super().__init__()
        self.bad = {20 * c + 7 for c in range(12)}

    def image(self, index: int) -> UInt8Array:
        if index in self.bad:
            raise DataError(f"{self.keys[index]}: not a readable image")
        return super().image(index)


class Coarse(Blobs):
    """Scaled decoding is two levels brighter."""

    def scaled_images(
        self,
        indices: IntArray,
        size: int,
        interpolation: str = "bilinear",  # type: ignore[override]
    ) -> UInt8Array:
        return np.minimum(self.images(indices, size, interpolation), 253) + np.uint8(2)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "runs", tmp_path / "cache")


def store(data: Blobs, workspace: Workspace, decoding: str = "exact", size: int = 16) -> ImageStore:
    return ImageStore(data, "blobs", size, "bilinear", decoding, workspace)  # type: ignore[arg-type]


def test_one_array_holds_every_split_and_what_is_there_is_kept(workspace: Workspace) -> None:
    data = Blobs()
    found = store(data, workspace)
    test = pixels_of(found, data, "test", Reporter())
    assert data.decoded == 60
    train = pixels_of(store(data, workspace), data, "train", Reporter())
    assert data.decoded == 60 + 120
    found.fill(np.arange(240), "fatal", "images", Reporter())
    assert data.decoded == 240
    whole = np.load(found.path, mmap_mode="r")
    assert whole.shape == (240, 16, 16, 3)
    assert (whole == data.images(np.arange(240), 16)).all()
    order = np.random.default_rng(0).permutation(60)
    assert (test[order] == whole[180:][order]).all()
    assert (test[3:9] == whole[183:189]).all()
    assert test.digest != train.digest
    assert test.shape == (60, 16, 16, 3)


def test_pixels_have_the_same_digest_however_they_came_there(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Packed whole or split by split, at once or in parts: the same images, the same runs."""
    data = Blobs()
    by_split = pixels_of(store(data, workspace), data, "test", Reporter())
    other = store(data, Workspace(tmp_path, tmp_path / "other"))
    other.fill(np.arange(240), "skip", "images", Reporter())
    assert pixels_of(other, data, "test", Reporter()).digest == by_split.digest


def test_other_code_size_or_decoding_is_another_store(workspace: Workspace) -> None:
    data = Blobs()
    folders = {
        ImageStore(data, code, size, how, decoding, workspace).path  # type: ignore[arg-type]
        for code in ("blobs", "blobs, edited")
        for size in (16, 20)
        for how in ("bilinear", "bicubic")
        for decoding in ("exact", "scaled")
    }
    assert len(folders) == 16


def test_rows_are_read_in_any_order_and_number(workspace: Workspace) -> None:
    data = Blobs()
    pixels = pixels_of(store(data, workspace), data, "train", Reporter())
    expected = data.images(np.arange(120), 16)
    rng = np.random.default_rng(0)
    for index in (
        np.arange(120)[::-1],
        rng.integers(120, size=500),
        np.zeros(0, np.int64),
        np.array([7, 8, 3]),
    ):
        assert (pixels[index] == expected[index]).all()
    assert (pixels[-3:] == expected[-3:]).all()
    assert pixels[5:5].shape == (0, 16, 16, 3)


def test_reading_keeps_nothing_of_the_file_in_memory(workspace: Workspace) -> None:
    """What is read from a file of 63 MB leaves this process hardly larger."""

    def resident() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    data = Blobs()
    large = store(data, workspace, size=300)
    pixels = pixels_of(large, data, "test", Reporter())
    pixels[:4]
    before = resident()
    for start in range(0, 60, 4):
        pixels[start : start + 4]
    assert resident() - before < 6_000


def test_a_broken_image_is_fatal_and_named(workspace: Workspace) -> None:
    data = Damaged()
    with pytest.raises(DataError, match="^c09/187: not a readable image; broken=.skip."):
        pixels_of(store(data, workspace), data, "test", Reporter())


def test_broken_images_are_left_out_if_asked(workspace: Workspace) -> None:
    data = Damaged()
    kept, broken = without_broken(store(data, workspace), data.splits, Reporter())
    assert sorted(broken) == sorted(data.bad)
    assert broken[7] == "c00/7: not a readable image"
    assert isinstance(kept, Readable)
    assert kept.pool("test").class_sizes.tolist() == [19, 19, 19]
    assert len(kept.keys) == 228
    pixels = pixels_of(store(data, workspace), kept, "test", Reporter())
    assert (pixels[:] == kept.images(kept.split_indices("test"), 16)).all()
    assert kept.fingerprint != data.fingerprint
    again = Counting()
    without_broken(store(data, workspace), data.splits, again)
    assert again.units == {}, "what is known to be broken is not tried again"


def test_only_the_splits_in_use_are_decoded_to_find_broken_images(workspace: Workspace) -> None:
    data = Damaged()
    kept, broken = without_broken(store(data, workspace), ["test"], Reporter())
    assert data.decoded == 7 + 57, "all at once until one fails, then one by one"
    assert sorted(broken) == [187, 207, 227]
    store(data, workspace).fill(np.arange(240), "skip", "images", Reporter())
    again, _ = without_broken(store(data, workspace), ["test"], Reporter())
    assert again.fingerprint == kept.fingerprint, "whatever is known of the other splits"


class Sloppy(Blobs):
    """Makes many images at once, as it likes."""

    kind = "int64"

    def images(
        self,
        indices: IntArray,
        size: int,
        interpolation: str = "bilinear",  # type: ignore[override]
    ) -> UInt8Array:
        made = super().images(indices, size, interpolation)
        if self.kind == "int64":
            return made.astype(np.int64)  # type: ignore[return-value]
        return made[:, ::-1, ::-1, ::-1] if self.kind == "a view" else made[:, :8, :8]


@pytest.mark.parametrize("kind", ["int64", "too small"])
def test_what_a_data_set_must_not_return_is_refused(workspace: Workspace, kind: str) -> None:
    data = Sloppy()
    data.kind = kind
    with pytest.raises(DataError, match="Sloppy: images must be uint8 of shape"):
        pixels_of(store(data, workspace), data, "test", Reporter())


def test_a_view_is_as_good_as_an_array(workspace: Workspace) -> None:
    data = Sloppy()
    data.kind = "a view"
    pixels = pixels_of(store(data, workspace), data, "test", Reporter())
    assert (pixels[:] == data.images(np.arange(180, 240), 16)).all()


class Unreadable(Blobs):
    """Its files may not be opened, each in its way."""

    def image(self, index: int) -> UInt8Array:
        if index == 185:
            raise PermissionError(13, "Permission denied", "c09/185")
        if index == 186:
            raise DataError("c09/186: not a readable image")
        return super().image(index)


def test_what_the_system_refuses_is_broken_too(workspace: Workspace) -> None:
    data = Unreadable()
    _, broken = without_broken(store(data, workspace), ["test"], Reporter())
    assert sorted(broken) == [185, 186]
    assert "Permission denied" in broken[185]
    with pytest.raises(DataError, match="Permission denied"):
        pixels_of(store(data, workspace), data, "test", Reporter())


class Resplit(Blobs):
    """Says that its splits do not concern its pixels."""

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__()
        self.fingerprint = f"blobs {seed}"

    @property
    def pixels_fingerprint(self) -> str:
        return "blobs"


def test_options_that_leave_pixels_alone_share_a_store(workspace: Workspace) -> None:
    def folder(cls: type[Blobs], **options: int) -> Path:
        made = component(cls, **options)
        return store_of(made, made.create(), 16, "bilinear", "exact", workspace).path

    assert folder(Resplit, seed=0) == folder(Resplit, seed=1)

    class Plain(Resplit):
        pixels_fingerprint = Blobs.pixels_fingerprint

    assert folder(Plain, seed=0) != folder(Plain, seed=1)


def test_nothing_can_be_said_of_decoding_where_every_image_is_broken(workspace: Workspace) -> None:
    data = Damaged()
    data.bad = set(range(240))
    scaled = store(data, workspace, "scaled")
    scaled.fill(np.arange(240), "skip", "images", Reporter())
    assert decoding_difference(scaled) is None


def test_a_mended_image_is_taken_up(workspace: Workspace) -> None:
    data = Damaged()
    without_broken(store(data, workspace), data.splits, Reporter())
    data.bad = {187}
    with pytest.raises(DataError, match="c09/187"):
        pixels_of(store(data, workspace), data, "test", Reporter())
    data.bad = set()
    pixels = pixels_of(store(data, workspace), data, "test", Reporter())
    assert (pixels[:] == Blobs().images(np.arange(180, 240), 16)).all()
    assert 187 not in store(data, workspace).broken()


def test_scaled_decoding_says_how_far_it_is(workspace: Workspace) -> None:
    data = Coarse()
    scaled = store(data, workspace, "scaled")
    pixels = pixels_of(scaled, data, "test", Reporter())
    exact = pixels_of(store(data, workspace), data, "test", Reporter())
    inner = exact[:] < 250
    assert (pixels[:][inner] == exact[:][inner] + 2).all()
    apart = decoding_difference(scaled)
    assert apart is not None
    assert 1.9 < apart.mean <= 2
    assert (apart.percentile_99, apart.largest) == (2, 2)


def test_a_full_disk_is_one_sentence(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Rows, "_create", full)
    with pytest.raises(FsfError, match="no space left"):
        pixels_of(store(Blobs(), workspace), Blobs(), "test", Reporter())


def test_what_the_disk_cannot_hold_is_refused_at_once(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(workspace.cache.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=40_000))
    data = Blobs()
    with pytest.raises(
        FsfError,
        match="60 images of 16 x 16 pixels need at least 46.1 kB .* has 40.0 kB left",
    ):
        pixels_of(store(data, workspace), data, "test", Reporter())
    assert data.decoded == 0


def test_large_images_are_decoded_a_few_at_a_time(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BYTES_A_BLOCK", 5_000)
    asked: list[int] = []

    class Watched(Blobs):
        def images(
            self,
            indices: IntArray,
            size: int,
            interpolation: str = "bilinear",  # type: ignore[override]
        ) -> UInt8Array:
            asked.append(len(indices))
            return super().images(indices, size, interpolation)

    data = Watched()
    pixels_of(store(data, workspace), data, "test", Reporter())
    assert set(asked) == {6}
    assert sum(asked) == 60


def test_packing_imports_no_torch() -> None:
    """A store of any size is packed in little memory, of which torch would take most."""
    code = "import sys, fsframework.engine.cache.images; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Greedy(TinyBackbone):
    """Finds no memory for more than three images."""

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > self.most:
            raise torch.OutOfMemoryError("out of memory")
        return super().forward(images)

    most = 3


def net(backbone: type[TinyBackbone], method: type = Prototypes) -> FewShotModel:
    return build_model(component(backbone), component(method), 16, 0, 0)


def test_batches_halve_where_the_memory_is_short(workspace: Workspace) -> None:
    data = Blobs()
    pixels = pixels_of(store(data, workspace), data, "test", Reporter())
    plain, greedy = net(TinyBackbone), net(Greedy)
    greedy.load_state_dict(plain.state_dict())
    expected = ImageSource.cached(plain, pixels, workspace, Reporter()).items
    other = Workspace(workspace.runs, workspace.cache / "other")
    found = ImageSource.cached(greedy, pixels, other, Reporter()).items
    assert expected is not None
    assert found is not None
    torch.testing.assert_close(found, expected)
    Greedy.most, most = 0, Greedy.most
    try:
        greedy.size = 16
        third = Workspace(workspace.runs, workspace.cache / "third")
        with pytest.raises(DataError, match="one image of 16 x 16 pixels"):
            ImageSource.cached(greedy, pixels, third, Reporter())
    finally:
        Greedy.most = most


@pytest.mark.parametrize("method", [Prototypes, PixelPrototypes])
def test_lower_precision_gives_nearly_the_same_answers(workspace: Workspace, method: type) -> None:
    data = Blobs()
    options = {"name": "random", "n_way": 3, "n_shot": 2, "n_query": 5}
    sampler = resolve_component(Registry(), "sampler", options).create()
    tasks = sampler.draw(data.pool("test"), 40, 0)
    pixels = pixels_of(store(data, workspace), data, "test", Reporter())
    model = net(TinyBackbone, method)
    exact = ImageSource.cached(model, pixels, workspace, Reporter())
    short = ImageSource.cached(model, pixels, workspace, Reporter(), "bf16")
    if exact.items is not None and short.items is not None:
        assert short.items.dtype == torch.float32
        assert not torch.equal(short.items, exact.items), "another precision is another cache"
        torch.testing.assert_close(short.items, exact.items, rtol=0.05, atol=0.05)
    agree = predict(model, tasks, exact) == predict(model, tasks, short)
    assert agree.mean() > 0.97
