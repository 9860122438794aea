"""All methods pass the checks that every method passes."""

from __future__ import annotations

from functools import partial
from typing import Any

from fsf_methods.transfer import NCC, Logistic
from fsf_self_supervised.methods import BECLR, MoCo, OpTA, PsCo, SimCLR, UniSiam
from fsframework.testing import parametrize_with_checks
from tests.toy_views import Dimmed

METHODS = [
    partial(SimCLR, views=Dimmed()),
    partial(SimCLR, views=Dimmed(), head="none"),
    partial(MoCo, views=Dimmed(), queue=64, parts=2),
    partial(UniSiam, views=Dimmed()),
    partial(UniSiam, views=Dimmed(), teacher_width=16),
    partial(PsCo, views=Dimmed(), queue=64, width=16, hidden=32),
    partial(
        BECLR, views=Dimmed(), inference=NCC(), memory=96, clusters=4, start=2, k=2, momentum=0.9
    ),
    partial(OpTA, classifier=Logistic()),
]


@parametrize_with_checks(METHODS)
def test_conformance(make: Any, check: Any) -> None:
    check(make)
