"""Task sets and trained models under a name, in packages that anyone can install.

A package has a folder for each, called ``DATA/NAME``: that of a run, with its record. It lists its
module in the entry-point group ``fsframework.files``.
"""

from __future__ import annotations

import dataclasses
import keyword
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import packages_distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fsf_statistics import PathNames
from fsframework import Description, Run, load_run
from fsframework.api.imports import ArmRecord, DataRecord, RunRecord, save_import
from fsframework.api.opened import draw_tasks, read_thumbnails
from fsframework.api.running import packaged_runs
from fsframework.api.session import Workspace
from fsframework.errors import DataError, FsfError, OptionError, RecordError, argument
from fsframework.values import atomic_write, digest_of, open_file

__all__ = [
    "check_no_links",
    "copy_files",
    "datasheet",
    "installed_from",
    "is_version",
    "list_code_files",
    "publish_model",
    "publish_tasks",
    "staging",
    "without_place",
]

_NAME = r"[a-z0-9]+(-[a-z0-9]+)*/[a-z0-9]+(-[a-z0-9]+)*"
_VERSION = r"-v[1-9][0-9]*"
_MOST_CODE = 1 << 24
"""Bytes of a plugin's file."""


def publish_tasks(
    name: str,
    package: Path,
    described: Description,
    *,
    licence: str,
    about: Sequence[str] = (),
) -> Run:
    """Draw the tasks of every arm and write them into a package, with their images' keys and words.

    Args:
        name: ``DATA/NAME-vN``.
        package: folder of the package, which is begun if it does not exist.
        described: whose tasks are drawn; see ``fsframework.describe``.
        licence: of the keys and words.
        about: what a reader must know, such as where the words are from.

    Raises:
        DataError: this package or an installed one has the name already: what is published never
            changes; or the folder is no such package.
        OptionError: the name is malformed, or the licence is empty.
    """
    licence, about = _line(licence, "licence"), [_line(one, "about") for one in about]
    target = _target(name, package, "DATA/NAME-vN", "cub/fewstab-5w1s-v1", _NAME + _VERSION)
    experiment, session = described.experiment, described.session
    arms, images = draw_tasks(experiment, session)
    pool, settings = images.pool, experiment.settings
    words, thumbnails = pool.attributes, read_thumbnails(images.dataset, images.split)
    unread = "" if thumbnails else "images were not read: others of the same names are not noticed"
    record = RunRecord(
        fingerprint=digest_of("task set", *(tasks.digest for tasks in arms.values())),
        status="finished",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        name=name,
        settings={"split": images.split, "tasks": settings.tasks, "task_seed": settings.task_seed},
        arms={
            arm: ArmRecord.of(tasks, images.pool.class_sizes, arms.symbols.get(arm, ""))
            for arm, tasks in arms.items()
        },
        contrast=arms.contrast,
        digests={
            "data": images.dataset.fingerprint,
            "pool": pool.fingerprint,
            **({"attributes": words.fingerprint} if words else {}),
        },
        data=DataRecord(thumbnails=thumbnails),
        notes=(*images.reasons, *about, *filter(None, (unread,)), f"licence: {licence}"),
    )

    def write(folder: Path) -> None:
        arms.save(folder)
        pool.save(record.images_file(folder))
        if words is not None:
            words.save(record.words_file(folder))

    roles = {"dataset": experiment.dataset, "sampler": experiment.sampler}
    with staging(target, package) as folder:
        there = dataclasses.replace(session, workspace=Workspace(folder, session.workspace.cache))
        made = save_import(there, "set", record, write, roles=roles)
        without_place(made.record).save(made.folder)
        _begin(package, target)
        made.folder.rename(target)
    _list(package, name, licence, [tasks.digest for tasks in arms.values()])
    return load_run(target)


def without_place(record: RunRecord) -> RunRecord:
    """Return a record without the folders that its files had on this machine, notes included.

    Files keep their names, and what is in an installed package the name that it has there. The
    argument of the data set is left out: a user has the data somewhere else.
    """
    names = PathNames({str(folder): _name_of(folder) for folder in packaged_runs()})
    shared = names.in_record(record)
    components = dict(shared.components)
    if (found := components.get("dataset")) is not None:
        kept = [
            {name: value for name, value in part.items() if name != found.argument}
            for part in (found.options, found.origins)
        ]
        components["dataset"] = dataclasses.replace(
            found, options=kept[0], origins=kept[1], added_as=None
        )
    trained = tuple(dataclasses.replace(one, place="") for one in shared.data.trained_on)
    data = dataclasses.replace(shared.data, trained_on=trained)
    return dataclasses.replace(shared, components=components, data=data)


def _name_of(place: Path) -> str:
    """Return the name of a folder or file, which in an installed package is ``DATA/NAME``."""
    return "/".join(place.parts[-2:]) if place in packaged_runs() else place.name


def publish_model(name: str, package: Path, run: Run, *, licence: str) -> Run:
    """Copy the record and the weights of a finished run into a package.

    Args:
        name: ``DATA/NAME``; ``package`` as in ``publish_tasks``.
        licence: of the weights.

    Raises:
        DataError: weights are missing or not those of the run; as in ``publish_tasks``.
        OptionError: the name is malformed, the licence is empty, or the run holds no model.
        RecordError: the run is not finished.
    """
    licence = _line(licence, "licence")
    target = _target(name, package, "DATA/NAME", "cub/protonet", _NAME)
    record = without_place(run.record)
    if record.status == "unfinished" or "weights" not in record.digests:
        raise RecordError(f"{run.folder}: is not finished, or has no weights")
    notes = (*record.notes, f"licence: {licence}")
    record = dataclasses.replace(record, name=name, notes=notes)
    with staging(target, package) as folder:
        made = Run(folder / "run", record)
        copy_files(run, made.folder, {"weights.safetensors": "", **list_code_files(record)})
        record.save(made.folder)
        _check_weights(made, run)
        _begin(package, target)
        made.folder.rename(target)
    _list(package, name, licence, [record.digests["weights"]])
    return load_run(target)


def _check_weights(made: Run, run: Run) -> None:
    """Check that a model's weights are those of its run.

    Raises:
        DataError: they are not.
    """
    try:
        made.model(device="cpu")
    except DataError as error:
        raise DataError(str(error).replace(str(made.folder), str(run.folder))) from None


def copy_files(run: Run, folder: Path, names: Mapping[str, str]) -> None:
    """Copy files of a run into a folder.

    Args:
        names: digest of each file by its name in the run's folder, such as ``code/mine-1a2b.py``;
            empty where the caller checks the copy.

    Raises:
        DataError: a file is missing or not the one that the run wrote, or a link.
    """
    for name, digest in names.items():
        file, target = run.folder / name, folder / name
        check_no_links(run.folder, file.parent, file)
        try:
            with open_file(file) as stream:
                content = stream.read(_MOST_CODE if digest else -1)
        except OSError as error:
            raise DataError(f"{file}: cannot be copied ({error.strerror})") from None
        if digest and digest_of(content) != digest:
            raise DataError(f"{file}: is not what the run wrote")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def list_code_files(record: RunRecord) -> dict[str, str]:
    """Return the digests of the plugin files that a run has copies of, by their names in it."""
    return {f"code/{name}": one for plugin in record.plugins for name, one in plugin.files.items()}


def check_no_links(*paths: Path) -> None:
    """Check that files and folders, where they exist, are no links.

    Raises:
        DataError: one is a link; what it leads to might not be meant to be shared.
    """
    for path in paths:
        if path.is_symlink():
            raise DataError(f"{path}: is a link; only files and folders themselves are shared")


@contextmanager
def staging(target: Path, place: Path | None = None) -> Iterator[Path]:
    """Yield a folder in which a target is made before it is moved there.

    Args:
        place: where the folder is, by default beside the target. What a killed process leaves must
            not be where it would be packed or read.

    Raises:
        DataError: nothing can be written there.
    """
    place = place or target.parent
    try:
        place.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".fsf-", dir=place) as folder:
            yield Path(folder)
    except OSError as error:
        raise DataError(f"{target}: cannot be written: {error.strerror or error}") from None


def installed_from(package: Path) -> str:
    """Return what ``pip install`` takes for the folder of a package, and not for a name."""
    text = str(package)
    return shlex.quote(text if os.sep in text else f".{os.sep}{text}")


def is_version(name: str) -> bool:
    """Whether a text can be the name of a task set, ``DATA/NAME-vN``."""
    return re.fullmatch(_NAME + _VERSION, name) is not None


def _line(text: str, option: str) -> str:
    """Return a text as one line.

    Raises:
        OptionError: it is empty.
    """
    if not (line := " ".join(text.split())):
        raise OptionError(f"{argument(option)} must be a text, such as CC-BY-4.0; it is empty")
    return line


def _target(name: str, package: Path, form: str, example: str, pattern: str) -> Path:
    """Return the folder of a name in a package, which is there or can be begun; write nothing."""
    if not re.fullmatch(pattern, name):
        raise OptionError(
            f"the name must be {form} in lower-case letters, digits and '-', such as {example}, "
            f"not {name!r}"
        )
    distribution, module = _names_of(package)
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", distribution) or keyword.iskeyword(module):
        raise OptionError(
            f"{package}: a package needs a name of lower-case letters, digits and '-', such as "
            "fsf-weights-cifar-fs"
        )
    target = package / module / name
    if target.exists():
        raise DataError(f"{target} exists: what has a name never changes; give it another one")
    for one in packaged_runs(name):
        if package.absolute() not in one.absolute().parents:
            raise DataError(f"{name} is in an installed package, {one}; give it another name")
    if (project := package / "pyproject.toml").exists():
        _check_project(project, module)
        _readme_of(package)
        return target
    if present := [file for file in map(package.joinpath, _skeleton(package)) if file.exists()]:
        raise DataError(
            f"{present[0]} exists, but no pyproject.toml beside it, so that {package} is no such "
            "package; give a folder that is new or empty"
        )
    if module in packages_distributions() or module in sys.stdlib_module_names:
        raise OptionError(f"{package}: {distribution} is installed from elsewhere; give a new name")
    return target


def _names_of(package: Path) -> tuple[str, str]:
    """Return the names of the distribution and of the module of a package."""
    distribution = package.absolute().name.replace("_", "-")
    return distribution, distribution.replace("-", "_")


def _check_project(project: Path, module: str) -> None:
    """Check that a package lists its module, without which nothing in it is found.

    Raises:
        DataError: it does not, or its file cannot be read.
    """
    try:
        told = tomllib.loads(project.read_text(encoding="utf-8"))
        entries = told["project"]["entry-points"]["fsframework.files"]
        listed = {str(target).partition(":")[0].partition(".")[0] for target in entries.values()}
    except (ValueError, OSError) as error:
        raise DataError(f"{project}: cannot be read: {error}") from None
    except (KeyError, TypeError, AttributeError):
        listed = set()
    if module not in listed:
        raise DataError(
            f'{project}: does not list {module} in [project.entry-points."fsframework.files"], so '
            "that nothing would be found in it; give a new folder, or add the entry"
        )


def _skeleton(package: Path) -> dict[str, str]:
    """Return the files of a new package by their paths in it."""
    distribution, module = _names_of(package)
    names = {"distribution": distribution, "module": module}
    return {file.format(**names): text.format(**names) for file, text in _SKELETON.items()}


def _begin(package: Path, target: Path) -> None:
    """Write the files that every package has, if it is new, and make room for a target."""
    if not (package / "pyproject.toml").exists():
        for file, text in _skeleton(package).items():
            atomic_write(package / file, text)
    target.parent.mkdir(parents=True, exist_ok=True)


def _readme_of(package: Path) -> str | None:
    """Return the README of a package, ``None`` without one.

    Raises:
        DataError: it cannot be read.
    """
    readme = package / "README.md"
    try:
        return readme.read_text(encoding="utf-8") if readme.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{readme}: cannot be read: {error}") from None


def _list(package: Path, name: str, licence: str, digests: Sequence[str]) -> None:
    """Add a row to the table of the package's README, if it still has one."""
    shown = ", ".join(f"`{digest[:12]}`" for digest in digests)
    row = f"| `{name}` | {licence.replace('|', '&#124;')} | {shown} |\n"
    if (text := _readme_of(package)) is not None:
        atomic_write(package / "README.md", text.replace(_TABLE, _TABLE + row))


_TABLE = """| name | licence | digest |
|---|---|---|
"""
_SKELETON = {
    "{module}/__init__.py": '''"""Task sets and models for fsframework, under names."""

__version__ = "0.1.0"
''',
    "README.md": """# {distribution}

Task sets and models for fsframework. `fsf tasks show DATA/NAME` shows a task set and
`fsf runs show DATA/NAME` a model.

"""
    + _TABLE,
    "LICENSE": """Each task set and each model has its own licence: see the table in README.md.
""",
    "pyproject.toml": """[build-system]
requires = ["flit_core>=3.11"]
build-backend = "flit_core.buildapi"

[project]
name = "{distribution}"
dynamic = ["version", "description"]
readme = "README.md"
license = "LicenseRef-README"
license-files = ["LICENSE"]
requires-python = ">=3.11"
dependencies = ["fsframework>=0.1"]

[project.entry-points."fsframework.files"]
{distribution} = "{module}"

[tool.flit.module]
name = "{module}"
""",
}


def installed_sets() -> list[dict[str, str]]:
    """Return name, data, shape and words of each task set of an installed package."""
    found = []
    for folder in packaged_runs():
        if not (folder / "run.json").is_file():
            continue
        name = f"{folder.parent.name}/{folder.name}"
        try:
            run = load_run(folder)
            if run.record.method is None:  # else it is a model
                found.append({"name": name, **_told_of_set(run)})
        except FsfError as error:
            found.append({"name": name, "data": "", "tasks": f"damaged: {error}", "words": ""})
    return found


def _told_of_set(run: Run) -> dict[str, str]:
    record, words = run.record, run.pool.attributes
    return {
        "data": record.components["dataset"].name,
        "tasks": f"{' and '.join(run.tasks)}, {next(iter(record.arms.values())).shape}",
        "words": "none" if words is None else f"{len(words.words):,}",
    }


def datasheet(run: Run) -> list[tuple[str, str]]:
    """Return what is to be known of the tasks of a run or of a task set, by name.

    Raises:
        DataError: tasks, images or words are not those of its record, or there are none.
    """
    record = run.record
    if not record.images_file(run.folder).exists():
        name = _name_of(run.folder)
        raise DataError(
            f"{name}: has no tasks; if it is a model, fsf runs show {shlex.quote(name)} shows it, "
            f"and {argument('model', name)} evaluates it"
        )
    pool = run.pool
    sampler = record.components["sampler"]
    options = ", ".join(f"{name}={value}" for name, value in sampler.options.items())
    words = "none" if pool.attributes is None else f"{len(pool.attributes.words):,}"
    dataset = record.components["dataset"]
    told: dict[str, Any] = {
        "data": " ".join([dataset.name, *(f"{k}={v}" for k, v in dataset.options.items())]),
        "split": record.settings.get("split") or "test",
        "images": f"{len(pool):,} of {len(pool.class_names):,} classes",
        "words": words,
        "rule": f"{sampler.name} ({options})",
        "seed": record.settings.get("task_seed", 0),
        "made": f"{record.created}, fsframework {record.environment.fsframework}",
    }
    for arm, tasks in run.tasks.items():
        relaxed = f"{100 * float(tasks.relaxed.mean()):.1f} % of classes relaxed"
        told[arm] = f"{tasks.described()}, {relaxed}"
        told[f"digest of {arm}"] = tasks.digest
    digests = {f"digest of {name}": digest for name, digest in record.digests.items()}
    rows = [*told.items(), *digests.items(), *(("note", note) for note in record.notes)]
    return [(name, str(value)) for name, value in rows if value != ""]
