"""A failure is told in the smallest example that fails, with code that repeats it."""

import csv
import functools
import importlib.util
import json
import random
import subprocess
import sys

import numpy as np
import pytest

import fsframework as fsf
from fsframework.errors import OptionError
from fsframework.interfaces import AttributeDetector, Statistic
from fsframework.testing import (
    ConformanceError,
    check_component,
    example,
    parametrize_with_checks,
    toy_outcomes,
)
from fsframework.testing.statistic import check_way_order, suite
from tests.testing.test_method import Nearest
from tests.testing.test_sampler import Consecutive, Uniform, Wordy
from tests.testing.test_statistic import Spread

OUT_OF_CONTEXT = """
import numpy as np
from fsframework.interfaces import InfeasibleTask, OptionError, TaskSampler
from fsframework.values import TaskSet, task_rng


class OfPlace(TaskSampler):
    '''Draws images of one place.'''

    name = "of-place"

    def __init__(self, *, n_way: int = 3, n_shot: int = 2, n_query: int = 3, place: str = "sea"):
        super().__init__(n_way=n_way, n_shot=n_shot, n_query=n_query)
        self.place = place

    def draw(self, pool, n_tasks, seed):
        if n_tasks is None:
            raise OptionError("there is no end")
        if "place" not in pool.metadata:
            raise InfeasibleTask("there is no column 'place'")
        here = np.array(pool.metadata["place"]) == self.place
        number = self.n_shot + self.n_query
        members = [pool.members(c)[here[pool.members(c)]] for c in range(len(pool.class_names))]
        fit = [c for c, images in enumerate(members) if len(images) >= number]
        if len(fit) < self.n_way:
            raise InfeasibleTask(f"only {len(fit)} classes have {number} images of {self.place}")
        classes, images = [], []
        for task in range(n_tasks):
            rng = task_rng(seed, task, self.salt(n_tasks))
            classes.append(rng.choice(fit, self.n_way, replace=False))
            images.append([rng.choice(members[c], number, replace=False) for c in classes[-1]])
        images = np.array(images)
        options = {n: getattr(self, n) for n in ("n_way", "n_shot", "n_query", "place")}
        return TaskSet.of(
            pool,
            np.array(classes),
            images[..., : self.n_shot],
            images[..., self.n_shot :],
            sampler="of-place",
            options=options,
            seed=seed,
        )

    def salt(self, n_tasks):
        return "of-place"


class Counting(OfPlace):
    '''Its tasks depend on their number.'''

    name = "counting"

    def salt(self, n_tasks):
        return f"of {n_tasks}"
"""


class Weighted(Statistic):
    """A weighted accuracy: it depends on how ways happen to be numbered."""

    def __init__(self, *, weights: tuple[float, ...] = (0.5, 0.5), inner: Statistic | None = None):
        self.weights = weights
        self.inner = inner

    def per_task(self, outcomes):
        return np.average(outcomes.class_accuracy[:, :2], axis=1, weights=self.weights)


def failed(make, check, **given):
    [result] = [r for r in check_component(make, **given) if r.name == check]
    assert result.outcome == "failed", result
    return result


@pytest.fixture
def mine(tmp_path):
    """A file with samplers that need a column, and a table that has it."""
    (tmp_path / "mine.py").write_text(OUT_OF_CONTEXT)
    with (tmp_path / "toy.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label", "place", "words"])
        for c in range(8):
            for i in range(24):
                rows.writerow([f"c{c}/{i}.png", f"c{c}", ("sea", "land")[i % 2], "ball;tree"])
    return tmp_path


def test_code_spells_options_that_are_components():
    for component in (Weighted, functools.partial(Weighted, inner=Weighted(weights=(1.0, 0.0)))):
        result = failed(functools.partial(component, weights=(0.9, 0.1)), "check_way_order")
        with pytest.raises(ConformanceError):
            exec(result.code, {})


def test_there_is_no_code_where_it_would_be_wrong():
    class Local(Weighted):
        """No other code can import it."""

    for make in (
        functools.partial(Local, weights=(1.0, 0.0)),
        functools.partial(Weighted, weights=np.array([1.0, 0.0])),
    ):
        assert not failed(make, "check_way_order").code


def test_the_example_is_only_as_large_as_the_fault_needs():
    class Third(Statistic):
        """Wrong from three ways of two queries on."""

        def per_task(self, outcomes):
            accuracy = outcomes.class_accuracy
            large = outcomes.n_way >= 3 and outcomes.predictions.shape[2] >= 2
            return accuracy[:, 0] if large else accuracy.mean(axis=1)

    assert failed(Third, "check_way_order").sizes == {"ways": 3, "tasks": 1, "queries": 2}


def test_a_small_example_applies_within_its_block_only():
    with example(tasks=1, ways=2, queries=1), pytest.raises(ConformanceError, match=r"\[1, 0\]"):
        check_way_order(functools.partial(Weighted, weights=(1.0, 0.0)))
    with pytest.raises(ConformanceError, match=r"\[1, 4, 3, 0, 2\]"):
        suite["check_way_order"](functools.partial(Weighted, weights=(1.0, 0.0)))
    with pytest.raises(OptionError, match="ways must be at least 1, not 0"), example(ways=0):
        toy_outcomes()


def test_a_sampler_that_needs_a_column_is_checked_on_the_authors_images(mine):
    spec = importlib.util.spec_from_file_location("of_place", mine / "mine.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["of_place"] = module
    spec.loader.exec_module(module)
    result = failed(module.OfPlace, "check_request_honoured")
    for told in ("there is no column 'place'", "--pool", "context"):
        assert told in result.message
    pool = fsf.pool(f"csv:{mine / 'toy.csv'}", split="all")
    found = check_component(module.OfPlace, pool=pool)
    assert not [one for one in found if not one.passed]
    assert "check_fresh_process" in [one.name for one in found if one.outcome == "passed"]
    with pytest.raises(OptionError, match="sampler"):
        check_component(Weighted, pool=pool)
    with pytest.raises(OptionError, match="sampler"):
        parametrize_with_checks([Weighted], pool=pool)


def test_the_command_takes_a_pool_and_tells_code_that_fails_alike(fsf, mine):
    def check(*args):
        return fsf("plugins", "check", *args, "--plugin", mine / "mine.py")

    assert check("of-place").returncode == 1
    assert check("of-place", "--pool", "toy.csv").returncode == 0
    bad = check("counting", "--pool", "toy.csv", "-o", "n_query=2", "--json")
    assert bad.returncode == 1
    [row] = [one for one in json.loads(bad.stdout) if one["outcome"] == "failed"]
    assert row["name"] == "check_prefix"
    assert row["sizes"] == {"tasks": 2, "ways": 2, "shots": 1, "queries": 1}
    again = subprocess.run(
        [sys.executable, "-c", row["code"]], cwd=mine, capture_output=True, text=True, check=False
    )
    assert again.stderr.splitlines()[-1].endswith(row["message"])
    for wrong in (["nowhere.csv"], ["no-such-data-set"], ["folder:./nowhere"]):
        told = check("of-place", "--pool", *wrong)
        assert told.returncode == 2
        assert len(told.stderr.splitlines()) == 1
    assert fsf("plugins", "check", "acc", "--pool", mine / "toy.csv").returncode == 2
    assert fsf("plugins", "check", "--all", "--pool", mine / "toy.csv").returncode == 2


class OfColumn(AttributeDetector):
    """The word in a column that the toys lack."""

    consumes = "records"

    def detect(self, images):
        return [frozenset({record.metadata["place"]}) for record in images]


def test_a_detector_that_needs_a_column_is_checked_on_the_authors_records(mine):
    message = failed(OfColumn, "check_one_set_an_image").message
    for told in ("KeyError: 'place'", "test_explained.py, line ", "--pool"):
        assert told in message
    pool = fsf.pool(f"csv:{mine / 'toy.csv'}", split="all")
    assert not [one for one in check_component(OfColumn, pool=pool) if not one.passed]


class Centred(Nearest):
    """Shifts queries by their mean: they depend on each other."""

    def scores(self, support, query):
        return super().scores(support, query - query.mean(dim=1, keepdim=True))


class Undefined(Nearest):
    """Divides by the deviation of the shots, which one shot has not."""

    def scores(self, support, query):
        spread = support.var(dim=2, correction=0).mean(dim=(1, 2))
        return super().scores(support, query) / spread[:, None, None]


@pytest.mark.parametrize(
    ("method", "check", "sizes"),
    [
        (Centred, "check_queries_independent", (1, 2, 1, 2)),
        (Undefined, "check_other_shapes", (1, 2, 1, 1)),
    ],
)
def test_a_method_fails_in_the_smallest_episode(method, check, sizes):
    result = failed(method, check)
    expected = zip(("tasks", "ways", "shots", "queries"), sizes, strict=True)
    assert result.sizes == dict(expected)
    with pytest.raises(ConformanceError):
        exec(result.code, {})


class Noisy(Statistic):
    """Draws random numbers."""

    def per_task(self, outcomes):
        return outcomes.class_accuracy.mean(axis=1) * random.random()


def test_random_numbers_are_told_once():
    failing = [one.name for one in check_component(Noisy) if not one.passed]
    assert failing == ["check_one_number_a_task"]


def test_pytest_shows_the_smallest_example(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "from fsframework.testing import parametrize_with_checks\n"
        "from tests.testing.test_suite import FirstWay\n"
        "@parametrize_with_checks([FirstWay])\n"
        "def test_conformance(make, check):\n"
        "    check(make)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "way_order"]
    told = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "predictions = [[[1], [1]]]" in told.stdout
    assert "with example(" in told.stdout


SMALLEST = {"tasks": 1, "ways": 2, "shots": 1, "queries": 1, "images": 1}


@pytest.mark.parametrize("make", [Spread, Uniform, Consecutive, Wordy, Nearest])
def test_a_sound_component_passes_in_the_smallest_example(make):
    with example(**SMALLEST):
        assert not [one for one in check_component(make) if not one.passed]
