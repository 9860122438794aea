"""Each check of samplers rejects the one broken component made for it, and nothing else does."""

import importlib.util
import sys
import threading

import numpy as np
import pytest

from fsframework.interfaces import Control, InfeasibleTask, OptionError, TaskSampler
from fsframework.testing import (
    ConformanceError,
    NotApplicable,
    check_component,
    checks_for,
    parametrize_with_checks,
    toy_pool,
)
from fsframework.testing.sampler import check_impossible, check_no_number, check_prefix
from fsframework.values import TaskSet, task_rng
from tests.misdeclared import misdeclared


class Uniform(TaskSampler):
    """Uniform tasks, which depend on ``salt``."""

    recorded = ("n_way", "n_shot", "n_query", "salt")

    def __init__(self, *, n_way: int = 3, n_shot: int = 2, n_query: int = 4, salt: str = ""):
        super().__init__(n_way=n_way, n_shot=n_shot, n_query=n_query)
        self.salt = salt

    def draw(self, pool, n_tasks, seed):
        if n_tasks is None:
            raise OptionError("uniform tasks have no end: say how many")
        self.require_enough(pool)
        tasks = [self.task(pool, self.rng(seed, t, n_tasks)) for t in range(n_tasks)]
        return self.collected(pool, tasks, seed)

    def require_enough(self, pool):
        if len(pool.class_names) < self.n_way:
            raise InfeasibleTask(f"at most {len(pool.class_names)} ways")
        if pool.class_sizes.min() < self.n_shot + self.n_query:
            raise InfeasibleTask(f"at most {pool.class_sizes.min()} images a class")

    def rng(self, seed, task, n_tasks):
        return task_rng(seed, task, self.salt)

    def task(self, pool, rng):
        classes = rng.choice(len(pool.class_names), self.n_way, replace=False)
        return classes, np.array([self.images(pool, c, rng) for c in classes])

    def images(self, pool, label, rng):
        return rng.choice(pool.members(label), self.n_shot + self.n_query, replace=False)

    def collected(self, pool, tasks, seed):
        classes, images = (np.array(part) for part in zip(*tasks, strict=True))
        options = {name: getattr(self, name) for name in self.recorded}
        support, query = images[..., : self.n_shot], images[..., self.n_shot :]
        return TaskSet.of(
            pool, classes, support, query, sampler="uniform", options=options, seed=seed
        )


class Consecutive(Uniform):
    """Uses up the pool class by class: tasks are not independent and run out."""

    independent = False

    def draw(self, pool, n_tasks, seed):
        self.require_enough(pool)
        order = [task_rng(seed, c).permutation(pool.members(c)) for c in range(12)]
        ways = task_rng(seed, 99).permutation(12)[: self.n_way]
        size = self.n_shot + self.n_query
        count = n_tasks or len(order[0]) // size
        tasks = [
            (ways, np.array([order[c][t * size : (t + 1) * size] for c in ways]))
            for t in range(count)
        ]
        return self.collected(pool, tasks, seed)


class Wordy(Uniform):
    """Ties every way to a required word."""

    needs_attributes = True

    def draw(self, pool, n_tasks, seed):
        if pool.attributes is None:
            raise OptionError("this sampler needs attributes")
        return super().draw(pool, n_tasks, seed)


class NoSampler:
    """It has the methods but not the interface."""


class Untyped(Uniform):
    """An option without a type."""

    def __init__(self, *, n_way=3):
        super().__init__(n_way=n_way)


class Unstored(Uniform):
    """An option that is not stored."""

    def __init__(self, *, balance: float = 0.5):
        super().__init__()


class Silent(Uniform):
    pass


class OneTooMany(Uniform):
    """One task too many."""

    def draw(self, pool, n_tasks, seed):
        return super().draw(pool, n_tasks and n_tasks + 1, seed)


class Replacing(Uniform):
    """Draws images with replacement."""

    def images(self, pool, label, rng):
        return rng.choice(pool.members(label)[:5], self.n_shot + self.n_query)


class Impure(Uniform):
    """Takes the images of another class."""

    def task(self, pool, rng):
        classes, images = super().task(pool, rng)
        return (classes + 1) % len(pool.class_names), images


class Hashing(Uniform):
    """Draws from a set."""

    def images(self, pool, label, rng):
        keys = list({pool.keys[i] for i in pool.members(label)})
        position = {key: i for i, key in enumerate(pool.keys)}
        size = self.n_shot + self.n_query
        return [position[keys[i]] for i in rng.choice(len(keys), size, replace=False)]


class Seedless(Uniform):
    """The same tasks for every seed."""

    def rng(self, seed, task, n_tasks):
        return task_rng(0, task)


class Continuing(Uniform):
    """A generator that continues from draw to draw."""

    def __init__(self, *, n_way: int = 3):
        super().__init__(n_way=n_way)
        self._calls = 0

    def draw(self, pool, n_tasks, seed):
        self._calls += 1
        return super().draw(pool, n_tasks, seed)

    def rng(self, seed, task, n_tasks):
        return task_rng(seed, task, str(self._calls))


class Counting(Uniform):
    """The seed depends on the number of tasks."""

    def rng(self, seed, task, n_tasks):
        return task_rng(seed, task, str(n_tasks))


class Endless(Uniform):
    """Without a number it raises another error."""

    def draw(self, pool, n_tasks, seed):
        return super().draw(pool, int(n_tasks), seed)


class Clueless(Uniform):
    """Does not state what the pool lacks."""

    def require_enough(self, pool):
        pass


class Contrasted(Uniform):
    """Has a paired control of its own class."""

    def control(self):
        class_mates = Uniform(n_way=self.n_way, n_shot=self.n_shot, n_query=self.n_query)
        return Control(class_mates, arms=("plain", "contrasted"), paired=True)


class Unpaired(Contrasted):
    """Declares unrelated tasks as pairs."""

    def rng(self, seed, task, n_tasks):
        return task_rng(seed, task, "of its own")


class PairedIfEven(Contrasted):
    """Its classes are those of its control only where all have as many images."""

    def task(self, pool, rng):
        large = np.flatnonzero(pool.class_sizes >= np.median(pool.class_sizes))
        classes = rng.choice(large, self.n_way, replace=False)
        return classes, np.array([self.images(pool, c, rng) for c in classes])


class Undeclared(Uniform):
    """Reads attributes without declaring it."""

    def images(self, pool, label, rng):
        assert pool.attributes.words
        return super().images(pool, label, rng)


class Anonymous(Uniform):
    """Does not record the seed."""

    def collected(self, pool, tasks, seed):
        return super().collected(pool, tasks, 0)


class Thrifty(Uniform):
    """Leaves the last images of each class out."""

    def images(self, pool, label, rng):
        return rng.choice(pool.members(label)[:20], self.n_shot + self.n_query, replace=False)


class Mistied(Wordy):
    """Ties every way to a word that its images need not have."""

    def draw(self, pool, n_tasks, seed):
        tasks = super().draw(pool, n_tasks, seed)
        return tasks.with_attributes(pool.attributes, np.zeros(tasks.classes.shape, int))


class Forgetful(Uniform):
    """Does not record an option on which its tasks depend."""

    recorded = ("n_way", "n_shot", "n_query")


class Destructive(Uniform):
    """Marks used images in the pool."""

    def draw(self, pool, n_tasks, seed):
        tasks = super().draw(pool, n_tasks, seed)
        if pool.attributes is not None:
            pool.attributes.indices.flags.writeable = True
            pool.attributes.indices[:] = 0
        return tasks


class Seeding(Uniform):
    """Seeds the global generator."""

    def draw(self, pool, n_tasks, seed):
        np.random.seed(seed)  # noqa: NPY002 - the fault that is to be found
        return super().draw(pool, n_tasks, seed)


BROKEN = {
    "check_construction": NoSampler,
    "check_options_typed": Untyped,
    "check_options_stored": Unstored,
    "check_summary": Silent,
    **misdeclared(Uniform),
    "check_request_honoured": OneTooMany,
    "check_images_distinct": Replacing,
    "check_classes_pure": Impure,
    "check_fresh_process": Hashing,
    "check_seed_matters": Seedless,
    "check_images_spread": Thrifty,
    "check_no_memory": Continuing,
    "check_prefix": Counting,
    "check_no_number": Endless,
    "check_impossible": Clueless,
    "check_control": Unpaired,
    "check_needs_declared": Undeclared,
    "check_record": Anonymous,
    "check_attributes": Mistied,
    "check_options_recorded": Forgetful,
    "check_pool_unchanged": Destructive,
    "check_global_randomness": Seeding,
}


@pytest.fixture(autouse=True)
def _global_state():
    state = np.random.get_state()  # noqa: NPY002 - what the broken sampler moves is put back
    yield
    np.random.set_state(state)  # noqa: NPY002


@parametrize_with_checks([Uniform, Consecutive, Contrasted, Wordy])
def test_a_sound_sampler_passes(make, check):
    check(make)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", BROKEN)
def test_only_its_check_rejects(name, failing):
    assert failing(BROKEN[name], "sampler") == {name}


def test_pairs_are_such_where_classes_have_unequal_sizes(failing):
    assert failing(PairedIfEven, "sampler") == {"check_control"}


def test_a_sampler_without_an_end_is_told_what_to_raise():
    [failed] = [result for result in check_component(Endless) if not result.passed]
    assert "OptionError for n_tasks=None" in failed.message
    assert "--pool" not in failed.message


def test_every_check_has_its_broken_sampler():
    assert list(BROKEN) == [check.__name__ for check in checks_for("sampler")]


def test_a_sampler_with_an_end_may_be_asked_for_all():
    check_no_number(Consecutive)
    with pytest.raises(NotApplicable, match="not drawn independently"):
        check_prefix(Consecutive)


def test_a_search_without_a_bound_is_given_up(monkeypatch):
    monkeypatch.setattr("fsframework.testing.sampler._PATIENCE", 0.05)
    released = threading.Event()

    class Searching(Uniform):
        """Never stops on too few classes."""

        def require_enough(self, pool):
            if len(pool.class_names) < self.n_way:
                released.wait(60)

    try:
        with pytest.raises(ConformanceError, match="has not ended"):
            check_impossible(Searching)
    finally:
        released.set()


def fresh(make):
    [result] = [r for r in check_component(make) if r.name == "check_fresh_process"]
    return result


def test_a_class_of_a_function_has_no_fresh_process():
    class Local(Uniform):
        """No other process can import it."""

    assert "defined in a function" in fresh(Local).message


class Wrapped(Uniform):
    """A sampler in a sampler."""

    def __init__(self, *, inner: TaskSampler, weights: tuple[float, ...] = (0.5,)):
        super().__init__(n_way=inner.n_way, n_shot=inner.n_shot, n_query=inner.n_query)
        self.inner = inner
        self.weights = weights

    def draw(self, pool, n_tasks, seed):
        return self.inner.draw(pool, n_tasks, seed)


@pytest.mark.slow
def test_nested_options_reach_the_fresh_process():
    assert fresh(lambda: Wrapped(inner=Uniform(n_way=4, salt="ä"))).outcome == "passed"
    wrong = fresh(lambda: Wrapped(inner=Hashing()))
    assert "its tasks" in wrong.message


def test_a_script_is_read_from_its_file(tmp_path, monkeypatch):
    """A file given with ``--plugin`` is a module whose name no other process can import."""
    path = tmp_path / "mine.py"
    path.write_text(
        "from fsframework.testing import toy_pool\n"
        "from tests.testing.test_sampler import Uniform\n"
        "class Mine(Uniform):\n"
        "    'It works only where it was made.'\n"
        "    def draw(self, pool, n_tasks, seed):\n"
        "        if __name__ != 'mine':\n"
        "            raise SystemExit('mine.py was found')\n"
        "        return super().draw(pool, n_tasks, seed)\n"
    )
    spec = importlib.util.spec_from_file_location("mine", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mine", module)
    spec.loader.exec_module(module)
    assert "mine.py was found" in fresh(module.Mine).message


def test_toy_pools_are_the_same_everywhere():
    assert toy_pool(3, 4).fingerprint == toy_pool(3, 4).fingerprint
    assert toy_pool(3, 4).attributes.rows(np.arange(12)).sum(axis=1).tolist() == [3] * 12
    assert toy_pool(3, 4, 0).attributes is None
