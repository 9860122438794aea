"""Completion of commands, options and names, by click's own classes and in a real bash."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from fsframework.cli.main import cli
from fsframework.components.registry import Registry
from tests.conftest import Fsf


def completed(*words: str) -> list[str]:
    """Return what is offered for the last word."""
    shell = ShellComplete(cli, {}, "fsf", "_FSF_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_commands_are_completed_with_their_summaries() -> None:
    shell = ShellComplete(cli, {}, "fsf", "_FSF_COMPLETE")
    assert [(i.value, i.help) for i in shell.get_completions([], "rec")] == [
        ("recipes", "List and show how methods are trained, and what to expect.")
    ]
    assert completed("ru") == ["run", "runs"]
    assert completed("data", "l") == ["list"]
    assert completed("run", "--samp") == ["--sampler"]


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ("--method", "method"),
        ("--sampler", "sampler"),
        ("--backbone", "backbone"),
        ("--detector", "detector"),
        ("--statistic", "statistic"),
        ("--dataset", "dataset"),
    ],
)
def test_options_that_name_a_plugin_offer_its_kind(option: str, kind: str) -> None:
    assert completed("run", option, "") == Registry().names(kind)
    first = Registry().names(kind)[0]
    assert first in completed("run", option, first[:2])


def test_plugins_are_offered_by_the_kind_given() -> None:
    assert completed("plugins", "show", "--kind", "statistic", "") == Registry().names("statistic")
    assert "renet" in completed("plugins", "check", "re")


def test_added_data_sets_are_offered(tmp_path: Path, fsf: Fsf) -> None:
    folder = tmp_path / "added"
    folder.mkdir()
    entry = {"plugin": "folder", "options": {"path": "/somewhere"}}
    (folder / "datasets.json").write_text(
        json.dumps({"schema_version": 1, "datasets": {"birds": entry}})
    )
    assert completed("run", "--dataset", "bi") == ["birds"]
    assert completed("data", "remove", "") == ["birds"]
    (folder / "datasets.json").write_text("damaged")
    assert "planted" in completed("run", "--dataset", "pl")
    assert completed("data", "remove", "") == []


def test_runs_are_offered(tmp_path: Path) -> None:
    for folder, name in (("runs", "renet-planted-1"), ("others", "maml-planted-2")):
        (tmp_path / folder / name).mkdir(parents=True)
        (tmp_path / folder / name / "run.json").write_text("{}")
    (tmp_path / "runs" / "no-run").mkdir()
    assert completed("runs", "show", "") == ["renet-planted-1"]
    assert completed("run", "--model", "re") == ["renet-planted-1"]
    assert completed("runs", "show", "--runs-dir", str(tmp_path / "others"), "") == [
        "maml-planted-2"
    ]
    assert completed("runs", "show", "./so") == ["./so"], "the shell completes it as a file"


def test_a_broken_command_completes_to_nothing(
    distribution: Callable[..., None], tmp_path: Path
) -> None:
    folder = tmp_path / "site" / "toy_broken"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise SystemExit(3)")
    (folder / "commands.toml").write_text('[hello]\nsummary = "Say hello."\ngroup = "Results"')
    distribution("toy-broken", {"fsframework.commands": {"hello": "toy_broken:hello"}})
    assert completed("hel") == ["hello"]
    assert completed("hello", "") == [], "what it takes is not known"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_printed(fsf: Fsf, shell: str) -> None:
    done = fsf("completion", shell)
    assert done.returncode == 0, done.stderr
    assert f"_FSF_COMPLETE={shell}_complete" in done.stdout
    assert fsf("completion", "tcsh").returncode == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "fsf"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fsframework "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(fsf completion bash)"\n'
        "COMP_WORDS=(fsf run --method ren) COMP_CWORD=3\n"
        "_fsf_completion fsf\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("renet\n", "")


def test_completion_imports_no_plugin() -> None:
    code = (
        "import os, sys; sys.argv = ['fsf']\n"
        "os.environ.update(_FSF_COMPLETE='zsh_complete', COMP_WORDS='fsf run --method ren', "
        "COMP_CWORD='3')\n"
        "from fsframework.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "print([m for m in sys.modules if m.partition('.')[0] in ('torch', 'numpy') "
        "or m.startswith('fsf_')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "plain\nrenet\n_\n[]\n"
