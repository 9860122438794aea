"""Commands whose work on many images the workers of a launcher divide."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fsframework.api.launchers import without_launcher
from fsframework.api.session import Session, open_session
from fsframework.errors import FsfError, argument
from fsframework.pipeline.work.leases import Leases, this_machine
from fsframework.pipeline.work.shards import Do, MissingRows, ShardJob, Sharing, Task
from fsframework.pipeline.work.worker import work_off

__all__ = ["MissingRows", "Sharing", "sharing_of", "work_on_shards"]


def sharing_of(
    stage: str,
    tree: Mapping[str, Any],
    session: Session,
    plugins: Sequence[str | Path] = (),
    **options: Any,
) -> tuple[Sharing | None, dict[str, Any]]:
    """Return the workers that a tree of ``Given`` asks for, if any, and the tree without them.

    Args:
        stage: what they compute: ``words``, ``images`` or ``features``.
        tree: options of a command.
        session: of the command.
        plugins: the files of its plugins.
        **options: further arguments of the command that the workers need, as JSON values.

    Raises:
        PluginError: the launcher is unknown or cannot be loaded.
        OptionError: an option of it is not allowed.
    """
    launcher, [rest] = without_launcher([tree], session)
    if launcher is None:
        return None, rest
    files = tuple(str(Path(file).absolute()) for file in plugins)
    return Sharing(launcher, Task(stage, rest, files, options), session), rest


def work_on_shards(key: str, cache_dir: str | Path | None = None) -> None:
    """Compute shards that nobody holds until none is left: the job of one worker.

    Args:
        key: of the job.
        cache_dir: where it is; by default ``FSF_CACHE``, else the user's cache folder.

    Raises:
        RecordError: the job does not exist.
        FsfError: nothing can be computed, such as for a detector that cannot be prepared.
    """
    workspace = open_session(cache_dir=cache_dir, progress=False).workspace
    folder = workspace.cache / "shards" / key
    job = ShardJob(folder)
    session = open_session(cache_dir=cache_dir, plugins=job.task.plugins, progress=False)
    if not job.left():
        return
    job.do_rows = _WORK[job.task.stage](job.task, folder, session)
    worker = f"{this_machine()}, process {os.getpid()}"
    work_off(job, Leases(job.leases, worker), wait=False)


def _words(task: Task, folder: Path, session: Session) -> Do:
    from fsframework.api.experiments import described
    from fsframework.api.opened import detection_of

    del folder  # answers are kept where they belong
    batch_size = task.options["batch_size"]
    detection = detection_of(described(task.tree, session), batch_size=batch_size)
    return lambda name, rows, wanted: detection.answer(rows)


def _images(task: Task, folder: Path, session: Session) -> Do:
    from fsframework.api.stores import image_store

    store, broken = image_store(task.tree, session)
    # What is no longer wanted is at worst decoded in vain.
    return lambda name, rows, wanted: store.decode(rows, broken, session.reporter)


def _features(task: Task, folder: Path, session: Session) -> Do:
    from fsframework.api.experiments import described
    from fsframework.api.stores import feature_store

    features = feature_store(described(task.tree, session))
    if features.key != task.options["key"]:
        raise FsfError(
            "this worker would compute other features than the command that started it, as on "
            f"another kind of device; give {argument('device')}"
        )
    return lambda name, rows, wanted: features.embed(rows, session.reporter)


_WORK = {"features": _features, "images": _images, "words": _words}
