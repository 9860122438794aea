"""`fsf runs repeat`: what a record tells, computed again."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

import fsframework
from fsf_tools import repeat_run
from fsframework.errors import PluginError
from tests.conftest import Fsf
from tests.toys import image_folder

SMALL: dict[str, Any] = {
    "dataset": {"name": "planted", "n_per_class": 8, "size": 16},
    "sampler": "random",
    "tasks": 12,
    "way": 2,
    "shot": 1,
    "queries": 2,
    "progress": False,
}
PLUGIN = """
import torch
from fsframework.interfaces import FewShotMethod

class Mine(FewShotMethod):
    "Scores of mine."
    learns_from = "nothing"
    weightless = True
    def scores(self, support, query):
        return SIGN * torch.cdist(query, support.mean(2))
"""


def repeated(fsf: Fsf, *arguments: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Repeat the only run; return the exit code, and the results and circumstances by name."""
    done = fsf("runs", "repeat", "--json", *arguments)
    if done.returncode == 2:
        return 2, {}, {"stderr": done.stderr}
    told = json.loads(done.stdout)
    assert told["same"] is (done.returncode == 0)
    parts = [{one["name"]: one for one in told[name]} for name in ("results", "circumstances")]
    return done.returncode, *parts


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, which the test has for itself."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the content of every file but the list of installed plugins."""
    files = [one for one in folder.rglob("*") if one.is_file() and one.parent.name != "plugins"]
    return {str(file): file.read_bytes() for file in files}


def test_a_trained_run_of_several_seeds_is_the_same_in_every_digest(
    fsf: Fsf, tmp_path: Path, temporary: Path
) -> None:
    training = {"epochs": 1, "steps": 2}
    runs = fsframework.run(method="protonet", seeds=[3, 4], training=training, **SMALL).runs
    before = files_of(tmp_path)
    code, results, circumstances = repeated(fsf, str(runs[1].folder))
    assert (code, circumstances) == (0, {})
    record = runs[1].record
    arms = {f"tasks-{arm}" for arm in record.arms}
    assert {*results} == {*record.digests, *record.estimates, *arms}
    assert {"weights", "outcomes-random", "images of train"} <= {*results}
    assert files_of(tmp_path) == before, "neither the run nor the user's cache has changed"
    assert not [*temporary.glob("fsf-*")]
    assert fsf("runs", "repeat", "method=protonet").returncode == 2, "two runs match"


def test_words_and_images_of_ones_own(fsf: Fsf, tmp_path: Path) -> None:
    image_folder(tmp_path / "birds", "ab", each=6)
    keys = fsframework.pool(f"folder:{tmp_path / 'birds'}", split="all").keys
    rows = [f"{key},{'day' if n % 2 else 'night'}" for n, key in enumerate(keys)]
    words = tmp_path / "words.csv"
    words.write_text("\n".join(["key,words", *rows, ""]))
    given = {**SMALL, "dataset": f"folder:{tmp_path / 'birds'}", "sampler": "fewstab"}
    run = fsframework.run(
        method="ncc", attributes=words, split="all", training={"epochs": 0}, image_size=16, **given
    )
    assert "attributes" in run.record.digests
    assert repeated(fsf, run.name)[0] == 0
    words.write_text("\n".join(["key,words", *rows[:-1], f"{rows[-1]};rain", ""]))
    code, results, circumstances = repeated(fsf, run.name)
    assert code == 1
    assert [results[name]["same"] for name in ("images", "attributes")] == [True, False]
    assert "identity of the run" in circumstances
    shutil.rmtree(tmp_path / "birds")
    code, _, told = repeated(fsf, run.name)
    assert (code, "birds" in told["stderr"]) == (2, True)


def test_a_plugin_file_is_loaded_from_its_copy_if_that_is_allowed(
    fsf: Fsf, tmp_path: Path, temporary: Path
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(PLUGIN.replace("SIGN", "-1"))
    run = fsframework.run(method="mine", plugins=[mine], training={"epochs": 0}, **SMALL)
    mine.write_text(PLUGIN.replace("SIGN", "1"))
    code, _, told = repeated(fsf, run.name)
    assert code == 2
    assert "--allow-code" in told["stderr"]
    assert repeated(fsf, run.name, "--allow-code")[0] == 0
    code, results, circumstances = repeated(fsf, run.name, "--plugin", str(mine))
    assert code == 1, circumstances
    assert [name for name, one in results.items() if not one["same"]] == [
        "outcomes-random",
        *run.estimates,
    ]
    # Of two classes, farthest instead of nearest is the other answer, and 1 - accuracy.
    answers = 12 * 2 * 2
    assert f"{answers} of {answers} queries" in results["outcomes-random"]["difference"]
    points = 100 * (1 - 2 * run.estimates["acc-random"].value)
    assert f"{points:+.3g} points".replace("-", "−") in results["acc-random"]["difference"]
    assert {*circumstances} == {"identity of the run"}
    mine.write_text(PLUGIN.replace("return SIGN *", "raise KeyboardInterrupt #"))
    done = fsf("runs", "repeat", run.name, "--plugin", str(mine))
    assert (done.returncode, [*temporary.glob("fsf-*")]) == (130, [])
    copy = next((run.folder / "code").iterdir())
    copy.write_text(PLUGIN)
    code, _, told = repeated(fsf, run.name, "--allow-code")
    assert (code, copy.name in told["stderr"]) == (2, True)


def test_what_later_calls_asked_for_is_repeated_too_and_may_be_kept(
    fsf: Fsf, tmp_path: Path
) -> None:
    for asked in ({}, {"level": 0.9, "statistics": ["acc", "wacc"], "name": "mine"}):
        made = fsframework.run(
            method="ncc", training={"epochs": 0}, **{**SMALL, "name": "mine", **asked}
        )
    assert made.estimates["wacc-random"].level == 0.9
    found = repeat_run(made, keep=tmp_path / "again", progress=False)
    assert found.same
    assert found.folder is not None
    assert fsframework.load_run(found.folder).estimates.keys() == made.estimates.keys()
    assert "all 8 results are the same" in repr(found)


def test_a_run_without_what_it_was_made_from_cannot_be_repeated(fsf: Fsf, tmp_path: Path) -> None:
    import torch

    class Pooled(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.mean(dim=(2, 3))

    own = fsframework.run(method="ncc", backbone=Pooled(), training={"epochs": 0}, **SMALL)
    with pytest.raises(PluginError, match="given in Python"):
        repeat_run(own, progress=False)
    for status in ("unfinished", "imported"):
        record = dataclasses.replace(own.record, status=status)
        record.save(own.folder)
        code, _, told = repeated(fsf, own.name)
        assert (code, status in told["stderr"]) == (2, True)
    fsframework.run(method="ncc", training={"epochs": 0}, **{**SMALL, "name": "source"})
    model = fsframework.run(
        model=tmp_path / "runs/source", **{**SMALL, "queries": 1, "name": "derived"}
    )
    assert repeated(fsf, model.name)[0] == 0
    shutil.rmtree(tmp_path / "runs/source")
    code, _, told = repeated(fsf, model.name)
    assert (code, "source" in told["stderr"]) == (2, True)


def test_a_record_asks_for_no_more_threads_than_there_are_cores() -> None:
    made = fsframework.run(method="ncc", training={"epochs": 0}, **SMALL)
    many = dataclasses.replace(made.record.environment, threads=100_000)
    dataclasses.replace(made.record, environment=many).save(made.folder)
    found = repeat_run(made.folder, progress=False)
    [threads] = [one for one in found.circumstances if one.name == "threads"]
    assert int(threads.repeated) <= (os.cpu_count() or 1)
