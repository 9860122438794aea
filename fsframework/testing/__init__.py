"""Checks that a component fulfils its contract, for authors of plugins.

A check is a plain function. It takes a callable that makes a fresh component (such as a class whose
options all have defaults), returns when the component keeps the rule in its docstring and raises
``ConformanceError`` when it does not. The checks of a kind are in the module of that name, such as
``fsframework.testing.sampler``, and can be called directly.

>>> from fsframework.interfaces import Statistic
>>> class FirstWay(Statistic):
...     '''Accuracy of the first way only: it depends on how the ways happen to be numbered.'''
...     def per_task(self, outcomes):
...         return outcomes.class_accuracy[:, 0]
>>> [result.name for result in check_component(FirstWay) if not result.passed]
['check_way_order']

In a test suite, as one parametrised test (pytest is imported only here)::

    @parametrize_with_checks([FirstWay], {FirstWay: {"check_way_order": "by design"}})
    def test_conformance(make, check):
        check(make)

Float results are compared to within a thousandth of their range. PyTorch is imported only to check
a method or a backbone. ``fsf plugins check NAME`` runs the same checks.
"""

from fsframework.testing._example import example, given_pool, note_call, size
from fsframework.testing._suite import (
    Check,
    CheckResult,
    ConformanceError,
    Make,
    NotApplicable,
    Suite,
    check_component,
    checks_for,
    counted,
    if_possible,
    parametrize_with_checks,
    require,
)
from fsframework.testing.command import installed_command
from fsframework.testing.toys import (
    toy_images,
    toy_outcomes,
    toy_pool,
    toy_record,
    toy_records,
)

__all__ = [
    "Check",
    "CheckResult",
    "ConformanceError",
    "Make",
    "NotApplicable",
    "Suite",
    "check_component",
    "checks_for",
    "counted",
    "example",
    "given_pool",
    "if_possible",
    "installed_command",
    "note_call",
    "parametrize_with_checks",
    "require",
    "size",
    "toy_images",
    "toy_outcomes",
    "toy_pool",
    "toy_record",
    "toy_records",
]
