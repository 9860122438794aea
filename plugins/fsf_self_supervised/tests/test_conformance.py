"""All methods and makers of views pass the checks of their kind."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from fsf_methods.metric import R2D2, ProtoNet
from fsf_methods.transfer import NCC, Logistic
from fsf_self_supervised.methods import BECLR, MoCo, OpTA, PsCo, SimCLR, UniSiam
from fsf_self_supervised.pretext import BF3S, HTS, SLA, SSFSL
from fsf_self_supervised.views import (
    ColorPermutation,
    Jigsaw,
    MoCoV2,
    MultiCrop,
    Patches,
    Product,
    Rotation,
)
from fsf_self_supervised.views import SimCLR as SimCLRViews
from fsframework.testing import parametrize_with_checks
from tests.toy_views import Dimmed

TURNED = partial(Rotation, angles=(0, 180))
SWAPPED = partial(ColorPermutation, orders=("rgb", "bgr"))

MAKERS = [
    *(ColorPermutation, Jigsaw, MoCoV2, MultiCrop, Patches, Rotation),
    partial(Product, first=Rotation(), then=ColorPermutation()),
]
METHODS = [
    partial(SimCLR, views=Dimmed()),
    partial(MoCo, views=Dimmed(), queue=64, parts=2),
    partial(UniSiam, views=Dimmed()),
    partial(PsCo, views=Dimmed(), queue=64, width=64, hidden=128, temperature=0.5),
    partial(
        BECLR, views=Dimmed(), inference=NCC(), memory=96, clusters=4, start=2, k=2, momentum=0.9
    ),
    partial(OpTA, classifier=Logistic()),
]


def wrapped(wrapper: Any, base: Any, views: Any = TURNED, **options: Any) -> Any:
    return wrapper(base=base(), views=views(), **options)


PRETEXT = [
    partial(wrapped, SSFSL, ProtoNet, hidden=8),
    partial(wrapped, BF3S, R2D2, blocks=1),
    partial(wrapped, SLA, ProtoNet, self_distillation=True),
    partial(wrapped, HTS, R2D2),
]


OTHER_OPTIONS = [
    TURNED,
    partial(Patches, gap=0.0),
    partial(Jigsaw, grid=2, n_permutations=24),
    partial(MultiCrop, n_small=0),
    partial(Product, first=SimCLRViews(), then=Patches(grid=2)),
    partial(SimCLR, views=Dimmed(), head="none"),
    partial(UniSiam, views=Dimmed(), teacher_width=16),
    partial(wrapped, SSFSL, R2D2, Jigsaw, hidden=8),
    partial(wrapped, BF3S, ProtoNet, Patches, pretext="location"),
    partial(wrapped, SLA, R2D2, partial(Product, first=TURNED(), then=SWAPPED())),
    partial(wrapped, HTS, ProtoNet, SWAPPED),
]


@parametrize_with_checks([*MAKERS, *METHODS, *PRETEXT])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


@pytest.mark.slow
@parametrize_with_checks(OTHER_OPTIONS)
def test_conformance_with_other_options(make: Any, check: Any) -> None:
    check(make)
