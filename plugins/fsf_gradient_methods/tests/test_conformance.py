"""What every few-shot method must keep, with the options that change how they work."""

from __future__ import annotations

from functools import partial
from typing import Any

from fsf_gradient_methods import ANIL, MAML
from fsframework.testing import parametrize_with_checks


@parametrize_with_checks(
    [
        MAML,
        partial(MAML, head="shared", batch_norm="running"),
        partial(MAML, head="shared", first_order=True),
        ANIL,
        partial(ANIL, head="shared"),
        partial(ANIL, first_order=True, n_way=3),
    ]
)
def test_conformance(make: Any, check: Any) -> None:
    check(make)
