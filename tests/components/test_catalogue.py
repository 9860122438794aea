from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from fsf_tools import datasets
from fsf_tools.data._copies import changed_list
from fsframework.components.catalogue import Added, read_added
from fsframework.components.options import Given
from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.errors import DataError, FsfWarning, OptionError, PluginError
from tests.toy_published import write_toy


def put(name: str, entry: Added) -> None:
    with changed_list() as (entries, write):
        entries[name] = entry
        write()


def put_many(prefix: str) -> None:
    for i in range(20):
        put(f"{prefix}-{i}", Added("folder", {"path": "/x"}))


def registry(folder: Path) -> tuple[Registry, Path]:
    plugin, place = write_toy(folder)
    made = Registry()
    made.load_file(plugin)
    return made, place


def test_what_is_written_is_read() -> None:
    entry = Added(
        "folder", {"path": "/x"}, {"test": (2, 9)}, ("short",), "f", "2026-01-01", {"a": 1}
    )
    put("birds", entry)
    assert read_added() == {"birds": entry}


def test_nothing_is_lost_where_two_processes_add_at_once() -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=put_many, args=(p,)) for p in ("a", "b")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(read_added()) == 40


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "cannot be read"),
        ("[]", "damaged"),
        ('{"schema_version": 1, "datasets": {"a": 3}}', "damaged"),
        ('{"schema_version": 99}', "newer"),
    ],
)
def test_a_damaged_list_stops_only_added_names(tmp_path: Path, text: str, part: str) -> None:
    (tmp_path / "added").mkdir()
    (tmp_path / "added" / "datasets.json").write_text(text)
    with pytest.raises(DataError, match=part):
        resolve_component(Registry(), "dataset", "birds")
    with pytest.warns(FsfWarning, match=f"{part}.*added data sets are not known"):
        assert resolve_component(Registry(), "dataset", "planted").name == "planted"
    with pytest.warns(FsfWarning, match=part):
        assert "planted" in {row.name for row in datasets()}


def test_a_name_stands_for_plugin_and_options(tmp_path: Path) -> None:
    known, place = registry(tmp_path)
    put("birds", Added("toy-set", {"path": str(place), "per_class": 7}))
    found = resolve_component(known, "dataset", Given("birds", "command line"))
    assert (found.name, found.added_as) == ("toy-set", "birds")
    assert found.options == {"path": place, "per_class": 7}
    assert found.origins == {
        "name": "fsf data add: birds",
        "path": "fsf data add",
        "per_class": "fsf data add",
    }
    given = {"name": "birds", "per_class": Given("9", "command line")}
    assert resolve_component(known, "dataset", given).options["per_class"] == 9


def test_the_same_run_whether_named_or_spelt_out(tmp_path: Path) -> None:
    known, place = registry(tmp_path)
    put("birds", Added("toy-set", {"path": str(place)}))
    spelt = resolve_component(known, "dataset", f"toy-set:{place}")
    assert resolve_component(known, "dataset", "birds").fingerprint == spelt.fingerprint


def test_a_path_given_stands_above_what_was_added(tmp_path: Path) -> None:
    known, place = registry(tmp_path)
    put("toy-set", Added("toy-set", {"path": "/elsewhere", "per_class": 7}))
    found = resolve_component(known, "dataset", f"toy-set:{place}")
    assert found.options == {"path": place, "per_class": 20}, "other data have other options"
    assert found.added_as is None


def test_published_data_not_added_say_what_to_do(tmp_path: Path) -> None:
    known, _ = registry(tmp_path)
    with pytest.raises(OptionError, match=r"toy-set: not added yet; fsf data add toy-set PATH, or "
                       r"--dataset toy-set:PATH \(where to get it: example.org/toy\)"):  # fmt: skip
        resolve_component(known, "dataset", "toy-set")
    with pytest.raises(OptionError, match="write NAME:PATH"):
        resolve_component(known, "dataset", "folder")


def test_what_is_gone_is_one_sentence(tmp_path: Path) -> None:
    put("birds", Added("folder", {"path": str(tmp_path / "gone")}))
    with pytest.raises(DataError, match=r"birds was added from .*gone, which no longer exists"):
        resolve_component(Registry(), "dataset", "birds")
    put("birds", Added("no-such-plugin", {"path": str(tmp_path)}))
    with pytest.raises(PluginError, match="'birds', added by fsf data add: unknown dataset"):
        resolve_component(Registry(), "dataset", "birds")


def test_a_plugin_that_comes_later_does_not_take_the_name_over(tmp_path: Path) -> None:
    known, place = registry(tmp_path)
    put("toy-set", Added("folder", {"path": str(place)}))
    with pytest.raises(PluginError, match="fsf data remove toy-set"):
        resolve_component(known, "dataset", "toy-set")


def test_an_unknown_name_suggests_what_was_added() -> None:
    put("my-birds", Added("folder", {"path": "/x"}))
    with pytest.raises(PluginError, match="did you mean 'my-birds'"):
        resolve_component(Registry(), "dataset", "my-bird")


def test_other_kinds_have_nothing_to_do_with_it(tmp_path: Path) -> None:
    (tmp_path / "added").mkdir()
    (tmp_path / "added" / "datasets.json").write_text(json.dumps(3))
    assert resolve_component(Registry(), "sampler", "random").name == "random"
