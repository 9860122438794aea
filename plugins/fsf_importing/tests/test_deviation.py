"""When outputs and training losses agree, by values worked by hand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from fsf_importing.deviation import Deviation, Difference, _next, _of_labels, _of_scores
from fsf_importing.reference import Reference
from fsframework.errors import DataError

SCORES = np.array([[0.0, 2.0], [4.0, 0.0]])
"""The range of the scores is 2 for one query and 4 for the other: 3 on average."""

CLOSE, FAR = Difference(0.01, 0.0, 0.01), Difference(0.02, 0.0, 0.01)


def reference(labels: list[int] | None = None) -> Reference:
    pixels = np.zeros((4, 8, 8, 3), np.uint8)
    scores = SCORES if labels is None else None
    given = None if labels is None else np.array(labels)
    return Reference(Path("task.npz"), pixels, 2, 1, 1, scores, given, 2.0)


def test_the_difference_is_relative_to_the_range_of_the_scores() -> None:
    scores = np.add(SCORES, [[0.0, 0.0], [0.3, 0.0]])
    moved = [np.add(scores, [[0.0, -0.03], [0.0, 0.0]]), scores]
    found = _of_scores(scores, moved, reference(), 1e-3)
    assert (found.value, found.rounding) == pytest.approx((0.1, 0.01))


def test_a_difference_is_judged_by_the_tolerance_or_by_rounding_whichever_is_more() -> None:
    assert Difference(1e-3, 0.0, 1e-3).agrees
    assert not Difference(1.1e-3, 0.0, 1e-3).agrees
    assert not Difference(4.1e-3, 1e-3, 1e-3).agrees
    assert Difference(4e-3, 1e-3, 1e-3).agrees, "four rounding steps"
    assert Difference(0.05, 1.0, 1e-3).agrees
    assert not Difference(0.06, 1.0, 1e-3).agrees, "chaos excuses no more than a twentieth"
    assert Difference(0.06, 1.0, 0.07).agrees
    nan = float("nan")
    assert not Difference(nan, 0.0, 1.0).agrees
    assert not Difference(0.02, nan, 0.01).agrees


def test_labels_that_rounding_changes_are_left_out() -> None:
    moved = [SCORES, np.array([[0.0, 2.0], [1.0, 2.0]])]
    found, undecided = _of_labels(SCORES, moved, np.array([1, 1]), reference([1, 1]))
    assert (found.value, found.agrees, undecided) == (0.0, True, 1)
    found, undecided = _of_labels(SCORES, [SCORES], np.array([1, 1]), reference([1, 1]))
    assert (found.value, found.agrees, undecided) == (0.5, False, 0)
    with pytest.raises(DataError, match=r"task\.npz: one rounding step changes every label"):
        _of_labels(SCORES, [-SCORES], np.array([1, 0]), reference([1, 0]))


def test_a_perturbation_is_one_step_to_either_side() -> None:
    values = torch.full((1000,), 1.0)
    found = _next(values, torch.Generator().manual_seed(0))
    steps = torch.finfo(torch.float32).eps
    assert set(found.tolist()) == {1 + steps, 1 - steps / 2}
    assert 400 < int((found > 1).sum()) < 600


def test_outputs_and_loss_must_both_agree() -> None:
    assert Deviation(reference(), CLOSE, 2.02, CLOSE).agrees
    assert not Deviation(reference(), FAR, 2.02, CLOSE).agrees
    assert not Deviation(reference(), CLOSE, 2.04, FAR).agrees
    assert Deviation(reference(), CLOSE).agrees


def test_what_was_found_is_one_sentence() -> None:
    found = Deviation(reference(), Difference(4e-6, 2e-6, 1e-3), 2.0, Difference(0.0, 1e-7, 1e-3))
    assert re.search(r"task\.npz: .*4\.0e-06 .*2\.0e-06.* 0\.0e\+00 .*1\.0e-07", found.described())
    found = Deviation(reference([1, 0]), Difference(0.0, 0.0, 0.0), undecided=1)
    assert "task.npz: 1 of 2 labels are equal" in found.described()
