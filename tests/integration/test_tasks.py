"""`fsf tasks`: whose tasks are written, what a file says of itself, and what the data allow."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from PIL import Image

import fsframework
from fsframework.values import TaskSet
from tests.conftest import Fsf

PLANTED = {"name": "planted", "n_per_class": 20, "size": 16}
DATA = ("--dataset", "planted", "-o", "dataset.n_per_class=20", "-o", "dataset.size=16")
CONTEXTS = ("-o", "sampler.column=background", "--queries", "2")
SHAPE = ("--way", "3", "--shot", "1", "--queries", "4", "--tasks", "10")


def made(fsf: Fsf, tmp_path: Path, *options: str) -> TaskSet:
    done = fsf("tasks", "make", "t.safetensors", *DATA, *SHAPE, *options, "--force")
    assert done.returncode == 0, done.stderr
    return TaskSet.load(tmp_path / "t.safetensors")


@pytest.mark.parametrize(
    ("options", "arm", "sampler"),
    [
        ((), "biased", "fewstab"),
        (("--arm", "biased"), "biased", "fewstab"),
        (("--arm", "random"), "random", "random"),
        (("--sampler", "random"), "random", "random"),
        (("--sampler", "context", *CONTEXTS), "ood", "context"),
        (("--sampler", "context", *CONTEXTS, "--arm", "iid"), "iid", None),
    ],
)
def test_the_arm_that_was_asked_for_is_written(
    fsf: Fsf, tmp_path: Path, options: tuple[str, ...], arm: str, sampler: str | None
) -> None:
    tasks = made(fsf, tmp_path, *options)
    assert tasks.arm == arm
    assert sampler is None or tasks.sampler == sampler
    assert (len(tasks), tasks.n_way, tasks.n_shot) == (10, 3, 1)


def test_the_tasks_are_those_that_a_run_evaluates(fsf: Fsf, tmp_path: Path) -> None:
    quick = ("--image-size", "16", "-o", "training.epochs=0", "--json")
    ran = fsf("run", "--method", "ncc", *DATA, *SHAPE, *quick)
    assert ran.returncode == 0, ran.stderr
    folder = Path(json.loads(ran.stdout)["folder"])
    for arm in ("random", "biased"):
        tasks = TaskSet.load(folder / f"tasks-{arm}.safetensors")
        assert made(fsf, tmp_path, "--arm", arm).digest == tasks.digest
        verified = fsf("tasks", "verify", str(folder / f"tasks-{arm}.safetensors"), *DATA)
        assert f"10 {arm} tasks, 3-way 1-shot, 4 queries per class" in verified.stdout


@pytest.mark.parametrize("split", ["test", "mine"])
def test_ways_queries_and_split_that_are_open_follow_the_data(
    fsf: Fsf, tmp_path: Path, split: str
) -> None:
    rows = [
        f"c{c}/{i}.png,c{c},{'red' if i % 2 else 'blue'};w{c},{split}"
        for c in range(3)
        for i in range(12)
    ]
    (tmp_path / "images.csv").write_text("\n".join(["path,label,words,split", *rows]) + "\n")
    data = ("--dataset", "csv:images.csv")
    few = ("--sampler", "random", "--shot", "1", "--tasks", "3")
    done = fsf("tasks", "make", "t.safetensors", *data, *few)
    assert done.returncode == 0, done.stderr
    assert "3 ways and 10 queries per class" in done.stderr
    assert ("no split test (its splits: mine)" in done.stderr) is (split == "mine")
    tasks = TaskSet.load(tmp_path / "t.safetensors")
    assert (tasks.n_way, tasks.n_query) == (3, 10), "no image is there, and none is needed"
    assert fsf("tasks", "verify", "t.safetensors", *data).returncode == 0
    kept = fsf("tasks", "make", "t.safetensors", *data, *few, "--seed", "1")
    assert (kept.returncode, "--force" in kept.stderr) == (2, True)
    assert TaskSet.load(tmp_path / "t.safetensors").digest == tasks.digest
    refused = fsf("tasks", "make", "u.safetensors", *data, *few, "--way", "4", "--queries", "5")
    assert refused.returncode == 2
    assert "3 classes of 12 images" in refused.stderr


def test_a_file_says_which_arm_and_whether_it_is_a_placebo(fsf: Fsf, tmp_path: Path) -> None:
    run = fsframework.run(
        method="ncc", dataset=PLANTED, way=3, shot=1, queries=4, tasks=10, placebo=True,
        image_size=16, training={"epochs": 0}, progress=False,
    )  # fmt: skip
    file = run.folder / "tasks-biased.safetensors"
    verified = fsf("tasks", "verify", str(file), *DATA)
    assert "10 biased placebo tasks" in verified.stdout, verified.stderr
    told = json.loads(fsf("tasks", "verify", str(file), *DATA, "--json").stdout)
    assert (told["arm"], told["placebo"], told["scope"]) == ("biased", True, "closed")
    assert fsf("tasks", "export", str(file), "t.jsonl", *DATA).returncode == 0
    line = json.loads((tmp_path / "t.jsonl").read_text().splitlines()[0])
    assert (line["arm"], line["placebo"]) == ("biased", True)
    pool = fsframework.pool(PLANTED)
    tasks = TaskSet.load(file)
    assert line["support"] == [[pool.keys[i] for i in way] for way in tasks.support[0]]
    assert line["query"] == [[pool.keys[i] for i in way] for way in tasks.query[0]]
    assert line["attributes"] == [tasks.words[i] for i in tasks.attribute[0]]
    assert line["classes"] == [pool.class_names[i] for i in tasks.classes[0]]
    assert line["relaxed"] == tasks.relaxed[0].tolist()
    again = fsf("tasks", "export", str(file), "t.jsonl", *DATA)
    assert again.returncode == 2
    assert "t.jsonl exists; give --force to replace it" in again.stderr
    shown = json.loads(fsf("tasks", "show", str(file), *DATA, "--json").stdout)
    assert (shown["arm"], shown["placebo"]) == ("biased", True)
    drawn = fsf("tasks", "show", str(file), *DATA)
    assert drawn.stdout == "task-0.png: biased task 0 of fewstab, images permuted (placebo)\n"


def test_a_picture_is_drawn_and_not_replaced_unasked(fsf: Fsf, tmp_path: Path) -> None:
    tasks = made(fsf, tmp_path)
    show = ("tasks", "show", "t.safetensors", *DATA, "--task", "2", "--output", "t.png")
    assert fsf(*show, "--shown-queries", "2").returncode == 0
    with Image.open(tmp_path / "t.png") as picture:
        # Margins, label, 1 support and 2 query images, the gap between; 3 rows of images.
        assert picture.width == 2 * 16 + 150 + 3 * (112 + 10) + 30
        assert picture.height > 3 * 112
        # The colours of the three ways are on their bars and words.
        colours = {colour for _, colour in picture.getcolors(1 << 24) or []}
    assert {(0, 114, 178), (213, 94, 0), (0, 122, 90)} <= colours
    refused = fsf(*show)
    assert refused.returncode == 2
    assert "t.png exists; give --force to replace it" in refused.stderr
    assert fsf(*show, "--force").returncode == 0
    # Task t depends on the seed and t only, so that it is the same drawn anew.
    anew = fsf("tasks", "show", *DATA, *SHAPE[:6], "--task", "2", "--json")
    keys = json.loads(anew.stdout)["ways"][0]["support"]
    assert json.loads(fsf(*show[:-2], "--json").stdout)["ways"][0]["support"] == keys
    assert len(tasks) == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "t.safetensors", "--task", "10"), "--task must be from 0 to 9, not 10"),
        (("show", "t.safetensors", "--arm", "random"), "--arm random"),
        (("show", "t.safetensors", "--output", "t.gif"), "t.gif"),
        (("make", "u.safetensors", "--arm", "randm"), "--arm randm must be one of random, biased"),
    ],
)
def test_a_task_that_cannot_be_shown_or_made(
    fsf: Fsf, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    made(fsf, tmp_path)
    done = fsf("tasks", *arguments, *DATA)
    assert done.returncode == 2
    assert not (tmp_path / "u.safetensors").exists()
    assert message in done.stderr


def test_all_tasks_and_their_interval_is_open(fsf: Fsf) -> None:
    size = ("-o", "dataset.size=16", "-o", "dataset.n_per_class=40")
    untrained = ("--method", "ncc", "--shot", "1", "-o", "training.epochs=0")
    quick = (*size, *untrained, "--sampler", "depleting", "--queries", "7")
    done = fsf("run", *quick, "--tasks", "all")
    assert done.returncode == 0, done.stderr
    assert "(open: " in done.stdout
    assert (
        "19 depleting tasks use 760 images, each once; 40 of the 800 are left over" in done.stdout
    )
    permuted = fsf("run", *quick, "--tasks", "all", "--placebo")
    assert permuted.returncode == 0, permuted.stderr
    assert "each once" not in permuted.stdout
    refused = fsf("run", *quick)
    assert refused.returncode == 2
    assert "ask for at most that many or for all" in refused.stderr
    assert fsf("run", *quick, "--tasks", "some").returncode == 2


def test_a_task_file_tells_how_many_tasks_and_what_is_left(fsf: Fsf, tmp_path: Path) -> None:
    args = ("--dataset", "planted", "-o", "dataset.n_per_class=40", "--sampler", "depleting")
    done = fsf("tasks", "make", "all.safetensors", *args, "--tasks", "all", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["scope"] == "open"
    assert told["distinct_images"] == told["tasks"] * 5 * 20
    assert told["distinct_images"] + told["images_left_over"] == 20 * 40
    assert len(TaskSet.load(tmp_path / "all.safetensors")) == told["tasks"]


@pytest.mark.parametrize("arm", ["../../x", "/etc/x", "a b", "x`y`", "x\n"])
def test_a_file_whose_arm_no_sampler_can_have_is_refused(
    fsf: Fsf, tmp_path: Path, arm: str
) -> None:
    tasks = made(fsf, tmp_path, "--sampler", "random")
    dataclasses.replace(tasks, arm=arm).save(tmp_path / "t.safetensors")
    before = {*tmp_path.rglob("*")}
    done = fsf("run", "--method", "ncc", *DATA, "--task-file", "t.safetensors")
    assert (done.returncode, "t.safetensors" in done.stderr) == (2, True)
    assert not [one for one in {*tmp_path.rglob("*")} - before if "runs" in one.parts]
