"""Task sets and models of packages: published, installed, found by name, and refused elsewhere."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fsframework
from fsframework.errors import DataError
from tests.conftest import Fsf
from tests.toys import image_folder

DATA = ("--dataset", "planted", "-o", "dataset.n_per_class=20", "-o", "dataset.size=16")
SHAPE = ("--way", "3", "--shot", "1", "--queries", "4", "--tasks", "10")
NOTHING = ("--method", "ncc", "--image-size", "16", "-o", "training.epochs=0", "--json")
TO = ("--to", "site/fsf-toy", "--licence", "CC0")


def done(fsf: Fsf, *arguments: str) -> str:
    ran = fsf(*arguments)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def ran(fsf: Fsf, *arguments: str) -> tuple[dict[str, Any], fsframework.Run]:
    told = json.loads(done(fsf, "run", *arguments))
    return told, fsframework.load_run(told["folder"])


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a published package on the path with the metadata that pip would write."""

    def call() -> None:
        package = tmp_path / "site/fsf-toy"
        text = (package / "pyproject.toml").read_text()
        entry = re.search(r'^fsf-toy = "(.*)"$', text, re.M)
        info = package / "fsf_toy-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fsf-toy\nVersion: 0.1.0\n")
        (info / "entry_points.txt").write_text(f"[fsframework.files]\nfsf-toy = {entry[1]}\n")
        monkeypatch.syspath_prepend(str(package))

    return call


def test_a_task_set_is_found_by_its_name_and_only_its_images_are_taken(
    fsf: Fsf, tmp_path: Path, install: Any
) -> None:
    published = ("tasks", "publish", "toy/fewstab-3w1s-v1", *TO, "--about", "words: made up")
    done(fsf, *published, *DATA, *SHAPE)
    again = fsf(*published, *DATA, *SHAPE, "--seed", "1")
    assert (again.returncode, "never changes" in again.stderr) == (2, True)
    for name in ("Toy/x-v1", "toy/noversion", "toy/x-v0"):
        bad = fsf("tasks", "publish", name, *TO, *DATA, *SHAPE)
        assert (bad.returncode, repr(name) in bad.stderr) == (2, True)
    install()
    listed = {row["name"]: row for row in json.loads(done(fsf, "tasks", "show", "--json"))}
    own = listed["toy/fewstab-3w1s-v1"]
    assert (own["data"], own["tasks"]) == ("planted", "random and biased, 3-way 1-shot")
    assert "toy/fewstab-3w1s-v1" in done(fsf, "tasks", "show")
    assert not list(tmp_path.glob("*.png"))
    shown = done(fsf, "tasks", "show", "toy/fewstab-3w1s-v1")
    for told in ("words: made up", "licence: CC0", "fewstab (n_way=3", "10 biased tasks"):
        assert told in shown
    assert "fsf tasks publish toy/fewstab-3w1s-v1 --to" in shown
    assert "fewstab tasks, 3-way 1-shot" in done(fsf, "runs", "show", "toy/fewstab-3w1s-v1")
    told, run = ran(fsf, *NOTHING, *DATA, "--task-file", "toy/fewstab-3w1s-v1")
    _, drawn = ran(fsf, *NOTHING, *DATA, *SHAPE, "--sampler", "fewstab")
    assert told["arms"] == ["random", "biased"]
    assert run.record.contrast == drawn.record.contrast
    for arm in ("random", "biased"):
        assert run.tasks[arm].digest == drawn.tasks[arm].digest
        assert run.tasks[arm].digest in shown
    assert run.estimates["wacc-gap"].value == drawn.estimates["wacc-gap"].value
    assert run.pool.attributes is not None
    assert run.pool.attributes.fingerprint == drawn.pool.attributes.fingerprint
    done(fsf, "results", "add", run.name, "--to", "results")
    submit = (tmp_path / "results/SUBMIT.md").read_text()
    assert "-o dataset.size=16 --task-file toy/fewstab-3w1s-v1\n" in submit
    one = json.loads(done(fsf, "tasks", "show", "toy/fewstab-3w1s-v1", *DATA, "--task", "3",
                          "--arm", "random", "--json"))  # fmt: skip
    assert (one["task"], one["arm"]) == (3, "random")
    verified = done(fsf, "tasks", "verify", str(run.folder), *DATA)
    assert run.tasks["biased"].digest[:12] in verified
    for options, told in (
        (("-o", "dataset.n_per_class=21", "-o", "dataset.size=16"), "drawn from other data"),
        ((*DATA[2:], "--sampler", "random"), "leave out sampler"),
    ):
        refused = fsf("run", *NOTHING, *options, "--task-file", "toy/fewstab-3w1s-v1")
        assert (refused.returncode, told in refused.stderr) == (2, True), refused.stderr
        assert "--task-file toy/fewstab-3w1s-v1" in refused.stderr
    other = fsf("run", *NOTHING, *DATA, "--task-file", "toy/fewstab-3w1s-v2")
    assert (other.returncode, "toy/fewstab-3w1s-v1" in other.stderr) == (2, True)
    # Images without a split to train on: what is wrong first is that they are others.
    image_folder(tmp_path / "birds", "abc", each=6)
    for options in (("--method", "protonet"), NOTHING):
        wrong = fsf("run", *options, "--dataset", "folder:./birds",
                    "--task-file", "toy/fewstab-3w1s-v1")  # fmt: skip
        assert (wrong.returncode, "drawn from other data" in wrong.stderr) == (2, True)


def test_images_of_other_contexts_are_not_those_of_the_tasks(fsf: Fsf, tmp_path: Path) -> None:
    def listed(name: str, contexts: str) -> tuple[str, str]:
        rows = [
            f"{label}/{i}.png,{label},{contexts[i % 2]},{i}" for label in "abc" for i in range(16)
        ]
        (tmp_path / name).write_text("\n".join(["path,label,context,day", *rows]))
        return "--dataset", f"csv:./{name}", "--split", "all"

    drawn = ("--sampler", "context", *SHAPE, *listed("first.csv", "xy"))
    done(fsf, "tasks", "publish", "toy/context-3w1s-v1", *TO, *drawn)
    folder = "site/fsf-toy/fsf_toy/toy/context-3w1s-v1"
    days = (tmp_path / "first.csv").read_text()
    (tmp_path / "later.csv").write_text(re.sub(",(\\d+)$", r",1\1", days, flags=re.M))
    done(fsf, "tasks", "verify", folder, "--dataset", "csv:./later.csv", "--split", "all")
    flipped = listed("flipped.csv", "yx")
    for command in (("tasks", "verify", folder), ("run", *NOTHING, "--task-file", folder)):
        refused = fsf(*command, *flipped)
        assert refused.returncode == 2
        assert "48 of 48 images have another context" in refused.stderr


def test_a_damaged_task_set_is_refused(fsf: Fsf, tmp_path: Path) -> None:
    done(fsf, "tasks", "publish", "toy/fewstab-3w1s-v1", *TO, *DATA, *SHAPE)
    done(fsf, "tasks", "publish", "toy/fewstab-3w1s-v2", *TO, *DATA, *SHAPE, "--seed", "1")
    one, other = (tmp_path / f"site/fsf-toy/fsf_toy/toy/fewstab-3w1s-v{n}" for n in (1, 2))
    (one / "tasks-biased.safetensors").write_bytes(
        (other / "tasks-biased.safetensors").read_bytes()
    )
    refused = fsf("run", *NOTHING, *DATA, "--task-file", str(one))
    assert (refused.returncode, "tasks-biased.safetensors" in refused.stderr) == (2, True)


def test_a_model_of_a_package_is_the_one_that_was_trained(
    fsf: Fsf, tmp_path: Path, install: Any
) -> None:
    quick = ("--recipe", "none", "-o", "training.epochs=1", "-o", "training.steps=2",
             "--image-size", "16", "--json")  # fmt: skip
    _, trained = ran(fsf, "--method", "protonet", *DATA, *SHAPE, *quick)
    name = ("runs", "publish", trained.name, "toy/protonet", *TO)
    done(fsf, *name)
    assert fsf(*name).returncode == 2
    folder = tmp_path / "site/fsf-toy/fsf_toy/toy/protonet"
    assert {file.name for file in folder.iterdir()} == {"run.json", "weights.safetensors"}
    install()
    _, run = ran(fsf, "--model", "toy/protonet", *DATA, *SHAPE, "--json")
    assert run.record.training.history == ()
    assert run.record.digests["weights"] == trained.record.digests["weights"]
    assert run.estimates["wacc-gap"].value == trained.estimates["wacc-gap"].value
    done(fsf, "results", "add", run.name, "--to", "results")
    copy = fsframework.load_run(tmp_path / "results" / run.name)
    assert copy.record.settings["model"] == copy.record.given["model"] == "toy/protonet"
    shown = done(fsf, "runs", "show", "toy/protonet")
    digest = trained.record.digests["weights"]
    assert "licence: CC0" in shown
    assert digest in shown
    assert (
        f"| `toy/protonet` | CC0 | `{digest[:12]}` |"
        in (tmp_path / "site/fsf-toy/README.md").read_text()
    )
    wrong = fsf("tasks", "show", "toy/protonet")
    assert (wrong.returncode, "fsf runs show toy/protonet" in wrong.stderr) == (2, True)
    untrained = fsf("runs", "publish", "toy/fewstab", "toy/x", *TO)
    assert untrained.returncode == 2
    (folder / "weights.safetensors").write_bytes(b"damaged")
    refused = fsf("run", "--model", "toy/protonet", *DATA, *SHAPE, "--tasks", "11")
    assert (refused.returncode, "weights.safetensors" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("package", "files"),
    [
        ("notes", {"README.md": "Mine."}),
        ("other", {"pyproject.toml": '[project]\nname = "other"\n'}),
        ("damaged", {"pyproject.toml": "garbage [[["}),
        ("numpy", {}),
        ("class", {}),
        ("vögel", {}),
    ],
)
def test_no_folder_but_that_of_a_package_is_written_to(
    fsf: Fsf, tmp_path: Path, package: str, files: dict[str, str]
) -> None:
    for name, text in files.items():
        (tmp_path / package).mkdir(exist_ok=True)
        (tmp_path / package / name).write_text(text)
    refused = fsf("tasks", "publish", "toy/x-v1", "--to", package, "--licence", "CC0", *DATA)
    assert (refused.returncode, package in refused.stderr) == (2, True)
    left = {str(one.relative_to(tmp_path / package)) for one in (tmp_path / package).rglob("*")}
    assert left == set(files)
    assert all((tmp_path / package / name).read_text() == text for name, text in files.items())


def test_what_is_refused_begins_no_package_and_a_name_is_given_once(
    fsf: Fsf, tmp_path: Path, install: Any
) -> None:
    for options in (("--shot", "50"), ("--licence", " ")):
        refused = fsf("tasks", "publish", "toy/x-v1", *TO, *DATA, *options)
        assert refused.returncode == 2, refused.stderr
    assert not (tmp_path / "site").exists()
    done(fsf, "tasks", "publish", "toy/x-v1", *TO, *DATA, *SHAPE, "--licence", "CC0\n | mine")
    assert "| `toy/x-v1` | CC0 &#124; mine |" in (tmp_path / "site/fsf-toy/README.md").read_text()
    install()
    again = fsf("tasks", "publish", "toy/x-v1", "--to", "fsf-else", "--licence", "CC0", *DATA)
    assert (again.returncode, "fsf-toy" in again.stderr) == (2, True)
    assert not (tmp_path / "fsf-else").exists()


def test_a_damaged_set_hides_no_other(fsf: Fsf, tmp_path: Path, install: Any) -> None:
    for name in ("toy/x-v1", "toy/x-v2"):
        done(fsf, "tasks", "publish", name, *TO, *DATA, *SHAPE)
    install()
    (tmp_path / "site/fsf-toy/fsf_toy/toy/x-v2/tasks-random.safetensors").write_bytes(b"x")
    rows = {row["name"]: row for row in json.loads(done(fsf, "tasks", "show", "--json"))}
    assert rows["toy/x-v1"]["data"] == "planted"
    assert "tasks-random.safetensors" in rows["toy/x-v2"]["tasks"]


def test_no_folder_of_the_machine_is_published(fsf: Fsf, tmp_path: Path) -> None:
    quick = ("--recipe", "none", "-o", "training.epochs=1", "-o", "training.steps=1",
             "--image-size", "16", "--json", "--method", "protonet", *DATA, *SHAPE)  # fmt: skip
    _, first = ran(fsf, *quick)
    private = tmp_path / "of alice" / "weights.safetensors"
    private.parent.mkdir()
    private.write_bytes((first.folder / "weights.safetensors").read_bytes())
    _, run = ran(fsf, *quick, "-o", f"training.init_from={private}")
    assert "of alice" in (run.folder / "run.json").read_text()
    done(fsf, "runs", "publish", run.name, "toy/protonet", *TO)
    done(fsf, "results", "add", run.name, "--to", "results")
    copies = [*tmp_path.glob("site/**/run.json"), *tmp_path.glob("results/*/run.json")]
    assert len(copies) == 2
    assert not any("of alice" in copy.read_text() for copy in copies)


def test_a_name_means_what_is_installed_and_a_folder_here_is_given_as_one(
    fsf: Fsf, tmp_path: Path, install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = "toy/fewstab-3w1s-v1", "toy/fewstab-3w1s-v2"
    for name, seed in ((own, "0"), (other, "1")):
        done(fsf, "tasks", "publish", name, *TO, *DATA, *SHAPE, "--seed", seed)
    sets = tmp_path / "site/fsf-toy/fsf_toy/toy"
    (tmp_path / "toy").mkdir()
    shutil.copytree(sets / other.split("/")[1], tmp_path / own)
    first, second = (fsframework.load_run(sets / one.split("/")[1]).tasks for one in (own, other))
    # Nothing is installed: a name is no folder, and the sentence says how to give one.
    refused = fsf("run", *NOTHING, *DATA, "--task-file", own)
    assert (refused.returncode, f"./{own}" in refused.stderr) == (2, True)
    install()
    for given, tasks in ((own, first), (f"./{own}", second), (str(tmp_path / own), second)):
        _, run = ran(fsf, *NOTHING, *DATA, "--task-file", given)
        assert run.tasks["biased"].digest == tasks["biased"].digest, given
        shown = done(fsf, "tasks", "show", given)
        assert tasks["biased"].digest in shown, given
    monkeypatch.chdir(tmp_path)
    planted = {"name": "planted", "n_per_class": 20, "size": 16}
    with pytest.raises(DataError, match="absolute path"):
        fsframework.run(method="ncc", dataset=planted, task_file=Path(own), progress=False)
    shutil.copytree(sets / other.split("/")[1], tmp_path / "toy/none-v1")
    refused = fsf("run", *NOTHING, *DATA, "--task-file", "toy/none-v1")
    assert (refused.returncode, "./toy/none-v1" in refused.stderr) == (2, True)


def test_a_model_of_an_installed_package_is_not_a_folder_here(
    fsf: Fsf, tmp_path: Path, install: Any
) -> None:
    def trained(seed: str) -> fsframework.Run:
        quick = ("--recipe", "none", "-o", "training.epochs=1", "-o", "training.steps=1")
        return ran(fsf, "--method", "protonet", *quick, "--image-size", "16", "--seed", seed,
                   "--json", *DATA, *SHAPE)[1]  # fmt: skip

    first, second = trained("0"), trained("1")
    done(fsf, "runs", "publish", first.name, "toy/protonet", *TO)
    install()
    shutil.copytree(second.folder, tmp_path / "toy/protonet")
    start = ("--method", "protonet", "-o", "training.epochs=0", "--image-size", "16")
    for given, source in (("toy/protonet", first), ("./toy/protonet", second)):
        for options in (("--model", given), (*start, "--init-from", given)):
            _, run = ran(fsf, *options, *DATA, *SHAPE, "--json")
            assert run.record.digests["weights"] == source.record.digests["weights"], options


@pytest.mark.parametrize("option", ["seed=1", "strength=0.9"])
def test_generated_images_of_other_options_are_not_those_of_a_set(fsf: Fsf, option: str) -> None:
    done(fsf, "tasks", "publish", "toy/random-3w1s-v1", *TO, *DATA, *SHAPE, "--sampler", "random")
    folder = "site/fsf-toy/fsf_toy/toy/random-3w1s-v1"
    refused = fsf("run", *NOTHING, *DATA, "-o", f"dataset.{option}", "--task-file", folder)
    assert (refused.returncode, "other pixels" in refused.stderr) == (2, True), refused.stderr
    ran(fsf, *NOTHING, *DATA, "--task-file", folder)


def test_image_files_may_have_another_size_and_encoding_and_no_other_content(
    fsf: Fsf, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    for label in "abc":
        for number in range(6):
            picture = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
            file = tmp_path / f"images/{label}/{number}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).resize((64, 64)).save(file, quality=95)
    data = ("--dataset", "folder:./images", "--split", "all")
    done(fsf, "tasks", "publish", "toy/random-3w1s-v1", *TO, *data, *SHAPE, "--sampler", "random")
    folder = "site/fsf-toy/fsf_toy/toy/random-3w1s-v1"
    for file in tmp_path.glob("images/*/*.jpg"):
        Image.open(file).resize((40, 30)).save(file, quality=60)
    ran(fsf, *NOTHING, *data, "--task-file", folder)
    files = sorted(tmp_path.glob("images/*/*.jpg"))
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, contents[1:] + contents[:1], strict=True):
        file.write_bytes(content)
    for command in (("run", *NOTHING, "--task-file", folder), ("tasks", "verify", folder)):
        refused = fsf(*command, *data)
        assert (refused.returncode, "other pixels" in refused.stderr) == (2, True), refused.stderr


def test_a_published_model_has_no_file_that_a_link_leads_to(fsf: Fsf, tmp_path: Path) -> None:
    _, run = ran(fsf, *NOTHING, *DATA, *SHAPE)
    weights = run.folder / "weights.safetensors"
    weights.rename(tmp_path / "there")
    weights.symlink_to(tmp_path / "there")
    refused = fsf("runs", "publish", run.name, "toy/ncc", *TO)
    assert (refused.returncode, "is a link" in refused.stderr) == (2, True)
    assert not (tmp_path / "site/fsf-toy/fsf_toy").exists()
