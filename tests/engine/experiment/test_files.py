"""Configuration files that are put together: includes, named groups, records of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fsframework as fsf
from fsframework.errors import FsfError, OptionError, RecordError
from tests.conftest import Fsf


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Write files by name; return the first."""

    def files(**texts: str) -> Path:
        paths = [tmp_path / f"{name}.toml" for name in texts]
        for path, text in zip(paths, texts.values(), strict=True):
            path.write_text(text)
        return paths[0]

    return files


def told(config: Path, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return every option of a run with its value, and where each came from."""
    found = fsf.describe(config=config, progress=False, **options)
    return dict(found.options), dict(found.origins)


def test_a_file_overrides_what_it_includes_and_a_later_file_the_earlier(write: Any) -> None:
    top = write(top='include = ["first.toml", "sub/second.toml"]\nshot = 2\n')
    (top.parent / "sub").mkdir()
    write(first='shot = 1\nway = 3\ntasks = 10\nseed = 4\n[dataset]\nname = "planted"\nsize = 16\n')
    (top.parent / "sub/second.toml").write_text(
        'include = ["third.toml"]\nway = 4\n[dataset]\nstrength = 0.5\n'
    )
    (top.parent / "sub/third.toml").write_text("way = 2\nqueries = 6\ntask_seed = 9\n")
    values, origins = told(top)
    shape = [(values["sampler"][n], origins["sampler"][n]) for n in ("n_shot", "n_way", "n_query")]
    assert shape == [(2, "top.toml"), (4, "second.toml"), (6, "third.toml")]
    assert (values["tasks"], origins["tasks"]) == (10, "first.toml")
    assert (values["dataset"]["size"], values["dataset"]["strength"]) == (16, 0.5)
    # A seed of a weaker file does not reach what a stronger one says more closely.
    assert (values["task_seed"], values["training_seed"]) == (9, 4)


def test_files_that_many_others_include_are_read_once(write: Any) -> None:
    def including(first: int) -> str:
        return f"include = {[f'f{i}.toml' for i in range(first, 27)]}\n"

    top = write(top=including(0), **{f"f{i}": f"{including(i + 1)}shot = {i}" for i in range(27)})
    assert told(top)[0]["sampler"]["n_shot"] == 26, "the last file that it includes"


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ({"top": 'include = ["top.toml"]'}, "top.toml"),
        ({"top": 'include = ["b.toml"]', "b": 'include = ["top.toml"]'}, "b.toml"),
        ({"top": 'include = ["gone.toml"]'}, "gone.toml"),
        ({"top": 'include = ["a\\u0000"]'}, r'\["base.toml"\]'),
        (
            {"top": 'include = ["0.toml"]'}
            | {str(i): f'include = ["{i + 1}.toml"]' for i in range(120)},
            "more than 100 files",
        ),
        ({"top": 'include = "b.toml"'}, r'\["base.toml"\]'),
        ({"top": 'include = ["b.toml"]', "b": "x = "}, "b.toml"),
        ({"top": 'include = ["b.toml"]', "b": '[training]\noptimizer = "os:system"'}, "b.toml"),
        ({"top": 'like = "renet"'}, "top.toml"),
        ({"top": '[method]\nname = "renet"\n[method.renet]\nlike = "can"'}, r"\[method.renet\]"),
        ({"top": '[method.a]\nlike = "b"\n[method.b]\nlike = "a"\n[method]\nname = "a"'}, "'a'"),
        ({"top": '[sampler.wide]\nlike = "random"\n[method]\nname = "wide"'}, "'wide'"),
    ],
)
def test_what_cannot_be_put_together_is_refused(write: Any, texts: Any, named: str) -> None:
    with pytest.raises(FsfError, match=named):
        told(write(**texts))


GROUPS = """
[method.steep]
like = "r2d2"
initial_alpha = 20.0

[method.steeper]
like = "steep"
initial_alpha = 40.0

[dataset.small]
like = "planted"
n_per_class = 8
size = 16
"""


def test_a_named_group_is_its_options_written_out(write: Any) -> None:
    file = write(top='include = ["groups.toml"]\nmethod = "steep"\n', groups=GROUPS)
    assert told(file)[0] == told(write(out='[method]\nname = "r2d2"\ninitial_alpha = 20.0\n'))[0]
    values, origins = told(file, method="steeper", dataset={"name": "small", "size": 24})
    assert (values["method"]["name"], values["method"]["initial_alpha"]) == ("r2d2", 40.0)
    assert origins["method"]["name"] == origins["method"]["initial_alpha"] == "groups.toml"
    assert [values["dataset"][name] for name in ("name", "n_per_class", "size")] == [
        *("planted", 8, 24),
    ]
    values, _ = told(file, **{"method": "ncc", "training.method": "steep"})
    assert values["training"][0]["method"]["initial_alpha"] == 20.0
    top = write(mine="[method]\nname = 'steep'\n[method.steep]\nlike = 'maml'\n")
    assert told(top)[0]["method"]["name"] == "maml"


def test_a_run_is_the_same_however_its_options_are_written(
    write: Any, fsf: Fsf, tmp_path: Path
) -> None:
    common = 'sampler = "random"\ntasks = 12\nway = 2\nshot = 1\nqueries = 2\n'
    data = '[dataset]\nname = "planted"\nn_per_class = 8\nsize = 16\n'
    method = '[method]\nname = "r2d2"\ninitial_alpha = 20.0\n[training]\nepochs = 0\n'
    write(flat=common + data + method)
    write(
        parts='include = ["base.toml", "groups.toml"]\nmethod = "steep"\ndataset = "small"\n',
        base=common + "[training]\nepochs = 0\n",
        groups=GROUPS,
    )
    first = fsf("run", "--config", "flat.toml")
    assert first.returncode == 0, first.stderr
    [folder] = (tmp_path / "runs").iterdir()
    for config in ("parts.toml", str(folder / "run.json")):
        again = fsf("run", "--config", config)
        assert "already finished" in again.stderr, again.stderr
    other = fsf("run", "--config", str(folder / "run.json"), "--dry-run", "--shot", "2")
    assert other.returncode == 0, other.stderr
    rows = [line.split() for line in other.stdout.splitlines()]
    assert ["dataset.n_per_class", "8", "run.json"] in rows
    assert ["sampler.n_shot", "2", "command", "line"] in rows


def test_a_record_as_configuration_must_be_one(write: Any, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RecordError, match=r"run\.json"):
        told(tmp_path / "run.json")
    with pytest.raises(OptionError, match="no such file"):
        told(tmp_path / "gone.toml")


def test_a_file_may_spell_options_as_the_command_line_does(write: Any) -> None:
    flags = 'image-size = 24\nstatistic = ["acc"]\ninit-from = "w.safetensors"\n'
    names = 'image_size = 24\nstatistics = ["acc"]\n[training]\ninit_from = "w.safetensors"\n'
    (write(flags=flags).parent / "w.safetensors").touch()
    assert told(write(flags=flags))[0] == told(write(names=names))[0]
