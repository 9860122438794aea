import numpy as np
import pytest

from fsf_statistics import Accuracy, WorstClassAccuracy
from fsframework.testing import parametrize_with_checks, toy_outcomes
from fsframework.values import Outcomes

# Two tasks of three ways with four queries each. Class accuracies by hand:
#   task 0: 4/4, 2/4, 1/4 -> mean 7/12, minimum 1/4
#   task 1: 0/4, 4/4, 3/4 -> mean 7/12, minimum 0
PREDICTIONS = [
    [[0, 0, 0, 0], [1, 1, 0, 2], [0, 1, 2, 0]],
    [[1, 2, 1, 2], [1, 1, 1, 1], [2, 2, 2, 0]],
]


@pytest.fixture
def outcomes():
    return Outcomes(np.array(PREDICTIONS), "digest", 30, False)


@parametrize_with_checks([Accuracy, WorstClassAccuracy])
def test_conformance(make, check):
    check(make)


def test_accuracy_by_hand(outcomes):
    assert Accuracy().per_task(outcomes) == pytest.approx([7 / 12, 7 / 12])


def test_worst_class_accuracy_by_hand(outcomes):
    assert WorstClassAccuracy().per_task(outcomes) == pytest.approx([1 / 4, 0])


def test_worst_class_accuracy_is_never_above_accuracy():
    outcomes = toy_outcomes(50)
    assert np.all(WorstClassAccuracy().per_task(outcomes) <= Accuracy().per_task(outcomes))


@pytest.mark.parametrize(("n_query", "expected"), [(15, 0.45), (100, 0.54)])
def test_the_bias_its_docstring_warns_of(n_query, expected):
    values = WorstClassAccuracy().per_task(toy_outcomes(5000, 5, n_query, accuracy=0.6))
    assert values.mean() == pytest.approx(expected, abs=0.006)
