"""Plugins that others wrote for contract 1, frozen as wheels: this core must take every one."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import fsf_reports
import fsframework
from fsframework.components.registry import Registry
from tests.conftest import Fsf

WHEELS = sorted((Path(__file__).parents[1] / "frozen" / "contract-1").glob("*.whl"))
KINDS = [wheel.name.removeprefix("frozen_").partition("-")[0] for wheel in WHEELS]
CHANGE = "a deliberate change"
RUN = (
    "run", "--method", "side-centre", "--backbone", "patches", "--dataset", "ramps", "--sampler",
    "placebo", "--statistic", "best-class", "--shot", "1", "--queries", "5", "--tasks", "20",
    "-o", "training.epochs=1", "-o", "training.steps=2",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which all wheels are installed."""
    folder = tmp_path_factory.mktemp("site")
    for wheel in WHEELS:
        zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture(autouse=True)
def _on_path(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process and its workers find the wheels, and forget their modules afterwards."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    yield
    for name in [one for one in sys.modules if one.startswith("frozen_")]:
        del sys.modules[name]


@pytest.fixture
def core_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, list[str]], None]:
    """Make this a later version, in which 0.2 has given some kinds their contract 2."""

    def become(version: str, kinds: list[str]) -> None:
        for kind in kinds:
            interface = Registry().kinds[kind].load()
            package = sys.modules[interface.__module__.partition(".")[0]]
            monkeypatch.setattr(interface, "_changes", {"0.2": CHANGE})
            monkeypatch.setattr(package, "__version__", version)

    return become


@pytest.fixture
def names(fsf: Fsf) -> dict[str, str]:
    """The name of the frozen plugin of each kind."""
    rows = json.loads(fsf("plugins", "list", "--json").stdout)
    return {r["kind"]: r["name"] for r in rows if r["distribution"].startswith("frozen-")}


def test_every_kind_has_a_frozen_plugin_which_is_listed(fsf: Fsf, names: dict[str, str]) -> None:
    rows = json.loads(fsf("plugins", "list", "--json").stdout)
    assert set(names) == {row["kind"] for row in rows} == set(KINDS)


# A check of a launcher starts twenty workers, each of which imports the framework.
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.slow if k == "launcher" else ()) for k in KINDS]
)
def test_it_keeps_its_contract(kind: str, fsf: Fsf) -> None:
    done = fsf("plugins", "check", "--distribution", f"frozen-{kind}")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert f"{kind} " in done.stdout


def test_a_run_a_report_a_figure_a_table_and_a_command_use_them(
    fsf: Fsf, tmp_path: Path, shared_cache: Path
) -> None:
    told = json.loads(fsf(*RUN, "--json").stdout)
    assert told["arms"] == ["one", "other"]
    assert {"best-class-one", "best-class-other", "best-class-gap"} <= set(told["estimates"])
    assert json.loads(fsf("tally", "--json").stdout) == {"finished": 1}
    output = tmp_path / "report.html"
    page = fsf_reports.report(told["folder"], output, sections=["counted"], writer="plain")
    assert "1 finished runs were counted." in page.html
    figure = fsf_reports.figure("arms", [told["folder"]], statistic="best-class")
    drawn = json.loads(fsf_reports.save_figure(figure, tmp_path / "arms.declared").read_text())
    assert drawn["columns"] == 1
    done = fsf("benchmark", "ways", "--queries", "5", *RUN[-4:], "--output", "ways.tsv")
    assert done.returncode == 0, done.stderr
    heads = (tmp_path / "ways.tsv").read_text().splitlines()[1]
    assert heads.split("\t")[:3] == ["method", "way", "Acc"]


def test_a_searcher_proposes_configurations(fsf: Fsf, shared_cache: Path) -> None:
    rate = ("--space", "training.learning_rate=1e-4:0.1:log")
    done = fsf("sweep", *RUN[1:], "--search", "even-steps", *rate, "--trials", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert "training.learning_rate" in done.stdout


def test_a_detector_with_its_selector_works_in_a_launcher(
    fsf: Fsf, tmp_path: Path, shared_cache: Path
) -> None:
    extract = ("attributes", "extract", "words.parquet", "--dataset", "ramps", "--detector")
    done = fsf(*extract, "top-or-bottom", "--launcher", "one-by-one")
    assert done.returncode == 0, done.stderr
    table = fsframework.AttributeTable.load(tmp_path / "words.parquet")
    assert set(table.words) == {"top", "bottom"}


def test_an_importer_makes_a_run(fsf: Fsf, tmp_path: Path) -> None:
    torch.save({"weight": torch.rand(4, 3, 4, 4), "bias": torch.zeros(4)}, tmp_path / "patches.pt")
    done = fsf("import", "patched", ".", "--json")
    assert done.returncode == 0, done.stderr
    [run] = fsframework.runs(tmp_path / "runs")
    assert (run.record.status, run.name.partition("-")[0]) == ("imported", "ncc")


@pytest.mark.parametrize("kind", KINDS)
def test_contract_1_works_with_a_warning_for_one_minor_version(
    kind: str, fsf: Fsf, names: dict[str, str], core_of: Callable[[str, list[str]], None]
) -> None:
    name = names[kind]
    call = (name,) if kind == "command" else ("plugins", "show", name, "--kind", kind)
    assert fsf(*call).stderr == ""
    for version in ("0.2.0", "0.2.7rc1"):
        core_of(version, [kind])
        done = fsf(*call)
        [note] = done.stderr.splitlines()
        assert done.returncode == 0
        for part in (repr(name), f"frozen-{kind} 1.0", "contract 1", CHANGE, "contract = 2"):
            assert part in note
    for version in ("0.3.0", "1.0.0"):
        core_of(version, [kind])
        done = fsf(*call)
        [line] = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (2, "")
        for part in (repr(name), "contract 1", version, CHANGE):
            assert part in line


def test_a_run_warns_once_of_each_plugin(
    fsf: Fsf, core_of: Callable[[str, list[str]], None], shared_cache: Path
) -> None:
    core_of("0.2.0", ["method", "view", "backbone", "dataset", "sampler"])
    done = fsf(*RUN)
    warned = [line for line in done.stderr.splitlines() if CHANGE in line and "frozen-" in line]
    assert done.returncode == 0
    assert len(warned) == len(set(warned)) == 5
