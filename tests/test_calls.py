"""Faults of plugins: named with kind, method, place and cause, whatever is raised or returned."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pytest

from fsframework._calls import contained, is_out_of_memory, malformed, text_of
from fsframework.errors import DataError, PluginError
from fsframework.interfaces import Dataset, TaskSampler


def raising(error: BaseException) -> Any:
    """Return a method that raises an exception."""

    def method(self: Any, *_: Any, **__: Any) -> Any:
        raise error

    return method


def toy(interface: type, **methods: Any) -> Any:
    """Return an instance of a subclass with these methods, without calling a constructor."""
    abstract = dict.fromkeys(interface.__abstractmethods__, lambda self, *_, **__: None)  # type: ignore[attr-defined]
    cls = type("Toy", (interface,), {"__module__": __name__, **abstract, **methods})
    return cls.__new__(cls)


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
