"""Accuracies made elsewhere: what a file may hold, and the line that says why one is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from fsf_statistics.accuracies import Reading, TaskAccuracies, read_accuracies
from fsf_statistics.cli.import_accuracies import import_all
from fsf_statistics.sources import read_results
from fsframework.errors import DataError, OptionError
from fsframework.records import RunRecord
from fsframework.values import AccuracyOutcomes, Outcomes

SHARED = Path(__file__).parents[4] / "shared"


def tensor(path: Path, values: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(torch.tensor(values), path)
    return path


def table(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def digest_of_tasks(read: TaskAccuracies) -> str:
    return AccuracyOutcomes.of_named_tasks(read.values, read.task_set, read.scope).task_digest


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


def test_columns_of_a_file_share_its_tasks(tmp_path: Path) -> None:
    path = table(tmp_path / "five-shot.csv", "a,b\n0.5,0.25\n1,0\n")
    one, two = read_accuracies([path], Reading(scope="open"))
    assert (one.method, two.method) == ("a", "b")
    assert digest_of_tasks(one) == digest_of_tasks(two)
    first, _ = read_results([str(path)], tmp_path, Reading(scope="open"))
    assert first.outcomes["tasks"].scope == "open"
    assert two.values.tolist() == [0.25, 0.0]


def test_tasks_are_equal_where_name_number_and_scope_are(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "a\n0.5\n1\n")
    longer = table(tmp_path / "b.csv", "b\n0.5\n1\n1\n")

    def digest(file: Path, name: str, **more) -> str:
        return digest_of_tasks(read_accuracies([file], Reading(task_set=name, **more))[0])

    same = digest(path, "birds")
    assert same == digest(path, "birds")
    others = (digest(path, "cats"), digest(longer, "birds"), digest(path, "birds", scope="open"))
    assert same not in others


def test_a_layout_names_method_and_tasks(tmp_path: Path) -> None:
    for shot in ("5-shot", "10-shot"):
        tensor(tmp_path / shot / "clip" / "LR" / "cub.pt", [50.0, 75.0])
    read = read_accuracies([tmp_path])
    assert [(r.task_set, r.method) for r in read] == [
        ("5-shot/cub", "clip/LR"),
        ("10-shot/cub", "clip/LR"),
    ]
    other = read_accuracies([tmp_path], Reading(layout="tasks/method/-/tasks"))
    assert {r.method for r in other} == {"clip"}
    with pytest.raises(OptionError, match="has 4 parts below .* has 2"):
        read_accuracies([tmp_path], Reading("tasks/method"))
    with pytest.raises(OptionError, match="must be parts tasks, method, -"):
        read_accuracies([tmp_path], Reading("shot/method"))


def test_percent_or_share_is_one_for_all_files(tmp_path: Path) -> None:
    low = table(tmp_path / "low.csv", "low\n0.5\n1\n")
    high = table(tmp_path / "high.csv", "high\n50\n1\n")
    assert read_accuracies([low], Reading(task_set="t"))[0].values.tolist() == [0.5, 1.0]
    both = read_accuracies([low, high], Reading(task_set="t"))
    assert [r.values.tolist() for r in both] == [[0.005, 0.01], [0.5, 0.01]]
    assert read_accuracies([low], Reading(task_set="t", unit="percent"))[0].values.tolist() == [
        0.005,
        0.01,
    ]
    with pytest.raises(
        DataError, match=r"high.csv, line 2: .* in a share must be from 0 to 1, but .* is 50"
    ):
        read_accuracies([high], Reading(task_set="t", unit="share"))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a\n40\nnan\n", "line 3: the value of 'a' is not a number: 'nan'"),
        ("a\n40\n101\n", "must be from 0 to 100, but the value of 'a' is 101"),
        ("a\n-1\n40\n", "must be from 0 to 100, but the value of 'a' is -1"),
        ("a,b\n40,50\n40,\n", "line 3: the value of 'b' is missing"),
        ("a,b\n40,x\n", "line 2: the value of 'b' is not a number: 'x'"),
        ("a,b\n40,1_0\n", "line 2: the value of 'b' is not a number: '1_0'"),
        ("a,b\n40,\uff11\n", "line 2: the value of 'b' is not a number: '\uff11'"),
        ("a,b\n40,inf\n", "line 2: the value of 'b' is not a number: 'inf'"),
        ("a,b\n40\n", "line 2: 1 values for 2 columns"),
        ("40\n50\n", "the first line must name the columns"),
        ("a,a\n4,5\n", "the column 'a' appears twice"),
        ("a\n", "is empty"),
        ("", "is empty"),
    ],
)
def test_a_table_that_holds_no_accuracies(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(DataError) as caught:
        read_accuracies([table(tmp_path / "file.csv", text)], Reading(task_set="t"))
    assert part in str(caught.value)
    assert "file.csv" in str(caught.value)


def test_files_that_hold_no_accuracies(tmp_path: Path) -> None:
    def refusal(path: Path, error: type[Exception] = DataError) -> str:
        with pytest.raises(error) as caught:
            read_accuracies([path], Reading(task_set=None if error is OptionError else "t"))
        return str(caught.value)

    assert "task 1" in refusal(tensor(tmp_path / "nan.pt", [50.0, float("nan")]))
    assert "one dimension" in refusal(tensor(tmp_path / "flat.pt", [[1.0]]))
    assert "is empty" in refusal(tensor(tmp_path / "none.pt", []))
    torch.save({"a": torch.ones(2)}, tmp_path / "dict.pt")
    assert "must contain a tensor, not dict" in refusal(tmp_path / "dict.pt")
    assert "not a tensor saved" in refusal(table(tmp_path / "text.pt", "no tensor"))
    assert "not a Parquet file" in refusal(table(tmp_path / "text.parquet", "no table"))
    assert "no such file" in refusal(tmp_path / "absent.csv")
    assert "read from .pt" in refusal(tmp_path / "table.xlsx")
    pq.write_table(pa.table({"a": [0.5, None]}), tmp_path / "null.parquet")
    assert "row 1: the value of 'a' is missing" in refusal(tmp_path / "null.parquet")
    AccuracyOutcomes([0.5], "d", 0, False).save(tmp_path / "ours.parquet")
    assert "name the run instead of this file" in refusal(tmp_path / "ours.parquet")
    one = tensor(tmp_path / "one.pt", [50.0])
    assert "name their tasks with --task-set" in refusal(one, OptionError)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no file below it"):
        read_accuracies([tmp_path / "empty"])
    with pytest.raises(OptionError, match="named by --layout"):
        read_accuracies([tmp_path / "empty"], Reading(task_set="t"))


def test_unequal_lengths_and_doubles_within_a_set_of_tasks(tmp_path: Path) -> None:
    a = table(tmp_path / "a.csv", "a\n40\n50\n")
    b = table(tmp_path / "b.csv", "b\n40\n50\n60\n")
    with pytest.raises(DataError, match=r"b.csv: 3 accuracies for .* 't', but .*a.csv has 2"):
        read_accuracies([a, b], Reading(task_set="t"))
    (tmp_path / "x").mkdir()
    again = table(tmp_path / "x" / "a.csv", "a\n40\n50\n")
    with pytest.raises(DataError, match="both contain 'a'"):
        read_accuracies([a, again], Reading(task_set="t"))


def test_a_run_of_each_and_none_is_replaced(tmp_path: Path) -> None:
    path, runs = table(tmp_path / "t.csv", "a/b,c\n50,60\n70,80\n"), tmp_path / "runs"
    read = read_accuracies([path], Reading(scope="open", n_images=40))
    written, notes = import_all(read, runs, {})
    assert notes == []
    run = written[0]
    assert run.name.startswith("a-b-t-")
    record = RunRecord.load(run.folder)
    assert (record.status, list(record.arms), record.method) == ("imported", ["tasks"], None)
    assert record.imported is not None
    assert (record.imported.method, record.imported.source) == ("a/b", str(path.resolve()))
    found = record.estimates["acc-tasks"]
    assert (found.value, found.scope, found.n_tasks, found.n_images) == (0.6, "open", 2, 40)
    outcomes = Outcomes.load(run.folder / "outcomes-tasks.parquet")
    assert outcomes.task_accuracy.tolist() == [0.5, 0.7]
    again, notes = import_all(read, runs, {})
    assert [r.record.created for r in again] == [r.record.created for r in written]
    assert all(r.reused for r in again)
    assert notes == []
    table(path, "a/b,c\n50,60\n70,90\n")
    changed, notes = import_all(read_accuracies([path], Reading(scope="open")), runs, {})
    assert changed[1].folder != written[1].folder
    assert written[1].folder.exists()
    assert len(notes) == 1
    assert written[1].name in notes[0]


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
        import_all(read, tmp_path / "runs", {})
    assert list((tmp_path / "runs").iterdir()) == []


REAL = torch.tensor([0.5, 0.25])


@pytest.mark.parametrize(
    ("values", "part"),
    [
        (REAL + 0.1j, "real numbers, not complex64"),
        (REAL.to_sparse(), "not sparse or nested; save tensor.to_dense()"),
        (REAL > 0.3, "real numbers, not bool"),
        (REAL.to("meta"), "not one without values (device meta)"),
    ],
)
def test_a_tensor_of_another_sort_is_refused(
    values: torch.Tensor, part: str, tmp_path: Path
) -> None:
    torch.save(values, tmp_path / "a.pt")
    with pytest.raises(DataError) as caught:
        read_accuracies([tmp_path / "a.pt"], Reading(task_set="t"))
    assert part in str(caught.value)
    assert "a.pt" in str(caught.value)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_a_quantised_tensor_is_refused(tmp_path: Path) -> None:
    torch.save(torch.quantize_per_tensor(REAL, 0.1, 0, torch.quint8), tmp_path / "a.pt")
    with pytest.raises(DataError, match=r"not quantised \(torch.quint8\); save tensor.dequantize"):
        read_accuracies([tmp_path / "a.pt"], Reading(task_set="t"))


def test_a_gradient_and_a_low_precision_do_not_matter(tmp_path: Path) -> None:
    for name, values in (("a", REAL.clone().requires_grad_()), ("b", REAL.bfloat16())):
        torch.save(values, tmp_path / f"{name}.pt")
        (read,) = read_accuracies([tmp_path / f"{name}.pt"], Reading(task_set="t"))
        assert read.values.tolist() == [0.5, 0.25]


@pytest.mark.shared_data
def test_the_published_files_are_read_whole() -> None:
    folder = SHARED / "data" / "per_task_accuracies"
    if not folder.is_dir():
        pytest.skip(f"reference material is absent: {folder}")
    read = read_accuracies([folder], Reading(scope="open"))
    assert len(read) == 135
    assert len({digest_of_tasks(r) for r in read}) == 27
    assert {r.method for r in read} == {
        *("clip/LR", "dino/LR", "dinov2/LR", "dinov2/NCC", "dinov2/finetune")
    }
    assert max(float(np.max(r.values)) for r in read) == 1.0
