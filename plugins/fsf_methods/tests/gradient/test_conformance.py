"""The conformance checks of methods, with the options that change how they work."""

from __future__ import annotations

from functools import partial
from typing import Any

from fsf_methods.gradient import ANIL, BOIL, LEO, MAML
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks(
    [
        MAML,
        partial(MAML, head="shared", batch_norm="running"),
        partial(MAML, first_order=True),
        ANIL,
        partial(ANIL, head="shared"),
        partial(ANIL, first_order=True, n_way=3),
        BOIL,
        partial(BOIL, testing="nil", batch_norm="running"),
        partial(BOIL, first_order=True, classifier_lr=0.1, n_way=3),
        LEO,
        partial(LEO, sample=False, bias=True, spread="relu", orthogonal="outputs"),
        partial(LEO, learned_rates=False, first_order=True, dropout=0.1),
    ]
)
def test_conformance(make: Any, check: Any) -> None:
    check(make)
