"""Task sets and trained models under a name, in packages that anyone can install.

A package has a folder for each, called ``DATA/NAME``: that of a run, with its record. It lists its
module in the entry-point group ``fsframework.files``.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Iterator, Sequence
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
from fsframework.errors import DataError, OptionError, RecordError
from fsframework.values import atomic_write, digest_of

__all__ = ["copy_run", "datasheet", "publish_model", "publish_tasks", "staging", "without_place"]

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*/[a-z0-9]+(-[a-z0-9]+)*")


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
    target = _target(name, package)
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
    return load_run(target)


def without_place(record: RunRecord) -> RunRecord:
    """Return a record whose data set is without the folder that it had on this machine."""
    if "dataset" not in record.components:
        return record
    found = record.components["dataset"]
    kept = [
        {name: value for name, value in part.items() if name != found.argument}
        for part in (found.options, found.origins)
    ]
    dataset = dataclasses.replace(found, options=kept[0], origins=kept[1], added_as=None)
    return dataclasses.replace(record, components={**record.components, "dataset": dataset})


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
    target, record = _target(name, package), without_place(run.record)
    if record.status == "unfinished" or "weights" not in record.digests:
        raise RecordError(f"{run.folder}: is not finished, or has no weights")
    run.model(device="cpu")  # refuses weights that are not those of the run
    notes = (*record.notes, f"licence: {licence}")
    record = dataclasses.replace(record, name=name, notes=notes)
    with staging(target) as folder:
        copy_run(run, folder / "run", ("weights.safetensors", "code/*.py"), record)
        (folder / "run").rename(target)
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


def _target(name: str, package: Path) -> Path:
    """Return the folder of a name in a package, which is begun if it does not exist."""
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"a name must be DATA/NAME in lower-case letters, digits and '-', such as "
            f"cub/fewstab-5w1s-v1, not {name!r}"
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


_SKELETON = {
    "{module}/__init__.py": '''"""Task sets and models for fsframework, under names."""

__version__ = "0.1.0"
''',
    "README.md": """# {distribution}

Task sets and models for fsframework. `fsf tasks show DATA/NAME` shows a task set and
`fsf runs show DATA/NAME` a model, with its licence.
""",
    "pyproject.toml": """[build-system]
requires = ["flit_core>=3.11"]
build-backend = "flit_core.buildapi"

[project]
name = "{distribution}"
dynamic = ["version", "description"]
readme = "README.md"
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
        DataError: tasks, images or words are not those of its record.
    """
    record, pool = run.record, run.pool
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
