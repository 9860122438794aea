"""Records: whole or absent, read back equal, merged only when they are the same run."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from fsframework.errors import RecordError
from fsframework.records import (
    ArmRecord,
    ComponentRecord,
    DataRecord,
    Environment,
    Epoch,
    PluginRecord,
    RunRecord,
    StageRecord,
    TrainedOn,
    TrainingRecord,
    list_records,
)
from fsframework.values import Contrast, Estimate, digest_of


def estimate(value: float, statistic: str = "acc", arm: str = "random") -> Estimate:
    low, high = value - 0.1, value + 0.1
    return Estimate(statistic, value, low, high, 0.95, "closed", False, "t", 10, 50, arms=(arm,))


def example_record() -> RunRecord:
    """Return a record of which nearly every part is filled."""
    return RunRecord(
        fingerprint="f" * 64,
        status="finished",
        created="2026-01-01T00:00:00+00:00",
        name="mine",
        given={"method": "protonet"},
        settings={"task_seed": 3, "training_seed": 4, "level": 0.95, "interval": "student-t"},
        origins={"task_seed": "command line", "training_seed": "default"},
        components={
            "dataset": ComponentRecord("folder", {"path": "birds"}, {}, "path"),
            "method": ComponentRecord("protonet", {"x": 1}, {"name": "command line"}),
            "sampler": ComponentRecord("fewstab"),
            "backbone": ComponentRecord("timm", {"model": "resnet18"}, {}, "model"),
        },
        stages=(StageRecord({"steps": 3, "init_from": None}, {"steps": "default"}),),
        plugins=(PluginRecord("method", "protonet", "m:P", "fsf-m", "1.0"),),
        environment=Environment(fsframework="0.1", threads=2, device="cuda:1"),
        arms={
            "random": ArmRecord("random", {"n_way": 5}, 3, "d1", 5, 1, 15, 600, (20, 30), "R"),
            "biased": ArmRecord("fewstab", {"n_way": 5}, 3, "d2", 5, 1, 15, 600, (20, 30), "A"),
        },
        contrast=Contrast("random", "biased"),
        digests={"weights": "w"},
        notes=("a note",),
        cautions=("a caution",),
        data=DataRecord("birds", 84, ("imagenet-1k",), (TrainedOn("cub", {"a": [1]}, "x"),)),
        training=TrainingRecord((Epoch(0, 1, 0.1, 2.5, None, 3.0),), 0.5, True, "quick"),
        labels={"acc": "Acc"},
        estimates={"acc-random": estimate(0.5)},
    )


@pytest.fixture
def record() -> RunRecord:
    return example_record()


def test_a_record_comes_back_as_it_was_however_its_json_is_laid_out(
    tmp_path: Path, record: RunRecord
) -> None:
    record.save(tmp_path)
    assert RunRecord.load(tmp_path) == record
    raw = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(dict(reversed(raw.items()))))
    assert RunRecord.load(tmp_path) == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw | {"schema_version": 1}, "schema_version 1 was written by an older"),
        (lambda raw: raw | {"schema_version": "x"}, "schema_version must be"),
        (lambda raw: {k: v for k, v in raw.items() if k != "status"}, "not what was written"),
        (lambda raw: {k: v for k, v in raw.items() if k != "digest"}, "not what was written"),
        (lambda raw: raw | {"colour": "blue"}, "not what was written"),
        (lambda raw: raw | {"notes": []}, "not what was written"),
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


_SEED, _USAGE = ("settings", "training_seed"), ("usage", "tokens")
_STAGE = ("stages", 0, "options")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *((("arms", name), {}) for name in ("../../x", "/etc/x", "a b", "x`y", "", "x\n")),
        *((("components", role, "name"), "x; rm -rf ~ #") for role in ("dataset", "method")),
        *((("plugins", 0, "files", name), "d") for name in ("../x.py", "/etc/x.py", "x/y.py", "x")),
        *((_SEED, wrong) for wrong in ([], "3", 2.5, -1, 10**30, math.nan)),
        *((("settings", "level"), wrong) for wrong in (None, 0, 1, "0.95", ...)),
        *((("settings", "attributes"), wrong) for wrong in (3, ["a"], {})),
        *((_USAGE, wrong) for wrong in (-1, math.inf, math.nan)),
        *((_STAGE, wrong) for wrong in ({}, {"steps": "3"}, {"steps": {"x": []}}, [])),
        (("given", "x=__import__('os')"), 1),
        (("components", "sampler"), ...),
        (("contrast", "tested"), "none"),
        (("arms", "random", "given_options"), ["none"]),
        (("arms", "random", "n_tasks"), -1),
        (("timings", "tasks"), -1),
        (("created",), "yesterday"),
        (("statistics", "a b"), "x"),
        (("environment", "threads"), -1),
    ],
)
def test_what_no_record_says_is_refused_where_it_is_read(
    tmp_path: Path, record: RunRecord, place: tuple[Any, ...], value: object
) -> None:
    record.save(tmp_path)
    raw = json.loads((tmp_path / "run.json").read_text())
    raw.pop("digest")
    node = raw
    for key in place[:-1]:
        node = node[key]
    if value is ...:
        del node[place[-1]]
    else:
        node[place[-1]] = value
    digest = digest_of("record", json.dumps(raw, sort_keys=True))
    (tmp_path / "run.json").write_text(json.dumps({**raw, "digest": digest}))
    with pytest.raises(RecordError, match=r"run\.json: cannot be read"):
        RunRecord.load(tmp_path)


def test_a_record_prints_its_status_and_its_estimates_if_it_has_any(record: RunRecord) -> None:
    bare = dataclasses.replace(record, status="unfinished", estimates={})
    assert repr(bare).endswith(": unfinished>")
    assert repr(record).endswith(f": finished; acc-random {record.estimates['acc-random']}>")


def test_listing_survives_a_broken_record(tmp_path: Path, record: RunRecord) -> None:
    record.save(tmp_path / "good")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordError, match="holds no run"):
        RunRecord.load(tmp_path / "empty")
    found = dict(list_records(tmp_path))
    assert found[tmp_path / "good"] == record
    assert isinstance(found[tmp_path / "broken"], RecordError)
    assert len(found) == 2


def test_a_component_is_called_by_its_argument_and_an_arm_by_its_symbol(record: RunRecord) -> None:
    assert record.backbone is not None
    nested = ComponentRecord("ifsl", {"base": {"name": "maml", "inner_lr": 0.1}}, argument="base")
    assert nested.called == "ifsl:maml"
    assert record.backbone.called == "timm:resnet18"
    assert record.tested == record.arms["biased"]
    assert record.label(record.estimates["acc-random"]) == "Acc-R"
    gap = dataclasses.replace(estimate(0.2), arms=("random", "biased"))
    assert record.label(gap) == "Acc gap = Acc-R − Acc-A"
    worse = dataclasses.replace(gap, higher_is_better=False)
    assert record.label(worse) == "Acc gap = Acc-A − Acc-R"
