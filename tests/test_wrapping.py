"""A wrapper forwards the whole contract of methods, whatever that contract becomes."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

from fsframework.interfaces import Backbone, Batch, FewShotMethod, MethodWrapper, ViewMaker
from fsframework.testing.method import ToyBackbone
from tests.toys import Prototypes

DECLARATIONS = sorted(FewShotMethod.__annotations__)
HOOKS = sorted(
    name
    for name, value in vars(FewShotMethod).items()
    if inspect.isfunction(value) and not name.startswith("_")
)
BUILT_ON_HOOKS = {"embed_episode"}
"""Calls ``embed``, so a wrapper that overrides ``embed`` needs its own."""


class Plain(MethodWrapper):
    """Another method, unchanged."""


@pytest.mark.parametrize("name", DECLARATIONS)
def test_every_declaration_is_that_of_the_base(name: str) -> None:
    base, value = Prototypes(), {"given": torch.ones(1)} if name == "carried" else object()
    setattr(base, name, value)
    found = getattr(Plain(base=base), name)
    if name == "carried":
        assert found == {"0.given": value["given"]}  # type: ignore[index]
    else:
        assert found is value


@pytest.mark.parametrize("name", [name for name in HOOKS if name not in BUILT_ON_HOOKS])
def test_every_hook_reaches_the_base(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    asked = inspect.signature(getattr(FewShotMethod, name)).parameters
    results: dict[str, Any] = {
        "build": None,
        "read_with": None,
        "after_step": None,
        **dict.fromkeys(
            (
                *("embed", "embed_names", "embed_words", "scores", "scores_with"),
                *("class_logits", "view_vectors", "loss"),
            ),
            torch.zeros(()),
        ),
    }
    monkeypatch.setattr(Prototypes, name, lambda _, *given: (calls.append(given), results[name])[1])
    given: tuple[Any, ...] = tuple({} if name == "after_step" else one for one in [*asked][1:])
    found = getattr(Plain(base=Prototypes()), name)(*given)
    assert calls == [given]
    assert found is results[name]


def test_what_a_subclass_declares_is_its_own() -> None:
    class Own(Plain):
        """Declares by a value, by an annotation, and in its constructor."""

        learns_from = "both"
        views: ViewMaker

        def __init__(self, *, base: FewShotMethod) -> None:
            super().__init__(base=base)
            self.transductive = True

    class Below(Own):
        """Inherits what its parent declares."""

    base = Prototypes()
    base.learns_from, base.views, base.n_way = "batches", object(), 7  # type: ignore[assignment]
    wrapped = Below(base=base)
    assert (wrapped.learns_from, wrapped.views, wrapped.transductive) == ("both", None, True)
    assert wrapped.n_way == 7


class Remembering(Prototypes):
    """Carries its queries, and adds them up after a step."""

    total: Tensor

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        self.register_buffer("total", torch.zeros(()))

    def loss(self, batch: Batch) -> Tensor:
        assert batch.query is not None
        self.carried = {"seen": batch.query[0]}
        return super().loss(batch)

    def after_step(self, carried: Any) -> None:
        self.total += carried["seen"].sum()


class Doubled(MethodWrapper):
    """A second base sees the queries times ten."""

    def __init__(self, *, base: FewShotMethod) -> None:
        super().__init__(base=base)
        self.other = Remembering()

    @property
    def bases(self) -> list[FewShotMethod]:
        return [self.base, self.other]

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        super().build(item_shape, n_base_classes, backbone)
        self.other.build(item_shape, n_base_classes, backbone)

    def loss(self, batch: Batch) -> Tensor:
        assert batch.query is not None
        larger = Batch(batch.support, 10 * batch.query, batch.query_labels)
        return self.base.loss(batch) + self.other.loss(larger)


def test_each_base_acts_on_what_its_own_loss_has_left() -> None:
    method = Plain(base=Doubled(base=Remembering()))
    method.build((2,), 0, ToyBackbone())
    batch = Batch(torch.zeros(1, 2, 1, 2), torch.ones(1, 3, 2), torch.zeros(1, 3).long())
    method.loss(batch)
    carried, method.carried = method.carried, {}
    assert {name: len(rows) for name, rows in carried.items()} == {"0.0.seen": 3, "0.1.seen": 3}
    assert method.carried == {}
    method.after_step(carried)
    assert [inner.total.item() for inner in method.base.bases] == [6, 60]
