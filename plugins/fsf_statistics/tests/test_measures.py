"""Names of measures, matched against statistics and arms."""

from __future__ import annotations

import pytest

from fsf_statistics.equal_tasks import measures_named
from fsframework.errors import OptionError
from fsframework.values import Contrast

ARMS, CONTRAST = ["random", "biased"], Contrast("random", "biased")
STATISTICS = ["acc", "wacc", "range-gap", "range"]


def found(*names: str, arms=ARMS, contrast=CONTRAST) -> list[tuple[str, tuple[str, ...]]]:
    made = measures_named(names, STATISTICS, arms, contrast)
    return [(one.statistic, one.arms) for one in made]


def test_a_statistic_is_compared_in_every_arm() -> None:
    assert found("wacc") == [("wacc", ("random",)), ("wacc", ("biased",))]
    assert found("acc", arms=["iid"], contrast=None) == [("acc", ("iid",))]


def test_a_measure_is_a_statistic_on_an_arm_or_on_the_contrast() -> None:
    assert found("wacc-biased") == [("wacc", ("biased",))]
    assert found("acc-gap") == [("acc", ("random", "biased"))]
    assert found("gap") == [("wacc", ("random", "biased"))]


def test_names_are_never_cut() -> None:
    # A statistic whose own name ends in -gap, beside one of whose measures it is the name.
    assert found("range-gap") == [("range-gap", ("random",)), ("range-gap", ("biased",))]
    assert found("range-gap-gap") == [("range-gap", ("random", "biased"))]
    assert found("range-gap-biased") == [("range-gap", ("biased",))]
    odd = Contrast("r-gap", "gap")
    assert found("acc-r-gap", arms=list(odd.arms), contrast=odd) == [("acc", ("r-gap",))]


def test_what_is_asked_for_twice_is_compared_once() -> None:
    assert found("wacc", "wacc-random") == found("wacc")


@pytest.mark.parametrize(
    ("name", "arms", "contrast", "part"),
    [
        ("wacc-ood", ARMS, CONTRAST, "acc-random, acc-biased, acc-drop, acc-gap"),
        ("wacc-biasd", ARMS, CONTRAST, "did you mean 'wacc-biased'"),
        ("wacc-R", ARMS, CONTRAST, "(acc, wacc, range-gap, range)"),
        ("gap", ["tasks"], None, "acc-tasks"),
    ],
)
def test_an_unknown_name_is_told_what_there_is(name, arms, contrast, part) -> None:
    with pytest.raises(OptionError) as caught:
        found(name, arms=arms, contrast=contrast)
    assert part in str(caught.value)
