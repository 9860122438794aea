"""Calls into plugins: guarded by the interface, for every kind and every method."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pytest

from fsframework._calls import about, is_out_of_memory, text_of, unguarded
from fsframework.components.kinds import KINDS
from fsframework.errors import DataError, PluginError
from fsframework.interfaces import Dataset, Statistic, TaskSampler, Workers
from fsframework.interfaces.method import FewShotMethod

INTERFACES = {kind: known.load() for kind, known in KINDS.items() if kind != "command"}
METHODS = [
    (kind, name)
    for kind, interface in INTERFACES.items()
    for name, declared in vars(interface).items()
    if inspect.isfunction(declared) and not name.startswith("_")
]


def toy(interface: type, **methods: Any) -> Any:
    """Return an instance of a subclass with these methods, without calling a constructor."""
    abstract = dict.fromkeys(interface.__abstractmethods__, lambda self, *_, **__: None)  # type: ignore[attr-defined]
    cls = type("Toy", (interface,), {**abstract, **methods})
    return cls.__new__(cls)


@pytest.mark.parametrize(("kind", "name"), METHODS, ids=lambda one: one)
@pytest.mark.parametrize("error", [SystemExit(0), KeyError("x"), StopIteration()])
def test_every_method_of_every_kind_is_guarded(kind: str, name: str, error: BaseException) -> None:
    def broken(self: Any, *_: Any, **__: Any) -> Any:
        raise error

    component = toy(INTERFACES[kind], **{name: broken})
    with (
        about("the item"),
        pytest.raises(PluginError, match=f"^{kind} 'Toy': {name} of the item raised ") as raised,
    ):
        getattr(component, name)()
    assert raised.value.__cause__ is error
    with unguarded(), pytest.raises(type(error)):
        getattr(component, name)()


def test_some_kinds_have_methods() -> None:
    """If an interface declared nothing, the test above would test nothing."""
    assert {kind for kind, _ in METHODS} == set(INTERFACES)


def test_the_workers_of_a_launcher_are_guarded() -> None:
    def broken(self: Any) -> Any:
        raise KeyError("node")

    workers = toy(Workers, states=broken, stop=broken)
    for name in ("states", "stop"):
        with pytest.raises(PluginError, match=f"^workers 'Toy': {name} raised KeyError: 'node'"):
            getattr(workers, name)()


def test_a_base_class_and_a_mixin_are_guarded_too() -> None:
    class Mixin:
        def per_task(self, outcomes: Any) -> Any:
            raise SystemExit

    class Mixed(Mixin, Statistic):
        """Takes its method from elsewhere."""

    class Derived(Mixed):
        """Is derived once more."""

    for cls in (Mixed, Derived):
        with pytest.raises(PluginError, match=f"statistic '{cls.__name__}': per_task raised"):
            cls().per_task(None)


def test_properties_are_guarded() -> None:
    class Lazy(Dataset):
        """Reads its keys when they are needed."""

        @property
        def fingerprint(self) -> str:  # type: ignore[override]
            return {}["a"]

        @cached_property
        def keys(self) -> tuple[str, ...]:  # type: ignore[override]
            raise SystemExit(3)

        def image(self, index: int) -> Any:
            return None

    with pytest.raises(PluginError, match="dataset 'Lazy': fingerprint raised KeyError: 'a'"):
        assert Lazy().fingerprint
    with pytest.raises(PluginError, match="dataset 'Lazy': keys raised SystemExit: 3"):
        assert Lazy().keys


def test_a_generator_is_guarded_while_it_yields() -> None:
    def experiments(self: Any, selection: Any) -> Iterator[Any]:
        yield 1
        raise SystemExit

    benchmark = toy(INTERFACES["benchmark"], experiments=experiments)
    found = benchmark.experiments(None)
    assert next(found) == 1
    with pytest.raises(PluginError, match="benchmark 'Toy': experiments raised SystemExit"):
        next(found)


@pytest.mark.parametrize(
    ("kind", "name", "answer", "expected"),
    [
        ("sampler", "draw", [], "returned a result of type list; it must return TaskSet"),
        ("sampler", "control", 3, "returned a result of type int; it must return Control or None"),
        ("statistic", "per_task", 0.5, "returned a result of type float; it must return ndarray"),
        ("method", "scores", None, "returned a result of type None; it must return Tensor"),
        ("benchmark", "tables", 1, "returned a result of type int; it must return Sequence"),
        ("dataset", "image", b"", "returned a result of type bytes; it must return ndarray"),
        (
            "selector",
            "select",
            "word",
            "returned a result of type str; it must return list or tuple",
        ),
        ("backbone", "forward", 1, "returned a result of type int; it must return Tensor"),
        ("renderer", "draw", 1, "returned a result of type int; it must return None"),
        ("launcher", "start", None, "returned a result of type None; it must return Workers"),
    ],
)
def test_a_result_of_another_type_is_refused(
    kind: str, name: str, answer: Any, expected: str
) -> None:
    component = toy(INTERFACES[kind], **{name: lambda self, *_: answer})
    with pytest.raises(PluginError, match=f"{kind} 'Toy': {name} {expected}"):
        getattr(component, name)()


def test_what_cannot_be_read_is_an_error_of_the_data() -> None:
    def image(self: Any, index: int) -> Any:
        raise FileNotFoundError(2, "No such file", "a.png")

    dataset = toy(Dataset, image=image)
    with pytest.raises(DataError, match=r"image raised FileNotFoundError: .* 'a.png'") as raised:
        dataset.image(0)
    assert raised.value.reason.startswith("FileNotFoundError")


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (MemoryError(), MemoryError, "method 'Toy': scores raised MemoryError"),
        (RuntimeError("CUDA: out of memory"), MemoryError, "scores raised RuntimeError: CUDA"),
        (OSError(28, "No space left"), OSError, "^.Errno 28. No space left$"),
    ],
)
def test_a_lack_of_memory_or_room_is_for_the_caller(
    error: Exception, kind: type[Exception], told: str
) -> None:
    def scores(self: Any, *_: Any) -> Any:
        raise error

    with pytest.raises(kind, match=told) as raised:
        toy(FewShotMethod, scores=scores).scores(None, None)
    assert is_out_of_memory(raised.value) == (kind is MemoryError)


def test_a_plugin_that_calls_itself_without_end_is_named() -> None:
    class Endless(TaskSampler):
        """Calls itself."""

        def draw(self, pool: Any, n_tasks: Any, seed: int) -> Any:
            return self.draw(pool, n_tasks, seed)

    with pytest.raises(PluginError, match="sampler 'Endless': draw raised RecursionError"):
        Endless().draw(None, 1, 0)


def test_the_text_of_an_error_is_one_bounded_line() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert text_of(Mute()) == "Mute (its message cannot be shown)"
    assert text_of(ValueError("a\n b\t c")) == "ValueError: a b c"
    assert len(text_of(ValueError("x" * 10_000))) < 600


def test_guarding_keeps_what_can_be_known_of_a_method() -> None:
    class Half(Statistic):
        """Halves."""

        def per_task(self, outcomes: Any) -> Any:
            """Return halves."""
            return outcomes / 2

    assert "return outcomes / 2" in inspect.getsource(Half.per_task)
    assert list(inspect.signature(Half.per_task).parameters) == ["self", "outcomes"]
    assert Half.per_task.__doc__ == "Return halves."
    assert not inspect.isabstract(Half)
