"""What the documentation shows works: its Python runs, its commands, variables and links exist."""

from __future__ import annotations

import importlib.util
import itertools
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from PIL import Image

from fsf_tools.new_plugin import template_of
from fsframework.cli.groups import InstalledEntry
from fsframework.cli.main import cli
from fsframework.components.conversion import parameters
from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.errors import RecordError
from fsframework.testing import check_component
from tests.conftest import Fsf
from tests.toys import image_folder

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
EXTEND = ROOT / "docs" / "extend"
ALL = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


TEMPLATE = re.compile(r"^```\{template\} (\w+)$", re.MULTILINE)
LONG = "# Takes "
"""With this begin blocks of Python that only the slow test runs."""


def python_of(page: Path, *, long: bool = False) -> str:
    """Return the Python of a page, each block on the lines that it has in the site."""
    text = TEMPLATE.sub(
        lambda found: f"```python\n{template_of(found[1])}", page.read_text(encoding="utf-8")
    )
    parts, end = [], 0
    for block in FENCE.finditer(text):
        if block[1] == "python" and (long or not block[2].startswith(LONG)):
            parts += ["\n" * text.count("\n", end, block.start(2)), block[2]]
            end = block.end(2)
    return "".join(parts)


def commands_of(page: Path) -> Iterator[tuple[str, bool]]:
    """Yield the `fsf` commands of a page, and whether each is whole or only mentioned."""
    text = page.read_text(encoding="utf-8")
    blocks = [b[2] for b in FENCE.finditer(text) if b[1] in ("", "sh", "bash", "console")]
    shown = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    mentioned = re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    for lines, whole in ((shown, True), (mentioned, False)):
        for part in (part for line in lines for part in line.split("&&")):
            command = part.strip().removeprefix("$ ").partition(" > ")[0]
            if command.startswith("fsf "):
                yield command, whole


def saved(page: Path, folder: Path, *, long: bool = False) -> Path:
    path = folder / f"{page.stem.replace('-', '_')}.py"
    path.write_text(python_of(page, long=long), encoding="utf-8")
    return path


def run_page(page: Path, folder: Path, *, long: bool = False) -> None:
    path = saved(page, folder, long=long)
    spec = importlib.util.spec_from_file_location(f"docs_{page.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as for a script: its classes are digested with its file
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]


@pytest.fixture
def beside_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the pages speak of: `images`, one folder per class, and `words.csv`."""
    image_folder(tmp_path / "images", [f"class{c}" for c in range(6)], 20, 32)
    words, rows = ["grass", "snow", "sofa", "road", "sand"], ["key,words"]
    for c, i in itertools.product(range(6), range(20)):
        rows.append(f"class{c}/{i}.png,{words[i % 5]};{words[(i + c) % 5]}")
    (tmp_path / "words.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "my_method.py").write_text(python_of(EXTEND / "method.md"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.one_in(3)
@pytest.mark.parametrize("page", [p for p in PAGES if python_of(p)], ids=named)
def test_python_runs(page: Path, beside_images: Path) -> None:
    run_page(page, beside_images)


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", pytest.param(ROOT / "docs" / "start.md", marks=pytest.mark.slow)],
    ids=named,
)
def test_commands_of_the_first_pages_run(page: Path, tmp_path: Path, fsf: Fsf) -> None:
    """One after the other, as a new user types them, with few tasks and short trainings."""
    images = resolve_component(
        Registry(), "dataset", {"name": "planted", "n_per_class": 32}
    ).create()
    for index in range(12 * 16):
        key = f"{images.labels[index * 2]:02}/{index}"
        path = tmp_path / "images" / f"{key}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images.image(index * 2)).save(path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    domains = ("art_painting", "cartoon", "photo", "sketch")
    names = [f"{one}/{name}" for one in domains for name in ("dog", "horse", "house", "person")]
    image_folder(tmp_path / "pacs.zip", names, 16, 32)
    for line in [line for line, whole in commands_of(page) if whole]:
        line = re.sub(r"--tasks \d+", "--tasks 20", line.replace("--seeds 0-2", "--seeds 0"))
        words = shlex.split(line, comments=True)[1:]
        if words[0] in ("run", "sweep") and "--config" not in words:
            words += [] if "--task-file" in words else ["--tasks", "20"]
            if "pacs:pacs.zip" in words:
                words += ["--way", "4", "--image-size", "32"]
            elif "folder:./images" not in words:
                words += ["-o", "training.epochs=1", "-o", "training.steps=3"]
                words += [] if "--task-file" in words else ["-o", "dataset.n_per_class=40"]
        done = fsf(*words)
        assert done.returncode == 0, (line, done.stderr)


TUTORIALS = [path.stem for path in sorted(ROOT.glob("docs/tutorials/*.py"))]
ON_SHARED_DATA = {"domains"}


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.shared_data) if name in ON_SHARED_DATA else name
        for name in TUTORIALS
    ],
)
def test_tutorials_run_with_few_tasks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    from sitepages import tutorials

    for needed, file in tutorials.NEEDED.get(name, {}).items():
        if not file.exists():
            pytest.skip(f"the reference data is not at {file}")
        Path(needed).symlink_to(file)
    path = tutorials.FOLDER / f"{name}.py"
    fewer = (
        (r"tasks([ =\": ]+)\d+", r"tasks\g<1>20"),
        (r"(\"epochs\": )\d+", r"\g<1>1"),
        (r"pacs.zip --sampler", "pacs.zip --image-size 64 --sampler"),
    )
    code = [cell for cell, _ in tutorials.outputs(path, fewer)]
    kept = tutorials.shown(path)
    assert set(kept) == {cell.key for cell in code}, "run docs/make_tutorials.py"
    pictures = re.findall(r"\]\(([\w-]+\.(?:png|svg))\)", path.read_text(encoding="utf-8"))
    assert [picture for picture in pictures if not Path(picture).exists()] == []


@pytest.mark.slow
def test_python_that_takes_long_runs(beside_images: Path) -> None:
    run_page(ROOT / "docs" / "guides" / "python.md", beside_images, long=True)


KINDS = sorted(set(Registry().kinds) - {"command"})
MANY_PROCESSES = {"launcher"}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind in MANY_PROCESSES)) for kind in KINDS],
)
def test_plugins_keep_their_contracts(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fsframework.testing.launcher._MANY", 3)  # each is a process
    registry = Registry()
    registry.load_file(saved(EXTEND / "method.md", tmp_path))
    page = EXTEND / f"{kind}.md"
    found = registry.load_file(saved(page, tmp_path)) if kind != "method" else registry.plugins()
    found = [plugin for plugin in found if plugin.version == "-"]
    assert kind in {plugin.kind for plugin in found}
    for plugin in found:
        name, kind = plugin.name, plugin.kind
        nested = {"base": "my-method"} if "base" in parameters(registry.class_of(plugin)) else {}
        component = resolve_component(registry, kind, {"name": name, **nested})
        results = check_component(component.create, kind)
        assert [(name, r.name, r.message) for r in results if r.outcome == "failed"] == []


@pytest.mark.parametrize(
    ("line", "whole"), sorted({command for page in ALL for command in commands_of(page)})
)
def test_command_parses(line: str, whole: bool) -> None:
    words = [word for word in shlex.split(line, comments=True)[1:] if word != "--verbose"]
    command: click.Command = cli
    context = click.Context(command, info_name="fsf")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"there is no command {name!r}"
        found = found.load() if isinstance(found, InstalledEntry) else found
        command, context = found, click.Context(found, context, info_name=name)
    if isinstance(command, click.Group) and not words:
        assert not whole, "a group of commands does nothing by itself"
        return
    try:
        # Parses every option and its type; runs nothing.
        command.make_context(context.info_name, words, parent=context.parent)
    except click.exceptions.Exit:
        pass  # --help and --version end here
    except RecordError:
        assert "--model" in line or "--init-from" in line  # a page names a run that its reader has
    except click.MissingParameter:
        assert not whole


def test_environment_variables() -> None:
    def declared(command: click.Command, context: click.Context) -> Iterator[str]:
        for parameter in command.params:
            if parameter.envvar is not None:
                yield str(parameter.envvar)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                inner = inner.load() if isinstance(inner, InstalledEntry) else inner
                yield from declared(inner, click.Context(inner, context))

    listed = re.findall(
        r"FSF_[A-Z]+", (ROOT / "docs" / "reference" / "files.md").read_text(encoding="utf-8")
    )
    assert set(listed) == set(declared(cli, click.Context(cli)))
