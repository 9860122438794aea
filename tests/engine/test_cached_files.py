"""Arrays and files of the cache: resumed, healed, read where nothing can be written."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fsframework._files import atomic_write, load_sealed, locked, save_sealed
from fsframework.engine.cache.images import ImageStore, known_digest, pixels_of
from fsframework.engine.cache.rows import Records, Rows, records_of
from fsframework.engine.learning import evaluation
from fsframework.engine.learning.evaluation import ImageSource, evaluate
from fsframework.engine.session import Workspace
from fsframework.errors import FsfError
from fsframework.testing.toys import toy_pool
from fsframework.values import IntArray, TaskSet
from tests.toys import Blobs, Counting, Prototypes, TinyBackbone


class Noting(Counting):
    """Counts, and keeps what is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, text: str) -> None:
        """Keep a line."""
        self.said.append(text)


class Made:
    """Rows of ten times their number, made in blocks of four."""

    def __init__(self, folder: Path, factor: int = 10) -> None:
        self.folder, self.factor, self.blocks = folder, factor, list[int]()

    def __call__(
        self, reporter: Noting | None = None, used: IntArray | None = None
    ) -> npt.NDArray[np.float32]:
        """Return the array."""
        rows = Rows(self.folder, (10, 3), np.float32, "features")
        return rows.built(
            self.make, 4, np.arange(10) if used is None else used, reporter or Noting()
        )

    def make(self, rows: IntArray) -> tuple[npt.NDArray[np.float32], Records]:
        """Make a block."""
        self.blocks.append(int(rows[0]))
        made = np.repeat(self.factor * rows.astype(np.float32)[:, None], 3, axis=1)
        return made, records_of(made)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    found = Made(tmp_path / "features" / "key")
    assert found()[9].tolist() == [90, 90, 90]
    assert found.blocks == [0, 4, 8]
    found.blocks.clear()
    return found


def overwrite(path: Path, at: int, raw: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
        file.write(raw)


def test_only_the_block_of_a_damaged_row_is_made_again(made: Made) -> None:
    overwrite(made.folder / "array.npy", -4 * 3 * 4, bytes(4))  # in row 6
    reporter = Noting()
    assert made(reporter, np.array([1, 2, 8])).shape == (10, 3)
    assert (made.blocks, reporter.said) == ([], []), "row 6 is not used"
    assert (made(reporter)[:, 0] == 10 * np.arange(10)).all()
    assert made.blocks == [4]
    (line,) = reporter.said
    assert line.endswith("some cached features are damaged and are made again")


def test_a_damaged_record_costs_its_block(made: Made) -> None:
    overwrite(made.folder / "rows.bin", -8, bytes(8))
    reporter = Noting()
    assert (made(reporter)[:, 0] == 10 * np.arange(10)).all()
    assert (made.blocks, len(reporter.said)) == ([8], 1)
    assert made(reporter).shape == (10, 3)
    assert len(reporter.said) == 1, "it has healed"


def test_another_array_of_the_same_shape_does_not_pass(made: Made, tmp_path: Path) -> None:
    other = Made(tmp_path / "features" / "other", -10)
    other()
    for name in ("array.npy", "rows.bin"):
        (made.folder / name).write_bytes((other.folder / name).read_bytes())
    assert (made()[:, 0] == 10 * np.arange(10)).all()


def test_rows_made_by_another_process_are_not_made_again(made: Made) -> None:
    rows = Rows(made.folder, (10, 3), np.float32, "features")
    assert rows.missing(np.arange(10), Noting()).size == 0
    assert rows.read(np.array([7, 2])).tolist() == [[70] * 3, [20] * 3]


def store(workspace: Workspace, data: Blobs) -> ImageStore:
    return ImageStore(data, "blobs", 16, "bilinear", "exact", workspace)


class Edited(Blobs):
    """One image can be edited without a change of the fingerprint."""

    state = "inode 1"

    def local_states(self, indices: IntArray) -> list[str]:  # type: ignore[override]
        return [self.state if i == 185 else "" for i in indices]

    def image(self, index: int) -> npt.NDArray[np.uint8]:
        found = super().image(index)
        return 255 - found if index == 185 and self.state == "inode 2, inverted" else found


def test_an_edited_image_is_decoded_again(tmp_path: Path) -> None:
    workspace, data = Workspace(tmp_path, tmp_path / "cache"), Edited()
    reporter = Noting()
    first = pixels_of(store(workspace, data), data, "test", reporter)
    data.state, data.decoded = "inode 2", 0
    assert pixels_of(store(workspace, data), data, "test", reporter).digest == first.digest
    assert (data.decoded, reporter.said) == (1, []), "moved, not edited"
    assert known_digest(store(workspace, data), data, "test", reporter) == first.digest
    data.state = "inode 2, inverted"
    assert known_digest(store(workspace, data), data, "test", reporter) != first.digest
    assert data.decoded == 2
    (line,) = reporter.said
    assert "changed since they were decoded" in line
    assert known_digest(store(workspace, data), data, "train", reporter) is None, "not decoded"


def test_partial_predictions_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.engine.test_images import net

    pool = toy_pool()
    images = np.arange(len(pool))
    classes = np.tile([0, 1], (40, 1))
    members = [pool.members(label) for label in (0, 1)]
    support = np.tile([[m[:1] for m in members]], (40, 1, 1))
    query = np.tile([[m[1:3] for m in members]], (40, 1, 1))
    tasks = TaskSet.of(pool, classes, support, query, sampler="x", options={}, seed=0)
    source = ImageSource(torch.randn(len(images), 8, generator=torch.Generator().manual_seed(0)))
    partial, model = tmp_path / "partial-x.safetensors", net(TinyBackbone, Prototypes)
    monkeypatch.setattr(evaluation, "_tasks_a_batch", lambda *_: 10)
    monkeypatch.setattr(evaluation, "_SECONDS_BETWEEN_SAVES", -1.0)
    monkeypatch.setattr(evaluation, "remove_sealed", lambda _: None)

    def outcome(reporter: Noting) -> bytes:
        found = evaluate(model, tasks, source, label="x", partial=partial, reporter=reporter)
        return found.predictions.tobytes()

    expected = outcome(Noting())
    resumed = Noting()
    assert outcome(resumed) == expected
    assert resumed.units == {"x": 0}, "all were kept"
    overwrite(partial, -3, b"\1")
    healed = Noting()
    assert outcome(healed) == expected
    assert healed.units == {"x": 40}
    assert "this cached file is damaged and is made again" in healed.said[0]


def test_a_file_may_be_that_of_before_a_kill(tmp_path: Path) -> None:
    """The digest is written first, and then the file."""
    path = tmp_path / "stage" / "key.txt"
    save_sealed(path, lambda place: atomic_write(place, "one"))
    save_sealed(path, lambda place: atomic_write(place, "two"))
    reporter = Noting()
    assert load_sealed(path, Path.read_text, reporter.note) == "two"
    path.write_text("one")
    assert load_sealed(path, Path.read_text, reporter.note) == "one"
    assert reporter.said == []
    path.write_text("three")
    assert load_sealed(path, Path.read_text, reporter.note) is None
    assert len(reporter.said) == 1


def test_a_pipe_in_the_place_of_a_file_does_not_hang(made: Made, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key.txt")
    assert load_sealed(tmp_path / "key.txt", Path.read_text, Noting().note) is None
    for name in ("array.npy", "rows.bin"):
        (made.folder / name).unlink()
        os.mkfifo(made.folder / name)
        assert (made()[:, 0] == 10 * np.arange(10)).all()


def _without_privileges() -> None:
    """Take from root what lets it write anywhere."""
    for privilege in (1, 2):
        ctypes.CDLL(None).prctl(24, privilege, 0, 0, 0)


def test_what_is_cached_can_be_read_where_nothing_can_be_written(
    made: Made, tmp_path: Path
) -> None:
    (made.folder / "lock").unlink(missing_ok=True)
    for path in (made.folder / "array.npy", made.folder / "rows.bin", made.folder):
        path.chmod(0o555)
    code = (
        "import sys, numpy as np; from pathlib import Path; "
        "from fsframework.engine.cache.rows import Rows; "
        "from fsframework.engine.progress import Reporter; "
        "rows = Rows(Path(sys.argv[1]), (10, 3), np.float32, 'features'); "
        "print(rows.built(None, 4, np.arange(10), Reporter()).sum())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(made.folder)],
        capture_output=True, text=True, check=False,
        preexec_fn=_without_privileges if os.geteuid() == 0 else None,
    )  # fmt: skip
    made.folder.chmod(0o755)
    assert (done.returncode, done.stdout.strip()) == (0, "1350.0"), done.stderr


def test_a_lock_that_cannot_be_made_for_another_reason_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FsfError, match="cannot write"), locked(tmp_path / "file" / "inner"):
        pass
