"""Faults of plugins: named with kind, method, place and cause, whatever is raised or returned."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import fsframework as fsf
from fsframework._calls import about, contained, is_out_of_memory, malformed, text_of
from fsframework.errors import DataError, PluginError
from fsframework.interfaces import AttributeDetector, Dataset, Statistic, TaskSampler
from fsframework.testing.toys import toy_pool
from fsframework.values import ArmOutcomes, Outcomes


def raising(error: BaseException) -> Any:
    """Return a method that raises an exception."""

    def method(self: Any, *_: Any, **__: Any) -> Any:
        raise error

    return method


def outcomes() -> ArmOutcomes:
    """Return the outcomes of a few tasks."""
    tasks = fsf.draw("random", toy_pool(), tasks=2, way=2, shot=1, queries=2)
    found = Outcomes.of(tasks["random"], np.zeros(tasks["random"].query.shape, int))
    return ArmOutcomes({"random": found}, tasks)


def toy(interface: type, **methods: Any) -> Any:
    """Return an instance of a subclass with these methods, without calling a constructor."""
    abstract = dict.fromkeys(interface.__abstractmethods__, lambda self, *_, **__: None)  # type: ignore[attr-defined]
    cls = type("Toy", (interface,), {"__module__": __name__, **abstract, **methods})
    return cls.__new__(cls)


@pytest.mark.parametrize("error", [SystemExit, KeyError, StopIteration, AssertionError])
@pytest.mark.parametrize(
    ("interface", "name"),
    [(TaskSampler, "draw"), (Statistic, "per_task"), (AttributeDetector, "detect")],
)
def test_a_fault_names_plugin_item_and_place(
    interface: type, name: str, error: type[BaseException]
) -> None:
    component = toy(interface, **{name: raising(error())})
    kind = interface._kind  # type: ignore[attr-defined]
    with pytest.raises(PluginError) as raised, contained(), about("the item"):
        getattr(component, name)()
    assert f"{kind} 'Toy'" in str(raised.value)
    assert f"of the item raised {error.__name__}" in str(raised.value)
    assert "test_calls.py, line" in str(raised.value)
    assert isinstance(raised.value.__cause__, error)


def test_public_functions_contain_faults() -> None:
    class Exiting(TaskSampler):
        def draw(self, pool: Any, n_tasks: Any, seed: int) -> Any:
            raise SystemExit(0)

    class Endless(Statistic):
        def per_task(self, outcomes: Any) -> Any:
            return self.per_task(outcomes)

    with pytest.raises(PluginError, match="sampler 'exiting': draw raised SystemExit: 0"):
        fsf.draw(Exiting, toy_pool(), tasks=2)
    with pytest.raises(PluginError, match="statistic 'endless': per_task raised RecursionError"):
        fsf.estimate(outcomes(), Endless)


def test_properties_constructors_and_generators_are_ascribed_to_their_class() -> None:
    class Lazy(Dataset):
        def __init__(self) -> None:
            raise SystemExit(3)

        @property
        def fingerprint(self) -> str:  # type: ignore[override]
            return {}["a"]

        @cached_property
        def keys(self) -> tuple[str, ...]:  # type: ignore[override]
            raise SystemExit(3)

        def image(self, index: int) -> Any:
            return None

        def rows(self) -> Iterator[int]:
            yield 1
            raise SystemExit(3)

    found = Lazy.__new__(Lazy)
    for call, name in (
        (Lazy, "its constructor"),
        (lambda: found.fingerprint, "fingerprint"),
        (lambda: found.keys, "keys"),
        (lambda: list(found.rows()), "rows"),
    ):
        with pytest.raises(PluginError, match=f"dataset 'Lazy': {name} raised"), contained():
            call()


@pytest.mark.parametrize("answer", [None, 0.5, "high"])
def test_a_result_of_another_type_is_refused(answer: Any) -> None:
    class Odd(Statistic):
        def per_task(self, outcomes: Any) -> Any:
            return answer

    class OddSampler(TaskSampler):
        def draw(self, pool: Any, n_tasks: Any, seed: int) -> Any:
            return answer

    with pytest.raises(PluginError, match="'odd': per_task returned .* must return ndarray"):
        fsf.estimate(outcomes(), Odd)
    with pytest.raises(PluginError, match="'odd-sampler': draw returned .* must return TaskSet"):
        fsf.draw(OddSampler, toy_pool(), tasks=2)


def test_a_fault_of_ours_is_not_ascribed_to_a_plugin() -> None:
    with pytest.raises(KeyError), contained():
        raise KeyError("ours")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError(2, "No such file", "a.png"), DataError),
        (MemoryError(), MemoryError),
        (RuntimeError("CUDA: out of memory"), MemoryError),
        (OSError(28, "No space left"), OSError),
        (malformed(object(), "scores", "this", "that"), PluginError),
    ],
)
def test_what_is_no_fault_of_the_plugin_stays_what_it_is(
    error: Exception, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as raised, contained():
        toy(TaskSampler, draw=raising(error)).draw()
    assert is_out_of_memory(raised.value) == (kind is MemoryError)
    assert not isinstance(raised.value, DataError) or raised.value.reason == text_of(error)


def test_the_text_of_an_error_is_one_bounded_line() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert text_of(Mute()) == "Mute (its message cannot be shown)"
    assert text_of(ValueError("a\n b\t c")) == "ValueError: a b c"
    assert len(text_of(ValueError("x" * 10_000))) < 600
