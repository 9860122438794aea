"""Records: whole or absent, read back equal, merged only when they are the same run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from fsframework.errors import RecordError
from fsframework.records import RunRecord, list_records
from fsframework.values import Estimate


def estimate(value: float, name: str = "acc-R") -> Estimate:
    return Estimate(name, value, value - 0.1, value + 0.1, 0.95, "closed", False, "t", 10, 50)


@pytest.fixture
def record() -> RunRecord:
    return RunRecord(
        fingerprint="f" * 64,
        status="finished",
        created="2026-01-01T00:00:00+00:00",
        given={"method": "protonet"},
        resolved={"method": {"name": "protonet"}},
        origins={"method": {"name": "command line"}},
        plugins=({"kind": "method", "name": "protonet"},),
        environment={"device": "cpu"},
        notes=("a note",),
        estimates={"acc-R": estimate(0.5)},
    )


def test_a_record_comes_back_as_it_was(tmp_path: Path, record: RunRecord) -> None:
    record.save(tmp_path)
    assert RunRecord.load(tmp_path) == record


def test_an_unknown_field_of_a_later_minor_version_is_ignored(
    tmp_path: Path, record: RunRecord
) -> None:
    record.save(tmp_path)
    raw = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**raw, "colour": "blue"}))
    assert RunRecord.load(tmp_path) == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw | {"schema_version": 99}, "schema_version 99 was written by a newer"),
        (lambda raw: raw | {"schema_version": "x"}, "is not a run record"),
        (lambda raw: {k: v for k, v in raw.items() if k != "status"}, "is damaged"),
        (lambda raw: raw | {"estimates": 3}, "is damaged"),
        (lambda raw: [raw], "is not a run record"),
    ],
)
def test_a_damaged_record_says_so(
    tmp_path: Path, record: RunRecord, change: object, message: str
) -> None:
    record.save(tmp_path)
    raw = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(change(raw)))  # type: ignore[operator]
    with pytest.raises(RecordError, match=message):
        RunRecord.load(tmp_path)


def test_a_folder_without_a_record_and_one_that_is_not_json(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"holds no run \(run.json is missing\)"):
        RunRecord.load(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RecordError, match="cannot be read"):
        RunRecord.load(tmp_path)


def test_merging_adds_but_does_not_overwrite(record: RunRecord) -> None:
    more = dataclasses.replace(record, estimates={"wacc-R": estimate(0.3, "wacc-R")})
    assert set(record.merged(more).estimates) == {"acc-R", "wacc-R"}
    other = dataclasses.replace(record, estimates={"acc-R": estimate(0.6)})
    with pytest.raises(RecordError, match="acc-R would be overwritten"):
        record.merged(other)
    assert record.merged(other, overwrite=True).estimates["acc-R"].value == 0.6


def test_runs_that_are_not_the_same_are_not_merged(record: RunRecord) -> None:
    other = dataclasses.replace(record, fingerprint="e" * 64)
    with pytest.raises(RecordError, match="are not the same run"):
        record.merged(other)


def test_listing_survives_a_broken_record(tmp_path: Path, record: RunRecord) -> None:
    record.save(tmp_path / "good")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    (tmp_path / "empty").mkdir()
    found = dict(list_records(tmp_path))
    assert found[tmp_path / "good"] == record
    assert isinstance(found[tmp_path / "broken"], RecordError)
    assert len(found) == 2
