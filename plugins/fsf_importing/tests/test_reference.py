"""When outputs and training losses agree, by values worked by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fsf_importing.reference import Deviation, Reference, _difference

SCORES = np.array([[0.0, 2.0], [4.0, 0.0]])
"""The range of the scores is 2 for one query and 4 for the other: 3 on average."""


def reference(labels: list[int] | None = None) -> Reference:
    pixels = np.zeros((4, 8, 8, 3), np.uint8)
    scores = SCORES if labels is None else None
    given = None if labels is None else np.array(labels)
    return Reference(Path("task.npz"), pixels, 2, 1, 1, scores, given, 2.0)


def test_the_difference_is_relative_to_the_range_of_the_scores() -> None:
    assert _difference(np.add(SCORES, [[0.0, 0.0], [0.3, 0.0]]), reference()) == pytest.approx(0.1)
    assert _difference(SCORES, reference([1, 1])) == 0.5


def test_outputs_and_loss_must_both_be_within_the_tolerance() -> None:
    assert Deviation(reference(), 0.01, 2.02, 0.01, 0.01).agrees
    assert not Deviation(reference(), 0.02, 2.02, 0.01, 0.01).agrees
    assert not Deviation(reference(), 0.01, 2.04, 0.02, 0.01).agrees
    assert Deviation(reference(), 0.01, None, None, 0.01).agrees
    assert not Deviation(reference([1, 1]), 0.5, None, None, 1.0).agrees, "labels must be equal"


def test_what_was_found_is_one_sentence() -> None:
    assert Deviation(reference(), 4e-6, 2.0, 0.0, 1e-3).described() == (
        "compared with task.npz: largest difference 4.0e-06 of the range of the scores, training "
        "loss 0.0e+00 apart"
    )
    assert Deviation(reference([1, 0]), 0.0, None, None, 1e-3).described() == (
        "compared with task.npz: all 2 labels are equal"
    )
