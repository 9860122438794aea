"""Files of sweeps that are damaged, or that somebody else has written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Fsf


@pytest.mark.parametrize(
    "line",
    [
        "", "{", "[]", "null", '{"status": 3}', '{"status": "finished", "run": "../../x"}',
        '{"status": "finished", "seconds": "x"}', '{"stage": ["x"], "done": "y"}', '{"text": 3}',
        '{"stage": "x"}',
    ],
)  # fmt: skip
def test_a_line_of_a_log_that_no_sweep_writes_says_nothing(
    fsf: Fsf, tmp_path: Path, line: str
) -> None:
    folder = tmp_path / "runs/sweeps"
    (folder / "logs").mkdir(parents=True)
    (folder / "mine.json").write_text(json.dumps({"abc": "one", "def": "two"}))
    (folder / "logs/abc.jsonl").write_text(f'{{"begins": "one"}}\n{line}\n')
    (folder / "logs/def.jsonl").write_text('{"status": "failed", "reason": "why"}\n')
    done = fsf("sweep", "status", "mine", "--json")
    assert done.returncode == 0, done.stderr
    states = {one["experiment"]: one for one in json.loads(done.stdout)["experiments"]}
    assert [states[name]["state"] for name in ("one", "two")] == ["to do", "failed"]


@pytest.mark.parametrize("text", ["{", "[]", '{"../../x": "one"}', '{"abc": 3}', '{"a/b": "one"}'])
def test_a_list_of_experiments_that_no_sweep_writes_is_named(
    fsf: Fsf, tmp_path: Path, text: str
) -> None:
    (tmp_path / "runs/sweeps").mkdir(parents=True)
    (tmp_path / "runs/sweeps/mine.json").write_text(text)
    done = fsf("sweep", "status", "mine")
    assert (done.returncode, "mine.json" in done.stderr) == (2, True)
