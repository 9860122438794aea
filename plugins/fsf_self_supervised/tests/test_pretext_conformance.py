from __future__ import annotations

from functools import partial
from typing import Any

from fsf_methods.metric import R2D2, ProtoNet
from fsf_self_supervised.pretext import BF3S, HTS, SLA, SSFSL
from fsf_self_supervised.views import ColorPermutation, Jigsaw, Patches, Rotation
from fsframework.testing import parametrize_with_checks

TURNED = partial(Rotation, angles=(0, 180))
SWAPPED = partial(ColorPermutation, orders=("rgb", "bgr"))


def wrapped(wrapper: Any, base: Any, views: Any = TURNED, **options: Any) -> Any:
    return wrapper(base=base(), views=views(), **options)


@parametrize_with_checks(
    [
        partial(wrapped, SSFSL, ProtoNet, hidden=8),
        partial(wrapped, SSFSL, R2D2, Jigsaw, hidden=8),
        partial(wrapped, BF3S, R2D2, blocks=1),
        partial(wrapped, BF3S, ProtoNet, Patches, pretext="location"),
        partial(wrapped, SLA, ProtoNet, self_distillation=True),
        partial(wrapped, SLA, R2D2, SWAPPED),
        partial(wrapped, HTS, R2D2),
        partial(wrapped, HTS, ProtoNet, SWAPPED),
    ]
)
def test_conformance(make: Any, check: Any) -> None:
    check(make)
