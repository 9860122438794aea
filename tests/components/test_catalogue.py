"""Names of data sets that the user has added, wherever a data set is named."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

import fsframework as fsf
from fsf_tools import add_dataset, datasets
from fsframework.api.components import Component, Given, component
from fsframework.api.session import open_session
from fsframework.errors import DataError, FsfWarning, OptionError, PluginError
from tests.toy_published import write_toy


@pytest.fixture
def toy(tmp_path: Path) -> tuple[Path, Path]:
    """A plugin file, and a place with its data."""
    return write_toy(tmp_path)


def resolved(plugin: Path, request: object, **options: object) -> Component:
    session = open_session(plugins=[plugin], progress=False)
    return component(session.registry, "dataset", request, options)


def add_many(toy: tuple[Path, Path], prefix: str) -> None:
    for i in range(20):
        add_dataset("toy-set", toy[1], name=f"{prefix}-{i}", plugins=[toy[0]])


def test_nothing_is_lost_where_two_processes_add_at_once(toy: tuple[Path, Path]) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=add_many, args=(toy, prefix)) for prefix in ("a", "b")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    names = {f"{prefix}-{i}" for prefix in ("a", "b") for i in range(20)}
    assert names <= {row.name for row in datasets(plugins=[toy[0]])}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("{", "line 1"),
        ("[]", "object"),
        ('{"schema_version": 1, "datasets": {"a": 3}}', "object"),
        ('{"schema_version": 99}', "newer"),
    ],
)
def test_a_damaged_list_stops_only_added_names(tmp_path: Path, text: str, cause: str) -> None:
    listed = tmp_path / "added" / "datasets.json"
    listed.parent.mkdir()
    listed.write_text(text)
    with pytest.raises(DataError, match=f"{listed}.*{cause}.*add them again"):
        fsf.dataset("birds")
    with pytest.warns(FsfWarning, match=f"{cause}.*added data sets are not known"):
        assert fsf.dataset("planted", n_per_class=3, size=16).native_size == 16
    with pytest.warns(FsfWarning, match=cause):
        assert "planted" in {row.name for row in datasets()}


def test_a_name_stands_for_plugin_and_options(toy: tuple[Path, Path]) -> None:
    plugin, place = toy
    add_dataset("toy-set", place, name="birds", options={"per_class": 7}, plugins=[plugin])
    found = resolved(plugin, Given("birds", "command line"))
    assert (found.name, found.added_as) == ("toy-set", "birds")
    assert found.options == {"path": place, "per_class": 7}
    assert found.origins["name"] == "fsf data add: birds"
    assert {found.origins["path"], found.origins["per_class"]} == {"fsf data add"}
    assert resolved(plugin, "birds", per_class="9").options["per_class"] == 9
    spelt = resolved(plugin, f"toy-set:{place}", per_class=7)
    assert spelt.added_as is None
    assert spelt.fingerprint == found.fingerprint, "one run, whether named or spelt out"


def test_a_path_given_stands_above_what_was_added(toy: tuple[Path, Path], tmp_path: Path) -> None:
    plugin, place = toy
    (tmp_path / "other" / "toy").mkdir(parents=True)
    add_dataset("toy-set", tmp_path / "other", options={"per_class": 7}, plugins=[plugin])
    found = resolved(plugin, f"toy-set:{place}")
    assert found.options == {"path": place, "per_class": 20}, "other data have other options"
    assert found.added_as is None


def test_published_data_not_added_say_what_to_do(toy: tuple[Path, Path]) -> None:
    with pytest.raises(OptionError) as caught:
        resolved(toy[0], "toy-set")
    for part in ("fsf data add toy-set PATH", "--dataset toy-set:PATH", "example.org/toy"):
        assert part in str(caught.value)
    with pytest.raises(OptionError, match="write NAME:PATH"):
        resolved(toy[0], "folder")


def test_what_is_gone_is_one_sentence(toy: tuple[Path, Path]) -> None:
    plugin, place = toy
    add_dataset("toy-set", place, name="my-birds", plugins=[plugin])
    with pytest.raises(PluginError, match="'my-birds', added by fsf data add: unknown dataset"):
        fsf.dataset("my-birds")
    with pytest.raises(PluginError, match="did you mean 'my-birds'"):
        fsf.dataset("my-bird")
    place.rename(place.with_name("elsewhere"))
    with pytest.raises(DataError, match=f"my-birds was added from {place}.*fsf data remove"):
        resolved(plugin, "my-birds")


def test_a_plugin_that_comes_later_does_not_take_the_name_over(toy: tuple[Path, Path]) -> None:
    plugin, place = toy
    other = plugin.with_name("other.py")
    other.write_text(plugin.read_text().replace('"toy-set"', '"birds"'))
    add_dataset("toy-set", place, name="birds", plugins=[plugin])
    with pytest.raises(PluginError, match="fsf data remove birds"):
        resolved(other, "birds")


def test_a_class_of_a_script_is_itself_whatever_was_added(toy: tuple[Path, Path]) -> None:
    plugin, place = toy
    add_dataset("toy-set", place, name="birds", plugins=[plugin])
    cls = resolved(plugin, "birds").cls
    birds = type("Birds", (cls,), {"name": None})
    found = resolved(plugin, birds, path=place)
    assert (found.name, found.cls, found.added_as) == ("birds", birds, None)
