"""Nothing of the user's goes where a file or a record says, unless the user allows it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import fsframework as fsf_api
from fsframework.errors import OptionError
from fsframework.interfaces import FewShotMethod
from fsframework.records import RunRecord
from tests.chat_server import ChatServer

Fsf = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.usefixtures("shared_cache")
SMALL = (
    *("--sampler", "random", "--way", "2", "--shot", "1", "--queries", "1", "--tasks", "2"),
    *("--dataset", "planted", "-o", "dataset.n_per_class=4", "-o", "dataset.size=16"),
)
METHOD = 'name = "in-context-endpoint"\nmodel = "tiny"'
NAMED_IN = {
    "table": "[method]\n{method}\nurl = {url}",
    "name": 'method = {{name = {short}, model = "tiny"}}',
    "key": "[method]\n{method}\nurl = {url}\nkey_from = 'GITHUB_TOKEN'",
    "only the key": "[method]\n{method}\nkey_from = 'GITHUB_TOKEN'",
    "group": "[method]\nname = 'mine'\n[method.mine]\nlike = 'in-context-endpoint'\nmodel='m'\n"
    "url = {url}",
    "detector": "method = 'ncc'\n[detector]\nname = 'endpoint'\nmodel = 'tiny'\nurl = {url}",
    "stage": "method = 'ncc'\n[training]\nepochs = 1\n[training.method]\n{method}\nurl = {url}",
    "include": 'include = ["inner.toml"]',
}
OF_SWEEPS = {
    "grid": '[grid]\nmethod = ["ncc", {short}]',
    "grid of tables": '[grid]\nmethod = [{{name="in-context-endpoint", url={url}, model="m"}}]',
    "grid of stages": "method = 'ncc'\n[grid]\ntraining = [{{stages = [{{epochs = 1, method = "
    "{{name='in-context-endpoint', model='m', url={url}}}}}]}}]",
    "overrides": "method = 'ncc'\n[[overrides]]\nshot = 1\n[overrides.set.method]\n"
    "{method}\nurl = {url}\n[grid]\nshot = [1, 2]",
    "space": "search = 'optuna'\ntrials = 1\n[space]\nmethod = ['ncc', {short}]",
    "setup": "launcher = {{name = 'slurm', setup = ['touch stolen']}}\n[grid]\nshot = [1]",
    "sbatch": "launcher = {{name = 'slurm', sbatch = ['output=/x']}}\n[grid]\nshot = [1]",
    "cluster": "launcher = {{name = 'ray', address = '192.0.2.1:6379'}}\n[grid]\nshot = [1]",
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    for name in ("OPENAI_API_KEY", "GITHUB_TOKEN"):
        monkeypatch.setenv(name, "sk-a-secret-of-mine")
    with ChatServer(lambda body: "shape") as found:
        yield found


def write(path: Path, text: str, server: ChatServer) -> None:
    values = {"url": json.dumps(server.url), "method": METHOD}
    values["short"] = json.dumps(f"in-context-endpoint:{server.url}")
    path.write_text(text.format(**values))


@pytest.mark.parametrize("place", [*NAMED_IN, *OF_SWEEPS])
def test_a_file_that_reaches_out_is_refused_before_anything_is_sent(
    fsf: Fsf, tmp_path: Path, server: ChatServer, place: str
) -> None:
    write(tmp_path / "theirs.toml", {**NAMED_IN, **OF_SWEEPS}[place], server)
    write(tmp_path / "inner.toml", NAMED_IN["key"], server)
    # What a sweep sets itself is not set a second time by its options.
    given = [*SMALL[:4], *SMALL[6:]] if place in OF_SWEEPS else [*SMALL]
    command = "sweep" if place in OF_SWEEPS else "run"
    done = fsf(command, "--config", "theirs.toml", *given)
    assert (done.returncode, server.bodies) == (2, []), done.stderr
    assert "--allow-external" in done.stderr
    assert "sk-a-secret" not in done.stdout + done.stderr
    (tmp_path / "call").write_bytes((tmp_path / "theirs.toml").read_bytes())
    assert fsf(command, "--config", "call", *given).returncode == 2
    (tmp_path / "allowing.toml").write_text(
        f"allow_external = true\n{(tmp_path / 'theirs.toml').read_text()}"
    )
    assert fsf(command, "--config", "allowing.toml", *given).returncode == 2
    assert not server.bodies


@pytest.mark.parametrize("kind", ["method", "detector"])
def test_a_group_of_a_file_is_that_of_the_file_also_if_the_command_line_names_it(
    fsf: Fsf, tmp_path: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    name = "in-context-endpoint" if kind == "method" else "endpoint"
    group = f'[{kind}.robust]\nlike = "{name}:{server.url}"\nmodel = "m"\n'
    group += f'[{kind}.better]\nlike = "robust"\n'
    (tmp_path / "run.toml").write_text(group)
    (tmp_path / "grid.toml").write_text(f"{group}[grid]\nshot = [1, 2]")
    for chosen in ("robust", "better"):
        done = fsf("run", "--config", "run.toml", f"--{kind}", chosen, *SMALL)
        assert (done.returncode, server.bodies) == (2, []), done.stderr
        assert "--allow-external" in done.stderr
    done = fsf("sweep", "--config", "grid.toml", f"--{kind}", "robust", *SMALL[:4], *SMALL[6:])
    assert (done.returncode, server.bodies) == (2, []), done.stderr
    monkeypatch.setenv(f"FSF_{kind.upper()}", "robust")
    assert fsf("run", "--config", "run.toml", *SMALL).returncode == 2
    assert not server.bodies


def test_the_command_line_gives_or_allows_it(fsf: Fsf, tmp_path: Path, server: ChatServer) -> None:
    write(tmp_path / "theirs.toml", NAMED_IN["table"], server)
    for allowing in (("--allow-external",), ("-o", f"method.url={server.url}")):
        done = fsf("run", "--config", "theirs.toml", *SMALL, *allowing, "--dry-run")
        assert done.returncode == 0, done.stderr
    done = fsf(
        "sweep", "--method", f"ncc,in-context-endpoint:{server.url}", *SMALL[:4], *SMALL[6:],
        "-o", "method.model=tiny", "--dry-run",
    )  # fmt: skip
    assert "--allow-external" not in done.stderr


def test_a_record_is_as_little_trusted_as_a_file(
    fsf: Fsf, tmp_path: Path, server: ChatServer
) -> None:
    given = ("--method", f"in-context-endpoint:{server.url}", "-o", "method.model=tiny")
    assert fsf("run", *given, *SMALL, "--name", "theirs").returncode == 0
    [folder] = (tmp_path / "runs").glob("*/")
    n_sent = len(server.bodies)
    assert n_sent > 0
    for file in Path(os.environ["FSF_CACHE"]).rglob("*.jsonl"):
        file.unlink()  # the responses, so that any question would be sent again
    (tmp_path / "images" / "a").mkdir(parents=True)
    commands: list[tuple[str, ...]] = [
        ("run", "--model", str(folder), *SMALL, "--seed", "3"),
        ("run", "--config", str(folder / "run.json"), "--seed", "3"),
        ("sweep", "--config", str(folder / "run.json"), "--seeds", "3,4"),
        ("runs", "repeat", str(folder)),
        ("benchmark", "contexts", "--model", str(folder), "--method", "in-context-endpoint"),
    ]
    for command in commands:
        done = fsf(*command)
        assert done.returncode != 0, command
        assert re.search("allow.external", done.stderr), (command, done.stderr)
        assert len(server.bodies) == n_sent, command
    with pytest.raises(OptionError, match="allow_external=True"):
        fsf_api.load_run(folder).model()
    with pytest.raises(OptionError, match="allow_external=True"):
        fsf_api.run(config=folder / "run.json", seed=3, progress=False)
    assert fsf_api.load_run(folder).model(allow_external=True).name == "in-context-endpoint"
    assert fsf("runs", "repeat", str(folder), "--allow-external").returncode == 0
    assert len(server.bodies) > n_sent


WATCH = """
import os, sys
def watch(event, arguments, log=os.environ["SOCKET_LOG"]):
    if event.startswith("socket."):
        with open(log, "a") as file:
            file.write(f"{event} {arguments}\\n")
sys.addaudithook(watch)
"""


def test_a_local_run_opens_no_socket(
    fsf_process: Fsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, site = tmp_path / "sockets", tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(WATCH)
    monkeypatch.setenv("SOCKET_LOG", str(log))
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    done = fsf_process("run", "--method", "ncc", *SMALL)
    assert done.returncode == 0, done.stderr
    assert not log.exists(), log.read_text()
    (tmp_path / "other.py").write_text("import socket; socket.socket().close()")
    fsf_process("plugins", "check", "x", "--plugin", "other.py")
    assert "socket.__new__" in log.read_text(), "the watch sees what it is to see"


class Uploading(FewShotMethod):
    """A method of somebody else's that declares what it does."""

    external: ClassVar[dict[str, str]] = {"folder": "files are written there"}
    learns_from = "nothing"

    def __init__(self, *, folder: str = "none") -> None:
        super().__init__()
        self.folder = folder

    def scores(self, support: Any, query: Any) -> Any:
        return -((query[:, :, None] - support.mean(dim=2)[:, None]) ** 2).sum(dim=-1)


REPORTING = """
from fsframework.interfaces import Statistic

class Reporting(Statistic):
    'A statistic that declares what it does.'

    external = {"url": "numbers are sent there"}
    argument = "url"

    def __init__(self, *, url: str = "none") -> None:
        self.url = url

    def per_task(self, outcomes):
        return outcomes.task_accuracy
"""


@pytest.mark.parametrize("given", ['{name = "reporting", url = "/x"}', '{name = "reporting:/x"}'])
def test_a_list_of_statistics_is_that_of_its_file(tmp_path: Path, given: str) -> None:
    (tmp_path / "reporting.py").write_text(REPORTING)
    plugins = [tmp_path / "reporting.py"]
    for number, listed in enumerate((f'["acc", {given}]', f"[{given}]")):
        (tmp_path / f"{number}.toml").write_text(f"statistics = {listed}")
        with pytest.raises(OptionError, match="numbers are sent there"):
            fsf_api.describe(config=tmp_path / f"{number}.toml", plugins=plugins)
    described = fsf_api.describe(statistics=["acc", "reporting:/x"], plugins=plugins)
    assert described.options["statistics"][1]["url"] == "/x"


def test_any_class_can_declare_such_options(tmp_path: Path) -> None:
    small: dict[str, Any] = {
        "dataset": {"name": "planted", "n_per_class": 4, "size": 16}, "sampler": "random",
        "way": 2, "shot": 1, "queries": 1, "tasks": 2, "progress": False,
    }  # fmt: skip
    (tmp_path / "a.toml").write_text('[method]\nfolder = "/x"')
    (tmp_path / "usual.toml").write_text('[method]\nfolder = "none"')
    with pytest.raises(OptionError, match="files are written there"):
        fsf_api.run(method=Uploading, config=tmp_path / "a.toml", **small)
    fsf_api.describe(method=Uploading, config=tmp_path / "usual.toml", **small)
    for allowing in ({"allow_external": True}, {"method": {"name": Uploading, "folder": "/y"}}):
        given = {"method": Uploading, "config": tmp_path / "a.toml", **small, **allowing}
        assert fsf_api.describe(**given).options["method"]["folder"] in ("/x", "/y")
    record = fsf_api.run(method=Uploading(folder="/z"), **small).record
    assert isinstance(record, RunRecord)
