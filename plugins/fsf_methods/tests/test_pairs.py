"""Every method within every method that takes one: it fits, or one sentence says why not."""

from __future__ import annotations

import pytest

from fsframework.components.conversion import parameters
from fsframework.components.registry import Registry
from fsframework.components.resolution import resolve_component
from fsframework.interfaces import FewShotMethod, OptionError
from fsframework.testing.method import ITEM_SHAPES, ToyBackbone

METHODS = {name: Registry().load("method", name) for name in Registry().names("method")}
WRAPPERS = ["ata", "ft", "ifsl", "lrp"]
OWN = {
    "ata": {"trains_on_images"},
    "ft": set(),
    "ifsl": {"consumes", "learns_from", "uses_labels", "weightless"},
    "lrp": set(),
}
"""What each declares itself; everything else is declared by the method within it."""
OPTIONS = {"ifsl": {"n_splits": 2}}
NEEDS_A_BACKBONE = {"deta", "fgfl", "ft", "tsa"}
"""Those that cannot be built for a part of a vector: without layers to change, or too small."""


def made(name: str) -> FewShotMethod:
    """Return a method with its usual options, and with a usual method within it."""
    within = {"base": "r2d2"} if "base" in parameters(METHODS[name]) else {}
    request = {"name": name, **within, **OPTIONS.get(name, {})}
    method: FewShotMethod = resolve_component(Registry(), "method", request).create()
    return method


def fits(wrapper: str, name: str, base: FewShotMethod) -> bool:
    """Return what the base's declarations say."""
    episodes = base.learns_from in ("episodes", "both")
    return {
        "ft": base.learns_from != "nothing",
        "ata": episodes and not base.trains_on_images and base.views is None,
        "lrp": episodes and not base.trains_on_images and base.consumes != "images",
        "ifsl": not base.trains_on_images
        and base.views is None
        and base.consumes != "maps"
        and name not in NEEDS_A_BACKBONE,
    }[wrapper]


def refusal(wrapper: str, base: FewShotMethod) -> str | None:
    """Return why a base is refused; ``None`` if it is not."""
    try:
        method = METHODS[wrapper](base=base, **OPTIONS.get(wrapper, {}))
        for name in FewShotMethod.__annotations__.keys() - OWN[wrapper] - {"carried"}:
            assert getattr(method, name) == getattr(base, name), f"{wrapper}: {name}"
        method.build(ITEM_SHAPES[method.consumes], 8, ToyBackbone())
    except OptionError as error:
        return str(error)
    return None


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_every_method_fits_or_is_refused_in_one_sentence(wrapper: str) -> None:
    refused = 0
    for name in METHODS:
        base = made(name)
        found = refusal(wrapper, base)
        assert (found is None) == fits(wrapper, name, base), f"{wrapper}:{name}: {found}"
        if found is not None:
            refused += 1
            assert found.startswith("base "), found
            assert type(base).__name__ in found
            assert "\n" not in found
    assert 8 <= refused <= len(METHODS) - 15
