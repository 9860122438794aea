"""Every method within every pretext method: it fits, or one sentence says why not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fsf_self_supervised.views import Rotation
from fsframework.components.conversion import parameters
from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.interfaces import Batch, FewShotMethod, OptionError
from fsframework.testing.method import ITEM_SHAPES, ToyBackbone

METHODS = {name: Registry().load("method", name) for name in Registry().names("method")}
BESIDE = {"views", "trains_on_images", "weightless"}
INSTEAD = {*BESIDE, "consumes", "embeds_images"}
OWN = {"ssfsl": BESIDE, "bf3s": BESIDE, "sla": {*INSTEAD, "n_way"}, "hts": INSTEAD}
"""What each declares itself; everything else is declared by the method within it."""

WRAPPERS: dict[str, dict[str, Any]] = {
    "ssfsl": {"hidden": 4},
    "bf3s": {"blocks": 1},
    "sla": {},
    "hts": {},
}


def made(name: str, **ways: int) -> FewShotMethod:
    """Return a method with its usual options, and with a usual method within it."""
    taken = parameters(METHODS[name])
    request: dict[str, Any] = {option: ways[option] for option in ways if option in taken}
    if "base" in taken:
        request["base"] = {"name": "r2d2"}
    method: FewShotMethod = resolve_component(
        Registry(), "method", {"name": name, **request}
    ).create()
    return method


def fits(wrapper: str, base: FewShotMethod) -> bool:
    """Return what the base's declarations say."""
    learns = base.learns_from not in ("nothing", "views")
    vectors = base.consumes == "vectors" and not base.trains_on_images
    return learns and (wrapper != "hts" or vectors)


def stepped(wrapper: str, base: FewShotMethod) -> None:
    """Build a wrapper, take a training step and score."""
    method = METHODS[wrapper](base=base, views=Rotation(angles=(0, 90)), **WRAPPERS[wrapper])
    for name in FewShotMethod.__annotations__.keys() - OWN[wrapper] - {"carried"}:
        assert getattr(method, name) == getattr(base, name), f"{wrapper}: {name}"
    backbone = ToyBackbone()
    method.build(ITEM_SHAPES[method.consumes], 8, backbone)
    way = method.n_way or 5
    images = torch.randn(1, 3 * way, 3, 20, 20)
    classes = torch.arange(way).repeat(3)[None]
    flat = torch.randn(6, 3, 20, 20)
    episodes, batches = method.learns_from != "batches", method.learns_from != "episodes"
    shown = torch.cat([images[0]] * episodes + [flat] * batches)
    views = None if method.views is None else method.views.make(shown)
    batch = Batch(
        support=images[:, :way].unsqueeze(2) if episodes else None,
        query=images[:, way:] if episodes else None,
        query_labels=classes[:, way:] if episodes else None,
        support_classes=classes[:, :way, None] if episodes else None,
        query_classes=classes[:, way:] if episodes else None,
        items=flat if batches else None,
        classes=torch.arange(6) if batches else None,
        views=None if views is None else views.images,
        applied=None if views is None else views.applied,
    )
    loss = method.train().loss(batch)
    loss.backward()
    assert torch.isfinite(loss)
    gradients = [p.grad for p in backbone.parameters() if p.grad is not None]
    assert any(bool(gradient.any()) for gradient in gradients)
    saved = [id(tensor) for tensor in method.state_dict(keep_vars=True).values()]
    assert len(set(saved)) == len(saved), "nothing must be saved twice"


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_every_method_fits_or_is_refused_in_one_sentence(wrapper: str) -> None:
    refused = 0
    for name in METHODS:
        base = made(name)
        if wrapper == "sla" and base.n_way is not None:
            with pytest.raises(OptionError, match="^base must take any number of ways, or be made"):
                stepped(wrapper, base)
            base = made(name, n_way=10)  # five ways, each with two views
        try:
            stepped(wrapper, base)
            found = None
        except OptionError as error:
            found = str(error)
        assert (found is None) == fits(wrapper, base), f"{wrapper}:{name}: {found}"
        if found is not None:
            refused += 1
            assert found.startswith("base must "), found
            assert type(base).__name__ in found
            assert "\n" not in found
    assert 5 <= refused <= len(METHODS) - 15
