"""Accuracies made elsewhere: what a file may hold, and the line that says why one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from fsf_statistics.accuracies import Reading, TaskAccuracies, read_accuracies
from fsf_statistics.imported_runs import import_accuracies
from fsf_statistics.sources import read_results
from fsframework.errors import DataError, OptionError
from fsframework.records import RunRecord
from fsframework.values import AccuracyOutcomes, Outcomes
from tests.conftest import Fsf

T = Reading(task_set="t")


def tensor(path: Path, values: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(values if isinstance(values, (dict, torch.Tensor)) else torch.tensor(values), path)
    return path


def table(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def digest_of_tasks(read: TaskAccuracies) -> str:
    return read.outcomes.task_digest


def test_a_file_of_each_sort_gives_the_same_accuracies(tmp_path: Path) -> None:
    values = [40.0, 60.0, 100.0]
    pt = tensor(tmp_path / "mine.pt", values)
    csv = table(tmp_path / "mine.csv", "task,mine\n0,40\n1,60\n2,100\n")
    parquet = tmp_path / "mine.parquet"
    pq.write_table(pa.table({"task": [0, 1, 2], "mine": values}), parquet)
    for path in (pt, csv, parquet):
        (read,) = read_accuracies([path], Reading(task_set="birds"))
        assert (read.method, read.task_set, read.scope) == ("mine", "birds", "closed")
        assert read.values.tolist() == [0.4, 0.6, 1.0]


def test_tasks_are_equal_where_name_number_and_scope_are(tmp_path: Path) -> None:
    path = table(tmp_path / "five-shot.csv", "a,b\n0.5,0.25\n1,0\n")
    longer = table(tmp_path / "b.csv", "b\n0.5\n1\n1\n")

    def digest(file: Path, name: str, **more) -> str:
        read = read_accuracies([file], Reading(task_set=name, **more))
        assert len(set(map(digest_of_tasks, read))) == 1, "columns of a file share its tasks"
        return digest_of_tasks(read[0])

    others = (digest(path, "cats"), digest(longer, "birds"), digest(path, "birds", scope="open"))
    assert digest(path, "birds") == digest(path, "birds")
    assert digest(path, "birds") not in others
    first, second = read_results([str(path)], tmp_path, Reading(scope="open"))
    assert (first.label, second.label) == ("a", "b")
    assert first.outcomes["tasks"].scope == "open"


def test_a_layout_names_method_and_tasks(tmp_path: Path) -> None:
    for shot in ("5-shot", "10-shot"):
        tensor(tmp_path / shot / "clip" / "LR" / "cub.pt", [50.0, 75.0])
    read = [(r.task_set, r.method) for r in read_accuracies([tmp_path])]
    assert read == [("5-shot/cub", "clip/LR"), ("10-shot/cub", "clip/LR")]
    other = read_accuracies([tmp_path], Reading(layout="tasks/method/-/tasks"))
    assert {r.method for r in other} == {"clip"}
    for layout, part in (("tasks/method", "4 parts"), ("shot/method", "tasks, method, -")):
        with pytest.raises(OptionError, match=part):
            read_accuracies([tmp_path], Reading(layout))


def test_percent_or_share_is_one_for_all_files(tmp_path: Path) -> None:
    low = table(tmp_path / "low.csv", "low\n0.5\n1\n")
    high = table(tmp_path / "high.csv", "high\n50\n1\n")
    plain = table(tmp_path / "plain.csv", "plain\n50\n60\n")

    def read(*files: Path, **more) -> list[list[float]]:
        found = read_accuracies(list(files), Reading(task_set="t", **more))
        return [one.values.tolist() for one in found]

    assert read(low) == [[0.5, 1.0]]
    for files, part in (((low, high), "mixed"), ((low, plain), "unit may differ")):
        with pytest.raises(DataError, match=f"{part}.*--unit percent"):
            read(*files)
    assert read(low, high, unit="percent") == [[0.005, 0.01], [0.5, 0.01]]
    assert read(low, unit="percent") == [[0.005, 0.01]]
    with pytest.raises(DataError, match=r"high.csv, line 2: .* from 0 to 1, .* 50"):
        read(high, unit="share")


RNG = np.random.default_rng(0)
PERCENT = np.round(RNG.binomial(75, 0.6, 200) / 0.75, 6)


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        (PERCENT, "percent"),
        (PERCENT / 100, "share"),
        (np.append(PERCENT, 100.0000001), "percent"),
        (np.append(PERCENT / 100, [1.0000002, -1e-9]), "share"),
        (np.append(PERCENT, 0.0), "percent"),
        (np.arange(1, 300) / 3, "percent"),
        (np.where(np.arange(200) % 25, PERCENT / 5, 1.0), None),
        (np.where(np.arange(200) % 25, np.round(PERCENT / 5), 1.0), None),
        (np.append(PERCENT / 100, 1.2), None),
        (np.append(PERCENT, 0.6), None),
        (np.where(np.arange(200) % 2, PERCENT, PERCENT / 100), None),
        (PERCENT / 70, None),
    ],
)
@pytest.mark.parametrize("form", ["csv", "npy", "pt", "list.pt"])
def test_a_unit_is_read_or_refused_and_never_guessed_from_one_value(
    fsf: Fsf, tmp_path: Path, values: np.ndarray, unit: str | None, form: str
) -> None:
    path = tmp_path / f"a.{form}"
    if form == "npy":
        np.save(path, values)
    elif form == "csv":
        np.savetxt(path, values, header="acc", comments="")
    else:
        torch.save(torch.tensor(values) if form == "pt" else list(values), path)
    done = fsf("import", "accuracies", path.name, "--task-set", "t", "--json")
    if unit is None:
        assert done.returncode == 2
        assert "--unit" in done.stderr
        return
    [found] = json.loads(done.stdout)["runs"]
    scale = 100 if unit == "percent" else 1
    assert found["unit"] == unit
    mean = np.clip(values / scale, 0, 1).mean()
    [estimate] = found["estimates"].values()
    assert estimate["value"] == pytest.approx(mean)


def test_the_unit_is_said(fsf: Fsf, tmp_path: Path) -> None:
    np.savetxt(tmp_path / "a.csv", np.stack([PERCENT, PERCENT[::-1]], 1),
               header="a,b", comments="", delimiter=",")  # fmt: skip
    assert "as percent" in fsf("import", "accuracies", "a.csv").stdout
    assert "as percent" in fsf("compare", "a.csv").stdout


def test_rows_are_sorted_by_their_tasks(fsf: Fsf, tmp_path: Path) -> None:
    a = np.round(PERCENT / 110 + RNG.normal(0.02, 0.005, 200), 6)
    b = np.round(PERCENT / 110, 6)
    order = RNG.permutation(200)

    def write(name: str, rows: np.ndarray, tasks: np.ndarray, header: str = "task,acc") -> str:
        lines = [f"{task},{value:.6f}" for task, value in zip(tasks, rows, strict=True)]
        table(tmp_path / name, "\n".join([header, *lines]) + "\n")
        return name

    files = [
        write("b.csv", b, np.arange(200)),
        write("s.csv", b[order], order),
        write("i.csv", b[order], order, ",acc"),
    ]
    pq.write_table(pa.table({"acc": b[order], "task": order}), tmp_path / "p.parquet")
    write("a.csv", a, np.arange(200))
    shown = {
        fsf("compare", "A=a.csv", f"B={name}", "--same-tasks", "--json").stdout.replace(name, "")
        for name in [*files, "p.parquet"]
    }
    assert len(shown) == 1
    texts = [np.array([f"t{i:03}" for i in rows]) for rows in (np.arange(200), order)]
    read = [
        read_accuracies([tmp_path / write("t.csv", b[rows], names)], T)[0]
        for rows, names in zip((np.arange(200), order), texts, strict=True)
    ]
    assert len({(digest_of_tasks(one), one.values.tobytes()) for one in read}) == 1
    write("later.csv", b, np.arange(1, 201))
    for other in ("later.csv", "t.csv"):
        done = fsf("compare", "A=a.csv", f"B={other}", "--same-tasks")
        assert done.returncode == 2
        assert "different tasks" in done.stderr
        with pytest.raises(DataError, match=f"{other}.*column task"):
            read_accuracies([tmp_path / "a.csv", tmp_path / other], T)


def test_an_index_of_pandas_is_no_method_and_a_percent_sign_is_a_unit(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", ",a,b\n0,0.67%,50 %\n1,58.67%,0\n")
    a, b = read_accuracies([path])
    assert (a.method, a.unit, b.method) == ("a", "percent", "b")
    assert [*a.values, *b.values] == pytest.approx([0.0067, 0.5867, 0.5, 0])
    with pytest.raises(DataError, match="a.csv.*--unit"):
        read_accuracies([path], Reading(unit="share"))


REAL = torch.tensor([0.5, 0.25])


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("a.csv", "a\n40\nnan\n", "line 3: the value of 'a'"),
        ("a.csv", "a\n40\n101\n", "from 0 to 100"),
        ("a.csv", "a\n-1\n40\n", "from 0 to 100"),
        ("a.csv", "a,b\n40,50\n40,\n", "line 3: the value of 'b'"),
        ("a.csv", "a,b\n40\n", "line 2: 1 values for 2 columns"),
        ("a.csv", "40\n50\n", "first line"),
        ("a.csv", "task,a\n0,40\n1,50\nmean,45\n", "line 4"),
        ("a.csv", "task,a\nx,40\ny,50\nstd,45\n", "line 4"),
        ("a.csv", "task,a\n0,40\n1.5,45\n", "line 3"),
        ("a.csv", "task,a\n0,40\n,45\n", "line 3"),
        ("a.csv", "task,a\n0,40\n3,41\n0,45\n", "line 2 and line 4"),
        ("a.csv", ",a\n0,40\n0,45\n", "line 2 and line 3"),
        ("a.csv", "a,\n40,45\n", "column 2 has no name"),
        ("a.csv", "a\n40%\n45\n", "line 3"),
        *[
            ("a.csv", f"{name},a\n0.1,0.5\n", name)
            for name in ("episode", "index", "task_id", "seed", "step", "loss", "ci95", "acc_std")
        ],
        ("a.parquet", pa.table({"task": [0, 0], "a": [0.5, 0.6]}), "row 0 and row 1"),
        ("a.parquet", pa.table({"a": [0.5, float("nan")]}), "row 1: the value of 'a'"),
        ("a.csv", "a\n0,5\n", "written with a point"),
        ("a.npy", "no array", "not an array"),
        ("a.csv", "a,a\n4,5\n", "'a' appears twice"),
        ("a.csv", "a\n", "empty"),
        ("a.csv", "", "empty"),
        ("a.pt", [50.0, float("nan")], "task 1"),
        ("a.pt", [[1.0]], "one dimension"),
        ("a.pt", [], "empty"),
        ("a.pt", {"a": REAL}, "not dict"),
        ("a.pt", "no tensor", "not a tensor saved"),
        ("a.pt", REAL + 0.1j, "complex64"),
        ("a.pt", REAL.to_sparse(), "to_dense()"),
        ("a.pt", REAL > 0.3, "bool"),
        ("a.pt", REAL.to("meta"), "meta"),
        ("a.parquet", "no table", "not a Parquet file"),
        ("a.parquet", pa.table({"a": [0.5, None]}), "row 1: the value of 'a'"),
        ("a.parquet", AccuracyOutcomes([0.5], "d", 0, False), "name the run"),
        ("a.xlsx", None, ".pt"),
        ("a.csv", None, "no such file"),
    ],
)
def test_a_file_that_holds_no_accuracies(tmp_path: Path, name: str, content, part: str) -> None:
    path = tmp_path / name
    if isinstance(content, str):
        path.write_text(content)
    elif isinstance(content, pa.Table):
        pq.write_table(content, path)
    elif isinstance(content, AccuracyOutcomes):
        content.save(path)
    elif content is not None:
        tensor(path, content)
    with pytest.raises(DataError) as caught:
        read_accuracies([path], T)
    assert part in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_a_quantised_tensor_is_refused(tmp_path: Path) -> None:
    path = tensor(tmp_path / "a.pt", torch.quantize_per_tensor(REAL, 0.1, 0, torch.quint8))
    with pytest.raises(DataError, match=r"torch.quint8.*tensor.dequantize"):
        read_accuracies([path], T)


def test_a_gradient_and_a_low_precision_do_not_matter(tmp_path: Path) -> None:
    for values in (REAL.clone().requires_grad_(), REAL.bfloat16()):
        (read,) = read_accuracies([tensor(tmp_path / "a.pt", values)], T)
        assert read.values.tolist() == [0.5, 0.25]


def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    a = table(tmp_path / "a.csv", "a\n40\n50\n")
    b = table(tmp_path / "b.csv", "b\n40\n50\n60\n")
    (tmp_path / "x").mkdir()
    (tmp_path / "empty").mkdir()
    again = table(tmp_path / "x" / "a.csv", "a\n40\n50\n")
    one = tensor(tmp_path / "one.pt", [50.0])
    for files, reading, error, part in (
        ([a, b], T, DataError, r"b.csv: 3 accuracies .*a.csv has 2"),
        ([a, again], T, DataError, "both contain 'a'"),
        ([one], Reading(), OptionError, "--task-set"),
        ([tmp_path / "empty"], Reading(), DataError, "no file below it"),
        ([tmp_path / "empty"], T, OptionError, "--layout"),
    ):
        with pytest.raises(error, match=part):
            read_accuracies(files, reading)


def test_a_run_of_each_and_none_is_replaced(tmp_path: Path) -> None:
    path, runs = table(tmp_path / "t.csv", "a/b,c\n50,60\n70,80\n"), tmp_path / "runs"
    read = read_accuracies([path], Reading(scope="open", n_images=40))
    written, notes = import_accuracies(read, runs, {})
    assert notes == []
    run = written[0]
    assert run.name.startswith("a-b-t-")
    record = RunRecord.load(run.folder)
    assert (record.status, list(record.arms), record.method) == ("imported", ["tasks"], None)
    assert (record.imported.method, record.imported.source) == ("a/b", str(path.resolve()))
    found = record.estimates["acc-tasks"]
    assert (found.value, found.scope, found.n_tasks, found.n_images) == (0.6, "open", 2, 40)
    outcomes = Outcomes.load(run.folder / "outcomes-tasks.parquet")
    assert outcomes.task_accuracy.tolist() == [0.5, 0.7]
    again, notes = import_accuracies(read, runs, {})
    assert [r.record.created for r in again] == [r.record.created for r in written]
    assert (all(r.reused for r in again), notes) == (True, [])
    table(path, "a/b,c\n50,60\n70,90\n")
    changed, [note] = import_accuracies(read_accuracies([path], Reading(scope="open")), runs, {})
    assert changed[1].folder != written[1].folder
    assert written[1].folder.exists()
    assert written[1].name in note


def test_nothing_is_left_of_an_import_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = read_accuracies([table(tmp_path / "t.csv", "a,b\n50,60\n70,80\n")])
    saved = RunRecord.save

    def fails(self: RunRecord, folder: Path) -> None:
        if folder.name.startswith("b-"):
            raise OSError("the disk is gone")
        saved(self, folder)

    monkeypatch.setattr(RunRecord, "save", fails)
    with pytest.raises(OSError, match="the disk"):
        import_accuracies(read, tmp_path / "runs", {})
    assert list((tmp_path / "runs").iterdir()) == []
