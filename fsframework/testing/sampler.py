"""Checks of task samplers on ``toy_pool``, or on images of the author's own.

The toy pool grows with the sampler's options, so that tasks remain possible: at least 12 classes
and twice ``n_way``, each with five times the images that a task takes from it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from fsframework._calls import seeded
from fsframework.components.kinds import kind_of
from fsframework.errors import DataError, FsfError, InfeasibleTask, OptionError
from fsframework.interfaces.sampler import Control, TaskSampler
from fsframework.testing._example import given_pool, note_call, shown, size
from fsframework.testing._random import global_states, scramble
from fsframework.testing._suite import (
    OTHER_IMAGES,
    ConformanceError,
    Make,
    NotApplicable,
    Suite,
    check_options_stored,
    options_of,
    require,
    variants,
)
from fsframework.testing.toys import toy_pool
from fsframework.values import ImagePool, IntArray, TaskSet, digest_of

suite = Suite(TaskSampler, takes_pool=True)

# A sampler that uses up its pool yields at least five tasks from it.
_TASKS = 4
_MANY = 1000
_OFF_MIDDLE = 0.06
_SIGMAS = 6
_PATIENCE = 20.0
_SHAPE = ("n_way", "n_shot", "n_query")
_KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def _pool_size(sampler: TaskSampler) -> tuple[int, int, int]:
    # An image has 3 of 4 * n_way words, so a share of 0.35 / n_way of a class has its way's
    # attribute and none of the others', as FewSTAB requires of a support: 1.75 times the shots.
    # Each of the pool's five contexts has as many images as a task takes from a class.
    images = 5 * max(sampler.n_shot + sampler.n_query, sampler.n_way * sampler.n_shot)
    return max(12, 2 * sampler.n_way), images, max(20, 4 * sampler.n_way)


def _made(make: Make) -> TaskSampler:
    """Return a sampler of its own shape, or of a small example's."""
    sampler: TaskSampler = make()
    shape = {
        "n_way": size("ways", sampler.n_way, least=2),
        "n_shot": size("shots", sampler.n_shot),
        "n_query": size("queries", sampler.n_query),
    }
    changed = {name: value for name, value in shape.items() if value != getattr(sampler, name)}
    cls = type(sampler)
    if not changed or not changed.keys() <= options_of(cls).keys():
        return sampler
    given = {name: getattr(sampler, cls.stored_as.get(name, name)) for name in options_of(cls)}
    smaller: TaskSampler = cls(**{**given, **changed})
    return smaller


def _pool(sampler: TaskSampler) -> ImagePool:
    """Return the author's images, or toy images that are enough for a sampler."""
    given = given_pool()
    return toy_pool(*_pool_size(sampler)) if given is None else given


def _shown(pool: ImagePool, sampler: TaskSampler) -> str:
    return "pool" if pool is given_pool() else f"toy_pool{_pool_size(sampler)}"


def _part(pool: ImagePool, classes: int, images: int | None = None) -> ImagePool:
    """Return the first classes of a pool, and the first images of each."""
    members = [pool.members(label)[:images] for label in range(classes)]
    chosen = np.sort(np.concatenate(members)) if members else np.array([], dtype=np.int64)
    return _taken(pool, chosen, classes)


def _taken(pool: ImagePool, chosen: IntArray, classes: int | None = None) -> ImagePool:
    """Return some images of a pool, all of its first classes."""
    part = ImagePool(
        [pool.keys[index] for index in chosen],
        pool.labels[chosen],
        pool.class_names[:classes],
        {name: [column[index] for index in chosen] for name, column in pool.metadata.items()},
    )
    return part if pool.attributes is None else part.with_attributes(pool.attributes)


def _draw(sampler: TaskSampler, n_tasks: int | None = None, seed: int = 0) -> TaskSet:
    """Draw a few tasks, or a given number of them."""
    number = size("tasks", _TASKS) if n_tasks is None else n_tasks
    pool = _pool(sampler)
    note_call(f"draw({_shown(pool, sampler)}, {number}, {seed})")
    return sampler.draw(pool, number, seed)


def _draw_digest(tasks: TaskSet) -> str:
    """Return a digest of all five arrays; ``TaskSet.digest`` covers only three of them."""
    return digest_of(tasks.digest, tasks.attribute, tasks.relaxed)


def _require_equal(found: TaskSet, expected: TaskSet, message: str) -> None:
    if _draw_digest(found) == _draw_digest(expected):
        return
    for name in ("classes", "support", "query", "attribute", "relaxed"):
        theirs, own = getattr(expected, name), getattr(found, name)
        for task, (one, other) in enumerate(zip(own, theirs, strict=False)):
            same = np.array_equal(one, other)
            require(same, f"{message}: {name} of task {task}: {shown(one)}, not {shown(other)}")
    raise ConformanceError(message)


@suite.check()
def check_request_honoured(make: Make) -> None:
    """``draw`` returns as many tasks, ways, shots and queries as asked, and the same again."""
    sampler = _made(make)
    try:
        tasks = _draw(sampler)
    except DataError:
        return  # broken tasks: check_images_distinct reports them
    except (InfeasibleTask, OptionError) as error:
        pool = _pool(sampler)
        raise ConformanceError(
            f"it draws no task from {pool!r} with the metadata columns "
            f"{', '.join(pool.metadata) or 'none'}: {error}; {OTHER_IMAGES}"
        ) from None
    require(isinstance(tasks, TaskSet), f"it must be a TaskSet, not {type(tasks).__name__}")
    found = {"n_tasks": len(tasks)}
    asked = {"n_tasks": size("tasks", _TASKS)}
    for name in ("n_way", "n_shot", "n_query"):
        found[name], asked[name] = getattr(tasks, name), getattr(sampler, name)
    wrong = {name: found[name] for name in asked if found[name] != asked[name]}
    require(not wrong, f"asked for {asked}, draw returns {wrong}")
    _require_equal(
        _draw(_made(make)), tasks, "a second draw with the same seed differs (use task_rng)"
    )


@suite.check(after=[check_request_honoured])
def check_images_distinct(make: Make) -> None:
    """No image or class appears twice in a task."""
    try:
        _draw(_made(make))
    except DataError as error:
        raise ConformanceError(str(error)) from None


@suite.check(after=[check_images_distinct])
def check_classes_pure(make: Make) -> None:
    """Every image is of its way's class, and the tasks belong to the pool."""
    sampler = _made(make)
    try:
        _draw(sampler).verify(_pool(sampler))
    except DataError as error:
        raise ConformanceError(str(error)) from None


@suite.answers(after=[check_images_distinct])
def _answers(make: Make) -> dict[str, str]:
    return {"its tasks": _draw_digest(_draw(_made(make)))}


@suite.check(after=[check_images_distinct])
def check_seed_matters(make: Make) -> None:
    """Another seed gives different tasks.

    If the sampler is ``independent``, no two of 100 tasks are equal, of one seed or of two.
    """
    drawn = {seed: _draw(make(), _TASKS, seed).digest for seed in (0, 1, 256, 2**16, 2**31)}
    for seed, digest in drawn.items():
        same = seed and digest == drawn[0]
        require(not same, f"seeds 0 and {seed} give the same tasks")
    if make().independent and given_pool() is None:  # few images may give equal tasks by chance
        first, second = ({one.tobytes() for one in _draw(make(), 100, s).images} for s in (0, 1))
        require(not first & second, "seeds 0 and 1 have tasks in common")
        require(len(first) == 100, f"only {len(first)} of 100 tasks are different")
        one, other = (_draw(make(), 100, seed).classes for seed in (0, 1))
        same = np.array_equal(one, other) and len(np.unique(one, axis=0)) > 1
        require(not same, "seeds 0 and 1 have the same classes, task by task")


@suite.check(after=[check_images_distinct])
def check_images_spread(make: Make) -> None:
    """Over many tasks every class occurs, and images from the whole of it; uniform, equally often.

    The words and contexts of the pool do not depend on the places of images in their class.
    """
    sampler = make()
    if not sampler.independent:
        raise NotApplicable("its tasks are not drawn independently")
    if given_pool() is not None:
        raise NotApplicable("what it draws from a given pool may depend on words and columns")
    pool = toy_pool(*_pool_size(sampler))
    note_call(f"draw(toy_pool{_pool_size(sampler)}, {_MANY}, 0)")
    tasks = sampler.draw(pool, _MANY, 0)
    counts = np.bincount(tasks.classes.ravel(), minlength=len(pool.class_names))
    require(counts.all(), f"{pool.class_names[counts.argmin()]!r} is in none of {_MANY} tasks")
    for name, images in (("support", tasks.support), ("queries", tasks.query)):
        place = np.mean(images % pool.class_sizes[0]) / (pool.class_sizes[0] - 1)
        require(
            abs(place - 0.5) < _OFF_MIDDLE,
            f"images of the {name} have the mean place {place:.2f} in their class, not 0.5",
        )
    if sampler.uniform:
        for what, drawn, n in (
            ("classes", counts, len(pool.class_names)),
            ("images", np.bincount(tasks.images.ravel(), minlength=len(pool)), len(pool)),
        ):
            expected = drawn.sum() / n
            apart = float(np.abs(drawn - expected).max() / np.sqrt(expected))
            require(
                apart < _SIGMAS,
                f"uniform is True, but of {n} {what} one is drawn {apart:.0f} deviations too often "
                "or too seldom",
            )


@suite.check(after=[check_images_distinct])
def check_no_memory(make: Make) -> None:
    """A draw does not depend on earlier draws of the same sampler, from another pool either."""
    used = _made(make)
    pool = _pool(used)
    if given_pool() is None:
        classes, images, words = _pool_size(used)
        used.draw(toy_pool(classes + 1, images + 5, words), _TASKS, 0)
    else:
        with suppress(InfeasibleTask):
            used.draw(_part(pool, len(pool.class_names) - 1), _TASKS, 0)
    _draw(used, seed=0)
    _require_equal(
        _draw(used, seed=1), _draw(_made(make), seed=1), "a draw depends on earlier draws"
    )


@suite.check(after=[check_images_distinct])
def check_prefix(make: Make) -> None:
    """If the sampler is ``independent``, a shorter draw is a prefix of a longer one."""
    if not make().independent:
        raise NotApplicable("its tasks are not drawn independently")
    number = size("tasks", _MANY, least=2)
    many = _draw(_made(make), number)
    for short in (min(_TASKS, number - 1), number - 1):
        _require_equal(
            _draw(_made(make), short),
            many[:short],
            f"a draw of {short} tasks differs from the first of {number}",
        )


@suite.check(after=[check_images_distinct])
def check_no_number(make: Make) -> None:
    """``n_tasks=None`` gives all tasks, or an ``OptionError`` if their number is unlimited.

    It takes at most 20 seconds.
    """
    try:
        pool = _pool(make())
        note_call(f"draw({_shown(pool, make())}, None, 0)")
        tasks = _within_patience(functools.partial(make().draw, pool, None, 0))
    except OptionError:
        return
    except ConformanceError:
        raise
    except Exception as error:  # not of the pool: a number of tasks was drawn from it
        raise ConformanceError(
            f"raise OptionError for n_tasks=None, not {type(error).__name__}: {error}"
        ) from None
    require(len(tasks) > 0, "n_tasks=None gives no task, but the pool has some")


@suite.check(after=[check_request_honoured])
def check_impossible(make: Make) -> None:
    """An impossible request raises ``InfeasibleTask`` with a reason, within 20 seconds.

    Too few classes are impossible, and so are too few images in each class.
    """
    sampler = _made(make)
    whole = _pool(sampler)
    classes, images = len(whole.class_names), sampler.n_shot + sampler.n_query - 1
    for what, pool in (
        (f"too few classes, {sampler.n_way - 1}", _part(whole, sampler.n_way - 1)),
        (f"too few images in each class, {images}", _part(whole, classes, images)),
    ):
        note_call(f"draw(pool, {_TASKS}, 0), with {what}")
        try:
            _within_patience(functools.partial(_made(make).draw, pool, _TASKS, 0))
        except InfeasibleTask as error:
            require(str(error), f"with {what}, its InfeasibleTask must state why")
        except ConformanceError:
            raise
        except Exception as error:
            raise ConformanceError(
                f"with {what}, it must raise InfeasibleTask, not {type(error).__name__}: {error}"
            ) from None
        else:
            raise ConformanceError(f"with {what}, it must raise InfeasibleTask, not return tasks")


def _within_patience(action: Callable[[], Any]) -> Any:
    """Return what the action returns, or give up waiting; its thread cannot be stopped."""
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["value"] = action()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    require(not thread.is_alive(), f"draw has not ended after {_PATIENCE:.0f} seconds")
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


@suite.check(after=[check_request_honoured])
def check_control(make: Make) -> None:
    """``control`` gives a sampler of the same shape, names both arms, and pairs tasks as declared.

    A sampler without one returns ``None``.
    """
    sampler = _made(make)
    control = sampler.control()
    note_call("control()")
    if control is None:
        raise NotApplicable("it has no control")
    require(isinstance(control, Control), f"it must be a Control, not {type(control).__name__}")
    require(
        isinstance(control.sampler, TaskSampler),
        f"its sampler must be a TaskSampler, not {type(control.sampler).__name__}",
    )
    require(
        len(set(control.arms)) == 2 and all(_KEBAB.fullmatch(name) for name in control.arms),
        f"arms must be two different names in lower-case kebab, not {control.arms!r}",
    )
    require(
        len(control.symbols) == 2 and all(isinstance(s, str) for s in control.symbols),
        f"symbols must be two strings, not {control.symbols!r}",
    )
    for one in (sampler, *(other for name, other in variants(make) if name in _SHAPE)):
        shape = {name: getattr(one, name) for name in _SHAPE}
        theirs_is = {name: getattr(one.control().sampler, name) for name in _SHAPE}
        require(shape == theirs_is, f"the control's tasks have {theirs_is}, its own {shape}")
    try:
        number = size("tasks", _MANY if sampler.independent else _TASKS)
        theirs, own = _draw(control.sampler, number), _draw(sampler, number)
    except FsfError as error:
        raise ConformanceError(f"both arms must be drawn from the same pool: {error}") from None
    if control.paired:
        _require_paired(theirs, own, "")
        if given_pool() is None:
            pool = _uneven_pool(sampler)
            number = 16 * _TASKS if sampler.independent else _TASKS
            note_call(f"draw(pool, {number}, 0), with classes and contexts of unequal sizes")
            with suppress(FsfError):  # it may want another pool than this
                theirs, own = (one.draw(pool, number, 0) for one in (control.sampler, sampler))
                _require_paired(theirs, own, " where classes and contexts have unequal sizes")


def _require_paired(theirs: TaskSet, own: TaskSet, where: str) -> None:
    require(
        np.array_equal(theirs.classes, own.classes),
        f"paired is True, but task t of the two arms has different classes{where}",
    )


def _uneven_pool(sampler: TaskSampler) -> ImagePool:
    """Return toy images that are enough, with up to twice as many in some classes and contexts."""
    classes, images, words = _pool_size(sampler)
    pool = toy_pool(classes, 2 * images, words)
    place = np.arange(len(pool)) % (2 * images)
    cell = 5 * pool.labels + place % 5
    return _taken(pool, np.flatnonzero(place < images + images * (7 * cell % 11) // 10))


@suite.check(after=[check_images_distinct])
def check_needs_declared(make: Make) -> None:
    """A sampler that does not declare ``needs_attributes`` draws the same tasks without any.

    One that does reports what is missing with an error for the user.
    """
    sampler = _made(make)
    bare = dataclasses.replace(_pool(sampler), attributes=None)
    number = size("tasks", _TASKS)
    note_call(f"draw({_shown(_pool(sampler), sampler)}, {number}, 0), without attributes")
    try:
        tasks = sampler.draw(bare, number, 0)
    except FsfError as error:
        require(
            sampler.needs_attributes, f"needs_attributes is False, but without attributes: {error}"
        )
    except Exception as error:
        raise ConformanceError(
            f"without attributes it raises {type(error).__name__}: {error}"
        ) from None
    else:
        require(
            not sampler.needs_attributes,
            "needs_attributes is True, but it draws tasks without attributes",
        )
        same = tasks.digest == _draw(_made(make)).digest
        require(same, "needs_attributes is False, but it draws different tasks without attributes")


@suite.check(after=[check_images_distinct])
def check_record(make: Make) -> None:
    """The task set records its sampler, options, seed and pool, and can be saved and loaded."""
    sampler = _made(make)
    tasks = _draw(sampler, seed=7)
    pool = _pool(sampler)
    require(tasks.sampler, "the task set must name its sampler")
    require(tasks.seed == 7, f"the task set must have the seed 7, not {tasks.seed}")
    require(
        tasks.pool_fingerprint == pool.fingerprint, "the task set has another pool's fingerprint"
    )
    try:
        json.dumps(dict(tasks.options))
    except TypeError as error:
        raise ConformanceError(f"the task set's options cannot be saved: {error}") from None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tasks.safetensors"
        tasks.save(path)
        _require_equal(TaskSet.load(path), tasks, "the tasks differ after saving and loading")


@suite.check(after=[check_images_distinct])
def check_attributes(make: Make) -> None:
    """A word that is tied to a way is one of its images' words, unless the way is relaxed."""
    sampler = _made(make)
    tasks, table = _draw(sampler), _pool(sampler).attributes
    if table is None:
        raise NotApplicable("the pool that was given has no words")
    for task, way in np.argwhere((tasks.attribute >= 0) & ~tasks.relaxed):
        images = np.concatenate([tasks.support[task, way], tasks.query[task, way]])
        place = table.words.index(tasks.words[tasks.attribute[task, way]])
        require(
            table.rows(images)[:, place].any(),
            f"way {way} of task {task} is tied to {table.words[place]!r}, which no image of it has",
        )


@suite.check(after=[check_record, check_options_stored])
def check_options_recorded(make: Make) -> None:
    """The task set's options are all of the sampler's, with their values."""
    sampler = _made(make)
    recorded = dict(_draw(sampler).options)
    cls = type(sampler)
    for name in {**dict.fromkeys(("n_way", "n_shot", "n_query")), **options_of(cls)}:
        require(
            name in recorded,
            f"the task set's options lack {name!r}; they are {', '.join(recorded) or 'none'}",
        )
        value = getattr(sampler, cls.stored_as.get(name, name))
        require(
            kind_of(value) is not None or _plain(recorded[name]) == _plain(value),
            f"the task set's options must have {name}={value}, not {recorded[name]}",
        )


def _plain(value: Any) -> str:
    return json.dumps(value, default=str)


@suite.check(after=[check_images_distinct])
def check_pool_unchanged(make: Make) -> None:
    """The pool is not changed."""
    sampler = _made(make)
    pool = _pool(sampler)
    before = _content(pool)
    note_call(f"draw({_shown(pool, sampler)}, {_TASKS}, 0)")
    sampler.draw(pool, _TASKS, 0)
    after = _content(pool)
    changed = [name for name in before if before[name] != after[name]]
    require(not changed, f"draw changes the pool's {', '.join(changed)}")


def _content(pool: ImagePool) -> dict[str, str]:
    """Digest the pool's present content, since the pool caches its own fingerprints."""
    content = {
        "keys": digest_of(pool.keys),
        "labels": digest_of(pool.labels),
        "class_names": digest_of(pool.class_names),
        "metadata": repr(sorted(pool.metadata.items())),
        "class_sizes": digest_of(pool.class_sizes),
        "members": digest_of(*(pool.members(c) for c in range(len(pool.class_names)))),
    }
    if pool.attributes is not None:
        content["attributes"] = digest_of(
            pool.attributes.words, pool.attributes.indptr, pool.attributes.indices
        )
    return content


@suite.check(after=[check_images_distinct])
def check_global_randomness(make: Make) -> None:
    """The global generators of ``random`` and NumPy are neither advanced nor seeded."""
    sampler = _made(make)
    with seeded(0):
        # From states that no seed gives; else a sampler that seeds would go unnoticed the second
        # time.
        scramble()
        before = global_states()
        _draw(sampler)
        moved = [name for name, state in global_states().items() if state != before[name]]
    require(not moved, f"draw changes the state of the global generator of {' and '.join(moved)}")
