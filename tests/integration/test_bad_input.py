"""Bad input: one clear line, exit code 2, nothing half-written. All in processes of their own."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Fsf
from tests.toys import image_folder

QUICK = ("-o", "training.epochs=1", "-o", "training.steps=1", "--tasks", "3")


def folder(root: Path) -> Path:
    return image_folder(root, [f"c{c:02d}" for c in range(12)], 8)


def refused(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """One line, exit code 2, no traceback, and every part named."""
    assert done.returncode == 2, (done.returncode, done.stderr)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("fsf: "), done.stderr
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in last, last


def no_runs(tmp_path: Path) -> None:
    assert not list((tmp_path / "runs").glob("*/run.json"))


def test_tasks_larger_than_the_data(fsf: Fsf, tmp_path: Path) -> None:
    done = fsf("run", "--sampler", "random", "--dataset", f"folder:{folder(tmp_path / 'f')}",
               "--shot", "5", "--queries", "4", "--way", "2")  # fmt: skip
    refused(done, "8", "c")
    refused(done, "at most 4 shots with 4 queries")
    root = image_folder(tmp_path / "few", ["a", "b", "c"], 2)
    done = fsf("run", "--sampler", "random", "--dataset", f"folder:{root}", "--backbone", "conv32f",
               "--method", "ncc", "--option", "training.epochs=0")  # fmt: skip
    refused(done, "split 'all' (3 classes of 2 images)", "at most 1 shot with 1 query")
    done = fsf("run", "--sampler", "random", "--dataset", f"folder:{root}")
    refused(done, "split 'test' (1 class of 2 images)", "2-way tasks need 2 classes", "all images")
    no_runs(tmp_path)


def test_a_file_of_words_with_wrong_columns_or_keys(fsf: Fsf, tmp_path: Path) -> None:
    words = tmp_path / "words.csv"
    given = ("--dataset", f"folder:{folder(tmp_path / 'f')}", "--attributes", words)
    words.write_text("file,tags\nc00/0.png,red\n")
    refused(fsf("run", *given), "columns key and words", "but names file, tags")
    words.write_text("key,words\nf/c00/0.png,red\n")
    refused(fsf("run", *given), "'f/c00/0.png'", "relative to the folder of the data set")


def test_no_image_has_any_attribute(fsf: Fsf, tmp_path: Path) -> None:
    root = folder(tmp_path / "f")
    words = tmp_path / "words.csv"
    words.write_text("key,words\n" + "".join(f"c{c:02d}/0.png,\n" for c in range(12)))
    data = ("--dataset", f"folder:{root}", "--way", "2", "--shot", "1", "--queries", "2")
    refused(fsf("run", *data, "--attributes", words), "no image has any attribute", "words.csv")
    refused(fsf("run", *data), "has no attributes", "--detector appearance", "--sampler random")
    no_runs(tmp_path)


def test_a_truncated_image_is_named_with_its_row(fsf: Fsf, tmp_path: Path) -> None:
    root = folder(tmp_path / "f")
    rows = sorted(p.relative_to(root).as_posix() for p in root.rglob("*.png"))
    table = root / "images.csv"
    table.write_text("path,label\n" + "".join(f"{r},{r.split('/')[0]}\n" for r in rows))
    broken = root / rows[9]
    broken.write_bytes(broken.read_bytes()[:40])
    options = ("--sampler", "random", "--way", "2", "--shot", "1", "--queries", "2", *QUICK)
    done = fsf("run", "--dataset", f"csv:{table}", *options)
    refused(done, rows[9], "row 11")
    no_runs(tmp_path)
    checked = fsf("data", "check", "--dataset", f"csv:{table}")
    assert checked.returncode == 1
    assert "row 11" in checked.stdout
    assert checked.stdout.count("problem:") == 1
    # A class without an image is a problem too; what is hidden is none.
    (root / "empty one").mkdir()
    (root / ".hidden").mkdir()
    checked = fsf("data", "check", "--dataset", f"folder:{root}")
    assert checked.returncode == 1
    assert "problem: no image in 'empty one'" in checked.stdout
    assert checked.stdout.count("problem:") == 2


def test_a_split_file_that_does_not_fit(fsf: Fsf, tmp_path: Path) -> None:
    split = tmp_path / "split.json"
    data = ("--dataset", f"folder:{folder(tmp_path / 'f')}", "-o", f"dataset.split={split}")
    for splits, parts in (
        ({"train": ["c00", "nope"], "test": ["c01", "c02"]}, ("split.json", "nope")),
        ({"train": ["c00", "c01"], "test": ["c01", "c02"]}, ("c01", "train", "test")),
    ):
        split.write_text(json.dumps(splits))
        refused(fsf("data", "check", *data), *parts)


def test_a_task_file_made_for_other_data_or_edited(fsf: Fsf, tmp_path: Path) -> None:
    file = tmp_path / "tasks.safetensors"
    made = fsf("tasks", "make", file, "--tasks", "5", "--shot", "1")
    assert made.returncode == 0, made.stderr
    assert "5 biased tasks" in made.stdout
    good = fsf("tasks", "verify", file)
    assert good.returncode == 0, good.stderr
    other = ("-o", "dataset.n_per_class=30")
    refused(fsf("tasks", "verify", file, *other), "tasks.safetensors", "other data")
    refused(fsf("run", "--task-file", file, *other), "tasks.safetensors", "other data")
    words = ("-o", "dataset.strength=0.9")
    refused(fsf("tasks", "verify", file, *words), "tasks.safetensors", "attribute table")
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    refused(fsf("tasks", "verify", file), "tasks.safetensors", "changed")
    refused(fsf("run", "--task-file", file), "tasks.safetensors", "changed")
    file.write_bytes(b"rubbish")
    refused(fsf("tasks", "show", file), "tasks.safetensors", "not a task file")
    refused(fsf("tasks", "show", tmp_path / "absent"), "absent", "no such file")
    no_runs(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--shot", "x"), ("--shot", "'x'")),
        (("--shot", "0"), ("n_shot must be at least 1",)),
        (("-o", "method.temperatur=1", "--method", "renet"), ("did you mean 'temperature",)),
        (("-o", "method.temperature=warm", "--method", "renet"), ("must be a number", "'warm'")),
        (("-o", "training.epoch=3"), ("training.epoch", "(did you mean 'epochs'")),
        (("-o", "sampler"), ("KEY=VALUE",)),
        (("-o", "smapler.n_way=3"), ("smapler", "did you mean 'sampler'?")),
        (("--backbone", "vit"), ("'vit'", "timm:NAME")),
        (("--backbone", "timm:resnet19"), ("'resnet19'; did you mean",)),
        (("--backbone", "timm"), ("backbone.model",)),
        (("--backbone", "timm:test_resnet", "-o", "backbone.weights=no.pth"), ("no.pth",)),
        (("--backbone", "resnet18:x"), ("'resnet18'",)),
        (("--backbone", "resnet10", "-o", "backbone.stem=9x9"), ("backbone.stem",)),
        (("--method", "protonets"), ("unknown method 'protonets'", "did you mean 'protonet'")),
        (("--tasks", "0"), ("tasks must be at least 1, not 0",)),
        (("--level", "95"), ("level must lie between 0 and 1",)),
        (("--seed", "-1"), ("seed must be at least 0",)),
        (("--device", "cuda"), ("--device cuda", "use --device cpu")),
        (("--device", "gpu"), ("--device gpu", "auto, cpu, cuda")),
        (("--dataset", "folder:/no/such/folder"), ("/no/such/folder",)),
        (("--dataset", "folder"), ("dataset.path",)),
        (("--split", "tset"), ("tset", "train, val, test")),
        (("--dataset", "./images"), ("folder:./images",)),
        (("--dataset", "x.csv"), ("csv:x.csv",)),
        (("--dataset", "images.zip"), ("folder:images.zip",)),
        (("--backbone", "mynet.pth"), ("timm:NAME -o backbone.weights=mynet.pth", "init_from")),
        (("--backbone", "n/mynet.onnx"), ("not .h5", ".onnx", "backbone.weights=FILE.pth")),
        (("--method", "mine.py"), ("--plugin mine.py", "my-method")),
        (("--sampler", "x.py"), ("--plugin x.py", "my-sampler")),
        (("--sampler", "tasks.safetensors"), ("--task-file tasks.safetensors",)),
        (("--detector", "captions.csv"), ("captions-file:captions.csv", "--attributes")),
        (("--config", "no.toml"), ("no.toml", "no such file")),
        (("--metod", "x"), ("--metod",)),
        (("--config", "."), ("--config .", "it is a folder")),
        (("--attributes", "/proc/self.csv"), ("/proc/self.csv",)),
        (("-o", "training.stages.0.epochs=1", "--config", "stages.toml"), ("list of tables",)),
        (("-o", "training.n_query=200"), ("training episodes", "200")),
        (("--seed", "99999999999999999999"), ("seed must be",)),
        (("--image-size", "9"), ("9",)),
        (("--statistic", "ac"), ("unknown statistic 'ac'",)),
        (("--attributes", "w.csv", "--detector", "metadata"), ("--attributes or --detector",)),
        (("--config", "cut.toml"), ("cut.toml", "not TOML", "line 1")),
        (("--config", "misspelt.toml"), ("'sede'", "did you mean 'seed'?")),
        (("--config", "wrong.toml"), ("3",)),
        (("--way", "30"), ("30", "20")),
        (("--way", "30", "--sampler", "random"), ("30", "20")),
    ],
)
def test_options_that_are_not_allowed(
    fsf: Fsf, tmp_path: Path, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    if arguments == ("--device", "cuda"):
        import torch

        if torch.cuda.is_available():
            pytest.skip("this machine has a CUDA device")
    (tmp_path / "stages.toml").write_text("[[training.stages]]\nepochs = 2\n")
    for name, text in (("cut", "seed = "), ("misspelt", "sede = 3"), ("wrong", "method = 3")):
        (tmp_path / f"{name}.toml").write_text(f"{text}\n")
    refused(fsf("run", *arguments), *parts)
    no_runs(tmp_path)


@pytest.mark.parametrize("names", ["shufled", "absent.csv", "headless.csv"])
def test_class_names_are_checked_with_the_other_options(
    fsf: Fsf, tmp_path: Path, names: str
) -> None:
    (tmp_path / "headless.csv").write_text("label,text\na,b\n")
    refused(fsf("run", "--class-names", names, "--dry-run"), names)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files as Linux does")
def test_a_full_disk(tmp_path: Path) -> None:
    """A limit on the size of files stands for a disk that is full."""

    def limit() -> None:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = subprocess.run(
        [sys.executable, "-m", "fsframework", "run", "--sampler", "random", "--shot", "1",
         "-o", "dataset.n_per_class=25", *QUICK],
        cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False,
        preexec_fn=limit,
    )  # fmt: skip
    refused(done, "cannot write")
    no_runs(tmp_path)
    assert not list((tmp_path / "runs").rglob("*.tmp"))


def test_a_file_system_without_locks(fsf: Fsf, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NFS is without its daemon of locks: a run has a note, a sweep says what to set."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    small = ("--sampler", "random", "--method", "ncc", "--shot", "1", "-o", "training.epochs=0")
    done = fsf("run", "-o", "dataset.size=16", *small, "--tasks", "3")
    assert done.returncode == 0, done.stderr
    assert "FSF_CACHE" in done.stderr
    refused(fsf("sweep", *small, "--tasks", "3"), "has no locks", "FSF_RUNS")


@pytest.mark.parametrize(
    ("output", "fault"),
    [
        ("taken.parquet", "taken.parquet is a folder"),
        ("absent/w.parquet", "absent does not exist"),
        ("words.parquet", "words.parquet is an input"),
        ("/dev/full", "/dev/full is a device"),
        ("-", "-"),
    ],
)
def test_an_output_that_is_no_file_to_write(
    fsf: Fsf, tmp_path: Path, output: str, fault: str
) -> None:
    (tmp_path / "taken.parquet").mkdir()
    (tmp_path / "words.parquet").write_bytes(b"words")
    before = sorted(tmp_path.rglob("*"))
    extract = ("attributes", "extract", "--detector", "captions-file:words.parquet")
    refused(fsf(*extract, "--dataset", "planted", output, "--force"), fault)
    assert (sorted(tmp_path.rglob("*")), Path("/dev/full").is_char_device()) == (before, True)
    assert (tmp_path / "words.parquet").read_bytes() == b"words"
