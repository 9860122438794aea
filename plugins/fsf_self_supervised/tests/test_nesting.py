"""Every method within every method that takes one: it fits, or one sentence says why not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fsf_methods.robust._heads import has_class_logits
from fsf_self_supervised.views import Rotation
from fsframework.components.conversion import parameters
from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.interfaces import Batch, FewShotMethod, OptionError
from fsframework.testing.method import ITEM_SHAPES, ToyBackbone

REGISTRY = Registry()
ELSEWHERE = {"cocoop", "coop", "in-context", "in-context-endpoint"}
"""Those that need a model of text that no toy stands in for."""
NAMES = [name for name in REGISTRY.names("method") if name not in ELSEWHERE]
METHODS = {name: REGISTRY.load("method", name) for name in NAMES}
BESIDE = {"views", "trains_on_images", "weightless"}
INSTEAD = {*BESIDE, "consumes"}
LINEAR = {"consumes", "learns_from", "uses_labels", "weightless", "needs_words"}
OWN = {
    "ata": {"trains_on_images"},
    "balanced": {"needs_words"},
    "bf3s": BESIDE,
    "dfr": LINEAR,
    "ft": set(),
    "group-dro": {"needs_words"},
    "hts": INSTEAD,
    "ifsl": {"consumes", "learns_from", "uses_labels", "weightless"},
    "jtt": set(),
    "lrp": set(),
    "sla": {*INSTEAD, "n_way"},
    "ssfsl": BESIDE,
    "support-weighted": {"needs_words"},
    "text-projected": {"needs_words"},
    "word-projected": LINEAR,
}
"""What each declares itself; everything else is declared by the method within it."""
TURNED = Rotation(angles=(0, 90))
OPTIONS: dict[str, dict[str, Any]] = {
    "bf3s": {"views": TURNED, "blocks": 1},
    "hts": {"views": TURNED},
    "ifsl": {"n_splits": 2},
    "sla": {"views": TURNED},
    "ssfsl": {"views": TURNED, "hidden": 4},
}
NEEDS_A_BACKBONE = {"deta", "fgfl", "ft", "tsa"}
"""Those that cannot be built for a part of a vector: without layers to change, or too small."""


def made(name: str, **ways: int) -> FewShotMethod:
    """Return a method with its usual options, and with a usual method within it."""
    taken = parameters(METHODS[name])
    request: dict[str, Any] = {option: ways[option] for option in ways if option in taken}
    if "base" in taken:
        request["base"] = "baseline" if name == "jtt" else "r2d2"
    if name == "ifsl":
        request["n_splits"] = 2
    return resolve_component(REGISTRY, "method", {"name": name, **request}).create()


def fits(wrapper: str, name: str, base: FewShotMethod) -> bool:
    """Return what the base's declarations say."""
    learns = base.learns_from not in ("nothing", "views")
    on_images = base.trains_on_images
    episodes = base.learns_from in ("episodes", "both") and not on_images
    if wrapper in ("ifsl", "sla") and (base.needs_words or base.needs_class_names):
        return False
    labelled = learns and base.views is None and base.uses_labels
    linear = not on_images and base.views is None and base.consumes == "vectors"
    return {
        "ata": episodes and base.views is None,
        "balanced": labelled,
        "bf3s": learns,
        "dfr": linear,
        "ft": base.learns_from != "nothing",
        "group-dro": labelled and (base.learns_from != "batches" or has_class_logits(base)),
        "hts": learns and base.consumes == "vectors" and not on_images,
        "ifsl": not on_images
        and base.views is None
        and base.consumes != "maps"
        and name not in NEEDS_A_BACKBONE,
        "jtt": labelled and base.learns_from != "episodes" and has_class_logits(base),
        "lrp": episodes and base.consumes != "images",
        "sla": learns,
        "ssfsl": learns,
        "support-weighted": base.consumes != "images" or base.embeds,
        "text-projected": base.consumes == "vectors" and not base.embeds,
        "word-projected": linear,
    }[wrapper]


def nested(wrapper: str, base: FewShotMethod) -> None:
    """Build a wrapper, and take a training step if it shows views."""
    method = METHODS[wrapper](base=base, **OPTIONS.get(wrapper, {}))
    for name in FewShotMethod.__annotations__.keys() - OWN[wrapper] - {"carried"}:
        assert getattr(method, name) == getattr(base, name), f"{wrapper}: {name}"
    backbone = ToyBackbone()
    method.build(ITEM_SHAPES[method.consumes], 8, backbone)
    saved = [id(tensor) for tensor in method.state_dict(keep_vars=True).values()]
    assert len(set(saved)) == len(saved), "nothing must be saved twice"
    if "views" not in OPTIONS.get(wrapper, {}):
        return
    loss = method.train().loss(shown(method))
    loss.backward()
    assert torch.isfinite(loss)
    gradients = [p.grad for p in backbone.parameters() if p.grad is not None]
    assert any(bool(gradient.any()) for gradient in gradients)


def shown(method: FewShotMethod) -> Batch:
    """Return what a training step shows a method that is trained on images."""
    way = method.n_way or 5
    images, flat = torch.randn(1, 2 * way, 3, 20, 20), torch.randn(6, 3, 20, 20)
    classes = torch.arange(way).repeat(2)[None]
    fields: dict[str, Any] = {}
    seen = []
    if method.learns_from != "batches":
        seen.append(images[0])
        fields |= {"support": images[:, :way].unsqueeze(2), "query": images[:, way:]}
        fields |= {"query_labels": classes[:, way:], "query_classes": classes[:, way:]}
        fields |= {"support_classes": classes[:, :way, None]}
    if method.learns_from != "episodes":
        seen.append(flat)
        fields |= {"items": flat, "classes": torch.arange(6)}
    if method.needs_words:
        have = torch.rand(1, 2 * way, 4) < 0.5
        fields |= {"support_words": have[:, :way, None], "query_words": have[:, way:]}
        fields |= {"words": torch.rand(6, 4) < 0.5}
    if method.views is not None:
        views = method.views.make(torch.cat(seen))
        fields |= {"views": views.images, "applied": views.applied}
    return Batch(**fields)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("wrapper", OWN)
def test_every_method_fits_or_is_refused_in_one_sentence(wrapper: str) -> None:
    refused = 0
    for name in METHODS:
        base, found = made(name), None
        if wrapper == "sla" and base.n_way is not None:
            with pytest.raises(OptionError, match="^base must take any number of ways, or be made"):
                nested(wrapper, base)
            base = made(name, n_way=10)  # five ways, each with two views
        try:
            nested(wrapper, base)
        except OptionError as error:
            found = str(error)
        assert (found is None) == fits(wrapper, name, base), f"{wrapper}:{name}: {found}"
        if found is not None:
            refused += 1
            assert found.startswith("base "), found
            assert type(base).__name__ in found
            assert "\n" not in found
    assert 5 <= refused <= len(METHODS) - 10
