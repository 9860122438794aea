"""Task sets and trained models under a name, in packages that anyone can install.

A package has a folder for each, called ``DATA/NAME``: that of a run, with its record. It lists its
module in the entry-point group ``fsframework.files``.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fsframework import Description, Run, load_run
from fsframework.api.imports import ArmRecord, RunRecord, save_import
from fsframework.api.opened import draw_tasks
from fsframework.api.running import packaged_runs
from fsframework.api.session import Workspace
from fsframework.errors import DataError, OptionError, RecordError, argument
from fsframework.values import atomic_write, digest_of

__all__ = [
    "copy_run",
    "datasheet",
    "publish_model",
    "publish_tasks",
    "staging",
    "without_folders",
    "without_place",
]

_NAME = r"[a-z0-9]+(-[a-z0-9]+)*/[a-z0-9]+(-[a-z0-9]+)*"
_VERSION = r"-v[1-9][0-9]*"
_PLACE = re.compile(r"(?:(?<=^)|(?<=[:=]))(?:/(?!/)|\.{1,2}/|~/).+$")
"""A file or folder, alone or after ``NAME:`` or ``OPTION=``; no address of the web."""


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
        DataError: the package has the name already: what is published never changes.
        OptionError: the name is malformed.
    """
    target = _target(name, package, "DATA/NAME-vN", "cub/fewstab-5w1s-v1", _NAME + _VERSION)
    experiment, session = described.experiment, described.session
    arms, images = draw_tasks(experiment, session)
    pool, settings = images.pool, experiment.settings
    words = pool.attributes
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
        digests={"pool": pool.fingerprint, **({"attributes": words.fingerprint} if words else {})},
        notes=(*images.reasons, *about, f"licence: {licence}"),
    )

    def write(folder: Path) -> None:
        arms.save(folder)
        pool.save(record.images_file(folder))
        if words is not None:
            words.save(record.words_file(folder))

    roles = {"dataset": experiment.dataset, "sampler": experiment.sampler}
    with staging(target) as folder:
        there = dataclasses.replace(session, workspace=Workspace(folder, session.workspace.cache))
        made = save_import(there, "set", record, write, roles=roles)
        without_place(made.record).save(made.folder)
        made.folder.rename(target)
    _list(package, name, licence, [tasks.digest for tasks in arms.values()])
    return load_run(target)


def without_place(record: RunRecord) -> RunRecord:
    """Return a record without the folders that its files had on this machine.

    Files keep their names, and what is in an installed package the name that it has there. The
    argument of the data set is left out: a user has the data somewhere else.
    """
    components = {role: without_folders(one) for role, one in record.components.items()}
    if (found := components.get("dataset")) is not None:
        kept = [
            {name: value for name, value in part.items() if name != found.argument}
            for part in (found.options, found.origins)
        ]
        dataset = dataclasses.replace(found, options=kept[0], origins=kept[1], added_as=None)
        components["dataset"] = dataset
    trained = tuple(dataclasses.replace(one, place="") for one in record.data.trained_on)
    data = dataclasses.replace(without_folders(record.data), trained_on=trained)
    return dataclasses.replace(
        record,
        given=without_folders(record.given),
        settings=without_folders(record.settings),
        components=components,
        stages=without_folders(record.stages),
        plugins=without_folders(record.plugins),
        imported=without_folders(record.imported),
        data=data,
    )


def without_folders(value: Any) -> Any:
    """Return a value, whatever is in it included, whose texts name files without their folders."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
        return dataclasses.replace(value, **without_folders(fields))
    if isinstance(value, Mapping):
        return {key: without_folders(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(without_folders, value))
    if isinstance(value, str):
        return _PLACE.sub(lambda found: _name_of(Path(found[0])), value)
    return value


def _name_of(place: Path) -> str:
    """Return the name of a folder or file, which in an installed package is ``DATA/NAME``."""
    return "/".join(place.parts[-2:]) if place in packaged_runs() else place.name


def publish_model(name: str, package: Path, run: Run, *, licence: str) -> Run:
    """Copy the record and the weights of a finished run into a package.

    Args:
        name: ``DATA/NAME``; ``package`` as in ``publish_tasks``.
        licence: of the weights.

    Raises:
        DataError: weights are missing or not those of the run, or the package has the name.
        OptionError: the name is malformed, or the run holds no model.
        RecordError: the run is not finished.
    """
    target = _target(name, package, "DATA/NAME", "cub/protonet", _NAME)
    record = without_place(run.record)
    if record.status == "unfinished" or "weights" not in record.digests:
        raise RecordError(f"{run.folder}: is not finished, or has no weights")
    run.model(device="cpu")  # refuses weights that are not those of the run
    notes = (*record.notes, f"licence: {licence}")
    record = dataclasses.replace(record, name=name, notes=notes)
    with staging(target) as folder:
        copy_run(run, folder / "run", ("weights.safetensors", "code/*.py"), record)
        (folder / "run").rename(target)
    _list(package, name, licence, [record.digests["weights"]])
    return load_run(target)


def copy_run(run: Run, folder: Path, patterns: Sequence[str], record: RunRecord) -> None:
    """Copy those files of a run that match a pattern into a folder, and write its record there."""
    for file in (file for pattern in patterns for file in sorted(run.folder.glob(pattern))):
        place = folder / file.relative_to(run.folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    record.save(folder)


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """Yield a folder beside a target, in which it is made before it is moved there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".fsf-", dir=target.parent) as folder:
        yield Path(folder)


def _target(name: str, package: Path, form: str, example: str, pattern: str) -> Path:
    """Return the folder of a name in a package, which is begun if it does not exist."""
    if not re.fullmatch(pattern, name):
        raise OptionError(
            f"the name must be {form} in lower-case letters, digits and '-', such as {example}, "
            f"not {name!r}"
        )
    distribution = package.absolute().name.replace("_", "-")
    module = distribution.replace("-", "_")
    if not module.isidentifier():
        raise OptionError(f"{package}: a package needs a name such as fsf-weights-cifar-fs")
    target = package / module / name
    if target.exists():
        raise DataError(f"{target} exists: what has a name never changes; give it another one")
    if not (package / "pyproject.toml").exists():
        for file, text in _SKELETON.items():
            atomic_write(
                package / file.format(module=module),
                text.format(module=module, distribution=distribution),
            )
    return target


def _list(package: Path, name: str, licence: str, digests: Sequence[str]) -> None:
    """Add a row to the table of the package's README, if it still has one."""
    readme = package / "README.md"
    shown = ", ".join(f"`{digest[:12]}`" for digest in digests)
    row = f"| `{name}` | {licence.replace('|', '&#124;')} | {shown} |\n"
    if readme.exists():
        atomic_write(readme, readme.read_text(encoding="utf-8").replace(_TABLE, _TABLE + row))


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
        run = load_run(folder)
        if run.record.method is not None:  # a model
            continue
        record, words = run.record, run.pool.attributes
        found.append(
            {
                "name": f"{folder.parent.name}/{folder.name}",
                "data": record.components["dataset"].name,
                "tasks": f"{' and '.join(record.arms)}, {next(iter(record.arms.values())).shape}",
                "words": "none" if words is None else f"{len(words.words):,}",
            }
        )
    return found


def datasheet(run: Run) -> list[tuple[str, str]]:
    """Return what is to be known of the tasks of a run or of a task set, by name.

    Raises:
        DataError: tasks, images or words are not those of its record, or there are none.
    """
    record = run.record
    if not record.images_file(run.folder).exists():
        name = _name_of(run.folder)
        raise DataError(
            f"{name}: has no tasks; if it is a model, fsf runs show {name} shows it, and "
            f"{argument('model', name)} evaluates it"
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
