"""`fsf.run` and its kin: equal to the command line, for names, classes, instances and files."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fsframework as fsf
from fsf_samplers import RandomSampler
from fsframework.api.running import Runs
from fsframework.errors import FsfError, OptionError, RecordError
from fsframework.interfaces import Control, FewShotMethod, Statistic
from fsframework.values import ArmOutcomes, Estimate, FloatArray, Outcomes
from tests.conftest import Fsf

pytestmark = pytest.mark.usefixtures("shared_cache")

PLANTED = {"name": "planted", "size": 32, "n_per_class": 40}
SMALL: dict[str, Any] = {
    "dataset": PLANTED, "shot": 1, "queries": 5, "tasks": 30, "progress": False,
    "training": {"epochs": 1, "steps": 4, "validation_tasks": 5},
}  # fmt: skip
FLAGS = (
    "--dataset", "planted", "-o", "dataset.size=32", "-o", "dataset.n_per_class=40", "--shot", "1",
    "--queries", "5", "--tasks", "30", "-o", "training.epochs=1", "-o", "training.steps=4",
    "-o", "training.validation_tasks=5",
)  # fmt: skip


class Mine(FewShotMethod):
    """Score by the negative distance to class means, sharpened."""

    def __init__(self, *, power: float = 2.0) -> None:
        super().__init__()
        self.power = power

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        return -(torch.cdist(query, support.mean(dim=2)) ** self.power)


MINE = f"""
import torch
from torch import Tensor
from fsframework.interfaces import FewShotMethod

{inspect.getsource(Mine)}
"""


def values(run: fsf.Run) -> dict[str, float]:
    return {name: e.value for name, e in run.estimates.items()}


def test_a_call_gives_what_the_command_gives(fsf_: Fsf, tmp_path: Path) -> None:
    told = json.loads(fsf_("run", *FLAGS, "--method", "protonet", "--json").stdout)
    run = fsf.run(method="protonet", **SMALL)
    assert run.reused
    assert str(run.folder) == told["folder"]
    assert {n: e.to_json() for n, e in run.estimates.items()} == told["estimates"]
    assert run.outcomes["biased"].task_digest == run.tasks["biased"].digest
    assert run.record.arms["biased"].digest == run.tasks["biased"].digest


@pytest.fixture(name="fsf_")
def _fsf(fsf: Fsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fsf:
    monkeypatch.chdir(tmp_path)
    return fsf


def test_a_name_a_mapping_a_class_and_an_instance_are_one_run() -> None:
    from fsf_methods.metric import R2D2

    by_name = fsf.run(method={"name": "r2d2", "initial_alpha": 20.0}, **SMALL)
    by_class = fsf.run(method={"name": R2D2, "initial_alpha": 20.0}, **SMALL)
    by_instance = fsf.run(method=R2D2(initial_alpha=20.0), **SMALL)
    assert by_name.folder == by_class.folder == by_instance.folder
    assert not by_name.reused
    assert by_class.reused
    assert by_instance.reused
    assert by_name.record.method is not None
    assert by_name.record.method.options["initial_alpha"] == 20.0


def test_a_class_of_a_script_equals_the_same_code_in_a_file(fsf_: Fsf, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    run = fsf.run(method=Mine(power=1.0), **SMALL)
    told = json.loads(
        fsf_(
            "run", *FLAGS, "--plugin", tmp_path / "mine.py", "--method", "mine",
            "-o", "method.power=1.0", "--json",
        ).stdout
    )  # fmt: skip
    assert values(run) == {n: e["value"] for n, e in told["estimates"].items()}
    of_file = fsf.run(method={"name": "mine", "power": 1.0}, plugins=["mine.py"], **SMALL)
    assert str(of_file.folder) == told["folder"]
    assert values(fsf.run(method=Mine, **SMALL)) != values(run)


NOTEBOOK = """
import torch, fsframework as fsf
from fsframework.interfaces import FewShotMethod

def sharpness():
    return 1.0

CELL = '''
class Mine(FewShotMethod):
    "Nearest class mean."
    def scores(self, support, query):
        return {sign} * sharpness() * torch.cdist(query, support.mean(dim=2))
'''

def run():
    found = fsf.run(
        method=Mine, dataset={"name": "planted", "size": 32, "n_per_class": 40}, shot=1, queries=5,
        tasks=30, training={"epochs": 0}, progress=False,
    )
    print(found.reused, found.estimates["acc-random"].value)

exec(CELL.format(sign="-1"))
run()
run()
exec(CELL.format(sign="1"))
run()
exec(CELL.format(sign="-1"))
run()
def sharpness():
    return -1.0
run()
"""


def test_an_edited_cell_never_gives_yesterdays_result(tmp_path: Path) -> None:
    """Typed into an interpreter, as in a notebook, a class has no file that could be digested."""
    done = subprocess.run(
        [sys.executable, "-"], input=NOTEBOOK, cwd=tmp_path, env=dict(os.environ),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, same, turned, back, helper = (line.split() for line in done.stdout.splitlines())
    assert (first[0], same[0]) == ("False", "True")
    assert first[1] == same[1] == back[1]
    assert back[0] == "True"
    assert turned[0] == "False"
    assert turned[1] != first[1]
    # A function that the class calls has changed, the class has not.
    assert helper == ["False", turned[1]]


class Worst(Statistic):
    """Share of wrong answers of the worst class."""

    higher_is_better = False
    label = "Worst error"

    def __init__(self, *, scale: float = 1.0) -> None:
        self.scale = scale

    def per_task(self, outcomes: Outcomes) -> FloatArray:
        return self.scale * (1 - outcomes.class_accuracy.min(axis=1))

    def notes(self, outcomes: ArmOutcomes, gap: Estimate) -> list[str]:
        return [f"{len(outcomes.arms)} arms make {gap}"]


def test_statistics_take_options() -> None:
    run = fsf.run(method="ncc", statistics=["acc", {"name": Worst, "scale": 0.5}], **SMALL)
    full = fsf.estimate(run, Worst)
    half = run.estimates["worst-random"]
    assert half.value == pytest.approx(full["worst-random"].value / 2)
    gap = run.estimates["worst-gap"]
    assert gap.value == pytest.approx(run.estimates["worst-biased"].value - half.value)
    assert run.record.label(gap) == "Worst error gap = Worst error-A − Worst error-R"
    assert f"2 arms make {gap}" in run.record.notes


class Twice(RandomSampler):
    """The same tasks in both arms."""

    def control(self) -> Control | None:
        shape = {"n_way": self.n_way, "n_shot": self.n_shot, "n_query": self.n_query}
        return Control(RandomSampler(**shape), arms=("once", "again"), paired=True)


def test_a_sampler_of_a_script_brings_its_own_arms() -> None:
    run = fsf.run(method="ncc", sampler=Twice, **SMALL)
    assert list(run.tasks) == ["once", "again"]
    gap = run.estimates["acc-gap"]
    assert (gap.paired, gap.n_tasks, gap.value) == (True, 30, 0)
    assert (run.folder / "outcomes-once.parquet").exists()


def test_a_module_is_a_backbone_whose_weights_decide_the_run() -> None:
    pixels = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 8))
    assert not fsf.run(method="ncc", backbone=pixels, **SMALL).reused
    assert fsf.run(method="ncc", backbone=pixels, **SMALL).reused
    with torch.no_grad():
        pixels[2].weight[0].mul_(2)
    other = fsf.run(method="ncc", backbone={"name": pixels, "std": (0.5, 0.5, 0.5)}, **SMALL)
    assert not other.reused
    assert other.record.backbone is not None
    assert list(other.record.backbone.options["std"]) == [0.5, 0.5, 0.5]


def test_runs_are_rows_and_can_be_opened_by_name(tmp_path: Path) -> None:
    run = fsf.run(method="ncc", name="mine", **SMALL)
    assert run.folder.name == "mine"
    found = fsf.runs()
    assert [one.name for one in found] == ["mine"]
    assert found.rows()[0]["acc-random"] == run.estimates["acc-random"].value
    assert fsf.load_run("mi").estimates.keys() == run.estimates.keys()
    assert "mine" in repr(found)
    assert "<td>mine</td>" in found._repr_html_()
    # Each value shows itself as a table, or in a line.
    assert "wacc-gap" in repr(run.estimates)
    assert run._repr_html_().count("<tr>") == 1 + len(run.estimates)
    assert repr(run.tasks["random"]).startswith("<TaskSet: 30 random tasks, 5-way 1-shot")
    with pytest.raises(OptionError, match="holds another run; choose another name"):
        fsf.run(method="protonet", name="mine", **SMALL)
    with pytest.raises(RecordError, match="no run 'yours'"):
        fsf.load_run("yours")


def test_equal_tasks_have_no_interval_and_the_run_says_so(fsf_: Fsf) -> None:
    run = fsf.run(
        method="ncc", sampler="random", tasks=2, way=2, shot=5, queries=1, progress=False,
        dataset={"name": "planted", "n_per_class": 8, "size": 16}, training={"epochs": 0},
    )  # fmt: skip
    told = {name: str(one) for name, one in run.estimates.items()}
    assert told == dict.fromkeys(("acc-random", "wacc-random"), "100.0 % (no interval)")
    assert any("no interval of Acc, wAcc" in note for note in run.record.notes)
    shown = fsf_("runs", "show", run.name)
    assert shown.returncode == 0
    assert "± 0.0" not in shown.stdout


def test_errors_speak_of_arguments() -> None:
    table = fsf.AttributeTable.from_words(["a/0.png"], [["dog"]])
    cases: dict[str, dict[str, Any]] = {
        "unknown option 'mehtod' (did you mean 'method'?)": {"mehtod": "renet"},
        "unknown method 'renett' (did you mean 'renet'?)": {"method": "renett"},
        "attributes='words.txt': must end in .csv or .parquet": {"attributes": "words.txt"},
        "level must lie between 0 and 1": {"level": 2},
        "99-way tasks need 99 classes": {"way": 99},
        "method must be a name, a method class or an instance of one, not 3": {"method": 3},
        "folder:./images": {"dataset": Path("images")},
        "{'name': 'timm:NAME', 'weights': './n.pth'}": {"backbone": Path("n.pth")},
        "plugins=['mine.py']": {"sampler": "mine.py"},
        "of the type dict": {"attributes": {"a/0.png": ["dog"]}},
        "of the type list": {"attributes": [["dog"]]},
        "of the type Frame": {"attributes": Frame([{"key": "a/0.png"}])},
        "of the type AttributeTable": {"attributes": table},
    }
    for message, arguments in cases.items():
        with pytest.raises(FsfError) as caught:
            fsf.run(**{**SMALL, **arguments})
        assert message in str(caught.value)
        assert "--" not in str(caught.value)
    for call in (lambda words: fsf.pool(PLANTED, attributes=words), fsf.attributes):
        with pytest.raises(OptionError, match="of the type dict; .*from_words"):
            call({"a/0.png": ["dog"]})
    with pytest.raises(FsfError, match="must be a pool, as fsframework.pool"):
        fsf.draw("fewstab", "folder:./images")


def test_a_text_is_one_plugin_file() -> None:
    with pytest.raises(FsfError, match=r"mine\.py"):
        fsf.run(**SMALL, plugins="mine.py")


class Frame:
    """What the tests need of a data frame: rows from mappings, or columns of equal length."""

    def __init__(self, data: Any) -> None:
        self.data = data
        if isinstance(data, list):
            assert all(isinstance(row, dict) for row in data)
            self._n_rows = len(data)
        else:
            [self._n_rows] = {len(column) for column in data.values()}

    def __len__(self) -> int:
        return self._n_rows


def test_values_fit_on_a_screen_and_become_data_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, run = fsf.pool(PLANTED), fsf.run(method="ncc", **SMALL)
    other = fsf.run(method="protonet", **SMALL)
    compared = fsf.compare([run, other])
    assert pool.attributes is not None
    frames: list[tuple[Any, int]] = [
        (run.estimates, len(run.estimates)),
        (run.outcomes["biased"], run.outcomes["biased"].predictions.size),
        (run.tasks["biased"], run.tasks["biased"].support.size + run.tasks["biased"].query.size),
        (pool, len(pool)),
        (pool.attributes, len(pool)),
        (fsf.runs(), 2),
        (run, len(run.estimates)),
        (compared, len(compared.pairs)),
        (compared["wacc-gap"], len(compared["wacc-gap"].pairs)),
    ]
    third = run.tasks["biased"][2]
    assert len(third) == 1
    assert third.digest == run.tasks["biased"][2:3].digest == run.tasks["biased"][-28].digest
    assert len([*run.tasks["biased"]]) == 30
    assert repr(fsf.dataset(PLANTED)) == "<Planted: 4,000 images of 100 classes>"
    listed = repr(fsf.runs())
    assert "wacc-gap" in listed
    assert "acc-gap 1" not in listed.replace("wacc-gap", "")
    assert "backbone" not in listed
    alike = fsf.runs()
    other_backbone = fsf.run(method="ncc", backbone="conv32f", **{**SMALL, "tasks": 5})
    assert "conv32f" in repr(Runs([*alike, other_backbone]))
    # Not pandas itself, which Arrow would import in every process of these tests.
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=Frame))
    for value, n_rows in frames:
        assert len(value.to_pandas()) == n_rows
        assert len(repr(value).splitlines()) <= 40
        assert not hasattr(value, "_repr_html_") or value._repr_html_().count("<tr>") <= 40
    assert pool.to_pandas().data["words"][7] == pool.attributes.words_of(7) != ()
    numbers = np.asarray(run.estimates)
    assert numbers.dtype == np.float64
    assert numbers[0, 0] == next(iter(run.estimates.values())).value
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FsfError, match="pip install pandas"):
        run.estimates.to_pandas()
