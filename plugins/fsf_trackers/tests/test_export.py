"""`fsf runs export`: what a tracker has of a run, read back through the tracker's own means."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fsframework as api
from fsf_trackers.entries import entry_of
from fsf_trackers.exporting import export_runs
from fsframework.errors import OptionError, RecordError, install_hint
from fsframework.records import RunRecord
from tests.conftest import Fsf

pytestmark = [
    # MLflow's own tables, since SQLAlchemy 2.1; nothing of ours uses the strategy.
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),
]
EXPORT = ("runs", "export")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished run of two epochs."""
    folder = tmp_path_factory.mktemp("made")
    api.run(
        method="protonet", sampler="fewstab", way=2, shot=1, queries=2, tasks=30, image_size=16,
        dataset={"name": "planted", "n_per_class": 8, "size": 16}, name="trained",
        task_seed=7, training_seed=8,
        training={"epochs": 2, "steps": 2, "validation_tasks": 2},
        progress=False, runs_dir=folder / "runs", cache_dir=folder / "cache",
    )  # fmt: skip
    return folder / "runs"


@pytest.fixture
def runs(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run, beside one that is unfinished and one that is damaged."""
    monkeypatch.chdir(tmp_path)  # where MLflow makes a folder for artifacts
    folder = tmp_path / "runs"
    for name in ("trained", "early", "torn"):
        shutil.copytree(made / "trained", folder / name)
    change(folder / "early", status="unfinished", fingerprint="0" * 64)
    (folder / "torn" / "run.json").write_text('{"schema_version": 2')
    return folder


def change(run: Path, **fields: Any) -> None:
    dataclasses.replace(RunRecord.load(run), **fields).save(run)


class Mlflow:
    """A store as MLflow's own client sees it."""

    def __init__(self, path: Path) -> None:
        from mlflow import MlflowClient

        self.uri = f"sqlite:///{path}"
        self.client = MlflowClient(self.uri)

    def all(self) -> list[Any]:
        found = self.client.get_experiment_by_name("fsframework")
        return list(self.client.search_runs([found.experiment_id]))

    def files(self, run: Any) -> set[str]:
        return {file.path for file in self.client.list_artifacts(run.info.run_id)}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, whose tables take MLflow seconds."""
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    Mlflow(path).client.search_experiments()
    return path


@pytest.fixture
def store(empty: Path, tmp_path: Path) -> Mlflow:
    return Mlflow(shutil.copy(empty, tmp_path / "mlflow.db"))


def test_mlflow_has_all_of_a_run_once(fsf: Fsf, runs: Path, store: Mlflow, tmp_path: Path) -> None:
    done = fsf(*EXPORT, "trained", "early", "torn", "none", "--to", "mlflow", "--uri", store.uri)
    assert done.returncode == 2
    assert done.stdout == "trained: new\n"
    early, torn, none, last = done.stderr.splitlines()
    assert early.startswith("early: not exported: ")
    assert early.endswith("early: is unfinished; run the same command again to resume")
    assert torn.startswith("torn: not exported: ")
    assert "run.json: " in torn
    assert none.startswith("none: not exported: no run 'none' in ")
    assert last == "fsf: 3 of 4 runs were not exported"

    (run,) = store.all()
    record = api.load_run("trained").record
    assert run.info.run_name == "trained"
    assert run.info.status == "FINISHED"
    tags, numbers = run.data.tags, run.data.metrics
    said = {name: tags[name] for name in ("method", "dataset", "status", "task_seed")}
    assert said == {
        "method": "protonet", "dataset": "planted", "status": "finished", "task_seed": "7",
    }  # fmt: skip
    assert tags["training_seed"] == "8"
    assert tags["fingerprint"] == record.fingerprint
    assert tags["version.fsf-methods"] == "0.1.0"
    assert tags["version.torch"] == record.environment.torch
    assert tags["mlflow.note.content"].split("\n\n") == list(record.notes) != []
    params = run.data.params
    assert (params["training.epochs"], params["dataset.n_per_class"]) == ("2", "8")
    for name, estimate in record.estimates.items():
        assert numbers[name] == estimate.value
        assert numbers[f"{name}.low"] == pytest.approx(estimate.low)
        assert numbers[f"{name}.high"] == pytest.approx(estimate.high)
    for name in ("loss", "learning_rate", "validation_accuracy"):
        steps = store.client.get_metric_history(run.info.run_id, name)
        wanted = [vars(epoch)[name] for epoch in record.training.history]
        assert [point.value for point in steps] == pytest.approx(wanted)
        assert [point.step for point in steps] == [1, 2]
    assert store.files(run) == {"run.json", "curve.csv"}
    copy = Path(store.client.download_artifacts(run.info.run_id, "run.json", str(tmp_path)))
    assert copy.read_bytes() == (runs / "trained" / "run.json").read_bytes()


def test_mlflow_is_updated(fsf: Fsf, runs: Path, store: Mlflow) -> None:
    export = (*EXPORT, "trained", "--to", "mlflow", "--uri", store.uri)
    assert fsf(*export).stdout == "trained: new\n"
    (first,) = store.all()
    assert fsf(*export).stdout == "trained: unchanged\n"
    assert fsf(*export, "--weights").stdout == "trained: updated\n"
    (run,) = store.all()
    assert run.info.run_id == first.info.run_id
    assert store.files(run) == {"run.json", "curve.csv", "weights.safetensors"}
    store.client.set_tag(run.info.run_id, "reviewed", "by me")
    store.client.delete_tag(run.info.run_id, "record")  # as a killed export leaves it
    assert fsf(*export).stdout == "trained: updated\n"
    (run,) = store.all()
    assert run.data.tags["reviewed"] == "by me"
    settings = json.loads((runs / "trained" / "run.json").read_text())["settings"]
    change(runs / "trained", settings={**settings, "level": 0.9}, notes=["a new note"])
    assert fsf(*export).stdout == "trained: updated\n"
    (run,) = store.all()
    assert run.data.params["level"] == "0.9"
    assert run.data.tags["mlflow.note.content"] == "a new note"


def test_wandb_has_all_of_a_run_once(
    fsf: Fsf, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if a detector had imported it: wandb must not advertise what traces its calls.
    monkeypatch.setitem(sys.modules, "openai", ModuleType("openai"))
    export = (*EXPORT, "trained", "--to", "wandb", "--dir", "tracking")
    done = fsf(*export)
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained: new\n", "")
    assert fsf(*export).stdout == "trained: unchanged\n"
    record = api.load_run("trained").record
    found = read_wandb(tmp_path / "tracking")
    assert found.run.run_id == record.fingerprint
    assert (found.run.display_name, found.run.project) == ("trained", "fsframework")
    assert found.run.notes.split("\n\n") == list(record.notes)
    assert {"protonet", "planted", "finished"} <= set(found.run.tags)
    config = {item.key: json.loads(item.value_json) for item in found.run.config.update}
    assert (config["training.epochs"], config["dataset.n_per_class"]) == (2, 8)
    assert (config["method"], config["task_seed"], config["training_seed"]) == (
        "protonet", "7", "8",
    )  # fmt: skip
    for name, estimate in record.estimates.items():
        assert found.summary[name] == estimate.value
        assert found.summary[f"{name}.low"] == estimate.low
        assert found.summary[f"{name}.high"] == estimate.high
    for step, epoch in enumerate(record.training.history, start=1):
        for name in ("loss", "learning_rate", "validation_accuracy"):
            assert found.history[step][name] == vars(epoch)[name]
    assert list(found.history) == [1, 2]
    assert found.files == {"run.json", "curve.csv"}
    change(runs / "trained", notes=["a new note"])
    assert fsf(*export, "--weights").stdout == "trained: updated\n"
    found = read_wandb(tmp_path / "tracking")
    assert found.run.notes == "a new note"
    assert found.files == {"run.json", "curve.csv", "weights.safetensors"}


class Offline:
    """An offline run of wandb: one folder, and the records in its file."""

    def __init__(self, place: Path) -> None:
        from wandb.proto.wandb_internal_pb2 import Record

        self.history: dict[int, dict[str, Any]] = {}
        self.summary: dict[str, Any] = {}
        self.files: set[str] = set()
        (path,) = place.glob("*.wandb")
        for raw in log_entries(path.read_bytes()):
            record = Record.FromString(raw)
            kind = record.WhichOneof("record_type")
            if kind == "run" and record.run.run_id:
                self.run = record.run
            elif kind == "history":
                items = record.history.item
                row = {(i.key or ".".join(i.nested_key)): json.loads(i.value_json) for i in items}
                self.history[int(record.history.step.num)] = row
            elif kind == "summary":
                for item in record.summary.update:
                    name = item.key or ".".join(item.nested_key)
                    self.summary[name] = json.loads(item.value_json)
            elif kind == "files":
                self.files |= {file.path for file in record.files.files}
        for name in self.files:
            assert (place / "files" / name).is_file()


def read_wandb(folder: Path) -> Offline:
    (place,) = (folder / "wandb").glob("offline-run-*")
    return Offline(place)


def log_entries(raw: bytes) -> Iterator[bytes]:
    """Yield the records of LevelDB's log format, in which wandb writes after 7 bytes of its own."""
    block, at, parts = 32768, 7, b""
    while at + 7 <= len(raw):
        if block - at % block < 7:
            at += block - at % block
        _, length, kind = struct.unpack("<IHB", raw[at : at + 7])
        parts += raw[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield parts
            parts = b""


def test_what_cannot_be_opened_is_one_sentence(
    fsf: Fsf, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.db").write_text("not a database, whatever its name says; " * 9)
    for options, sentence in (
        (("--to", "mlflow", "--dir", "x"), "fsf: --to mlflow takes --uri, not a folder\n"),
        (("--to", "wandb", "--uri", "x"), "fsf: --uri x is for --to mlflow only\n"),
        (("--to", "wandb", "--dir", "text.db"), "fsf: text.db: Not a directory\n"),
        (
            ("--to", "mlflow", "--uri", "sqlite:///text.db"),
            "fsf: --uri sqlite:///text.db: file is not a database\n",
        ),
    ):
        done = fsf(*EXPORT, "trained", *options)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", sentence)
    for name, command in (
        ("mlflow", install_hint("fsf-trackers[mlflow]")),
        ("wandb", "pip install wandb"),
    ):
        monkeypatch.setitem(sys.modules, name, None)
        done = fsf(*EXPORT, "trained", "--to", name)
        assert done.returncode == 2
        assert "is not installed" in done.stderr
        assert done.stderr.endswith(f"install it with: {command}\n")
    assert not (tmp_path / "wandb").exists()
    with pytest.raises(OptionError, match="to='excel': must be mlflow or wandb"):
        export_runs(["trained"], "excel")


def test_no_path_of_this_machine_is_in_an_entry(runs: Path, tmp_path: Path) -> None:
    home = "/home/john smith"
    record = RunRecord.load(runs / "trained")
    change(
        runs / "trained",
        settings={**record.settings, "attributes": f"{home}/words.csv"},
        notes=(*record.notes, f"{home}/words.csv: 2 images lack words"),
    )
    [done] = export_runs(["trained"], "wandb", directory=tmp_path)
    assert done.state == "new"
    sent = [file.read_bytes() for file in (tmp_path / "wandb").rglob("*") if file.is_file()]
    assert any(b"words.csv: 2 images lack words" in part for part in sent)
    assert not any(home.encode() in part for part in sent)


def test_a_call_takes_runs_and_names(runs: Path, tmp_path: Path) -> None:
    given = [api.load_run("trained"), runs / "early"]
    done = list(export_runs(given, "wandb", directory=tmp_path, project="thesis"))
    assert [(one.run, one.state) for one in done] == [("trained", "new"), ("early", "refused")]
    assert read_wandb(tmp_path).run.project == "thesis"
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"


def test_what_a_link_leads_to_is_not_copied_to_a_tracker(runs: Path) -> None:
    secret = runs.parent / "id_rsa"
    secret.write_text("a key")
    curve = runs / "trained/curve.csv"
    curve.unlink()
    curve.symlink_to(secret)
    with pytest.raises(RecordError, match=r"curve\.csv: is a link"):
        entry_of(api.load_run(runs / "trained"), weights=False)
