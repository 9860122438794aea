"""Each check of statistics rejects the one broken component made for it, and nothing else does."""

import numpy as np
import pytest

from fsframework.interfaces import Statistic
from fsframework.testing import check_component, checks_for, parametrize_with_checks
from tests.misdeclared import hashed, misdeclared


class Spread(Statistic):
    """Distance between the best and the worst class, sharpened by a power."""

    def __init__(self, *, power: float = 1.0):
        self.power = power

    def per_task(self, outcomes):
        accuracy = outcomes.class_accuracy
        return (accuracy.max(axis=1) - accuracy.min(axis=1)) ** self.power


class NoStatistic:
    """It has the methods but not the interface."""

    def per_task(self, outcomes):
        return outcomes.class_accuracy.mean(axis=1)


class Untyped(Spread):
    """An option without a type."""

    def __init__(self, *, power=1.0):
        super().__init__(power=power)


class Unstored(Spread):
    """An option under another name."""

    def __init__(self, *, exponent: float = 1.0):
        super().__init__(power=exponent)


class Silent(Spread):
    pass


class Column(Spread):
    """One number a task, in a column."""

    def per_task(self, outcomes):
        return super().per_task(outcomes)[:, None]


class Percent(Spread):
    """A percentage within bounds of a share."""

    def per_task(self, outcomes):
        return 100 * super().per_task(outcomes)


class Backward(Spread):
    """It declares that large errors are good."""

    def per_task(self, outcomes):
        return 1 - outcomes.class_accuracy.min(axis=1)


class Hashed(Spread):
    """Its values depend on the hashes of the process."""

    def per_task(self, outcomes):
        return super().per_task(outcomes) / (1 + hashed())


class Overconfident(Spread):
    """An interval beside its mean."""

    def interval(self, outcomes, level):
        mean = float(self.per_task(outcomes).mean())
        return mean + 0.01, mean + 0.02


class Bootstrapped(Spread):
    """An interval of the global generator."""

    def interval(self, outcomes, level):
        mean, half = float(self.per_task(outcomes).mean()), level * np.random.rand() / 9  # noqa: NPY002
        return max(0.0, mean - half), min(1.0, mean + half)


class HashedInterval(Spread):
    """An interval that depends on the hashes of the process."""

    def interval(self, outcomes, level):
        mean, half = float(self.per_task(outcomes).mean()), level / (9 + hashed())
        return max(0.0, mean - half), min(1.0, mean + half)


class Optimist(Spread):
    """It takes what guessing gives for what Acc would have."""

    def guessing(self, n_way, n_query):
        return 1 / n_way


class Muttering(Spread):
    """A sentence instead of a list of sentences."""

    def notes(self, outcomes, gap):
        return f"the gap is {gap}"


class Squeezed(Spread):
    """A number instead of an array for one task."""

    def per_task(self, outcomes):
        return np.squeeze(super().per_task(outcomes))


class FiveWays(Spread):
    """A constant where a size is meant."""

    def per_task(self, outcomes):
        return super().per_task(outcomes)[: len(outcomes) - abs(outcomes.n_way - 5)]


class Centred(Spread):
    """The other tasks shift a task."""

    def per_task(self, outcomes):
        values = super().per_task(outcomes)
        return (values + values.mean()) / 2


class FirstQuery(Statistic):
    """Only the first query of each class counts."""

    def per_task(self, outcomes):
        truth = np.arange(outcomes.n_way)
        return (outcomes.predictions[:, :, 0] == truth).mean(axis=1)


class FirstWay(Statistic):
    """Only the first way counts."""

    def per_task(self, outcomes):
        return outcomes.class_accuracy[:, 0]


class Destructive(Spread):
    """The outcomes do not survive."""

    def per_task(self, outcomes):
        values = super().per_task(outcomes)
        outcomes.predictions.flags.writeable = True
        outcomes.predictions[:] = 0
        return values


class Remembering(Spread):
    """The first values seen are kept for all outcomes of that shape."""

    def __init__(self, *, power: float = 1.0):
        super().__init__(power=power)
        self._seen = {}

    def per_task(self, outcomes):
        return self._seen.setdefault(outcomes.predictions.shape, super().per_task(outcomes))


class Peeping(Spread):
    """The outcomes' fields instead of their names."""

    def per_task(self, outcomes):
        vars(outcomes)["predictions"]
        return super().per_task(outcomes)


BROKEN = {
    "check_construction": NoStatistic,
    "check_options_typed": Untyped,
    "check_options_stored": Unstored,
    "check_summary": Silent,
    **misdeclared(Spread),
    "check_one_number_a_task": Column,
    "check_bounds": Percent,
    "check_direction": Backward,
    "check_own_interval": Overconfident,
    "check_single_task": Squeezed,
    "check_other_shapes": FiveWays,
    "check_tasks_independent": Centred,
    "check_query_order": FirstQuery,
    "check_way_order": FirstWay,
    "check_outcomes_unchanged": Destructive,
    "check_no_memory": Remembering,
    "check_without_predictions": Peeping,
    "check_guessing": Optimist,
    "check_notes": Muttering,
    "check_fresh_process": Hashed,
}


class WholeScale(Spread):
    """An interval that promises nothing."""

    def interval(self, outcomes, level):
        return self.bounds


@parametrize_with_checks([Spread, WholeScale])
def test_a_sound_statistic_passes(make, check):
    check(make)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", BROKEN)
def test_only_its_check_rejects(name, failing):
    assert failing(BROKEN[name], "statistic") == {name}


@pytest.mark.parametrize(
    ("statistic", "check", "told"),
    [
        (Bootstrapped, "check_own_interval", "random"),
        (HashedInterval, "check_fresh_process", "call  interval(outcomes, 0.95)"),
        (Hashed, "check_fresh_process", "call  per_task(outcomes)"),
    ],
)
def test_the_call_or_cause_is_told(statistic, check, told):
    [failed] = [result for result in check_component(statistic) if not result.passed]
    assert failed.name == check
    assert told in str(failed)


def test_every_check_has_its_broken_statistic():
    assert list(BROKEN) == [check.__name__ for check in checks_for("statistic")]
