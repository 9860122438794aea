"""The machinery: how checks are found, run, reported, and handed to pytest."""

import functools
import importlib
import subprocess
import sys
import warnings
from typing import ClassVar

import numpy as np
import pytest

from fsframework.components.kinds import KINDS, kind_of
from fsframework.interfaces import Statistic
from fsframework.testing import (
    CheckResult,
    ConformanceError,
    check_component,
    checks_for,
    parametrize_with_checks,
)
from fsframework.testing._suite import options_of


class Mean(Statistic):
    """Mean class accuracy, times a factor."""

    def __init__(self, *, factor: float = 1.0):
        self.factor = factor

    def per_task(self, outcomes):
        return self.factor * outcomes.class_accuracy.mean(axis=1)


class FirstWay(Mean):
    """The first way alone."""

    def per_task(self, outcomes):
        return outcomes.class_accuracy[:, 0]


def results(make, kind="statistic"):
    return {result.name: result for result in check_component(make, kind)}


@pytest.mark.parametrize("kind", KINDS)
def test_every_check_is_documented_and_has_a_name_of_its_own(kind):
    checks = checks_for(kind)
    names = [check.__name__ for check in checks]
    assert len(set(names)) == len(names)
    assert all(name.startswith("check_") for name in names)
    assert all(check.__doc__.strip() for check in checks)


@pytest.mark.parametrize("kind", KINDS)
def test_checks_can_be_called_by_name(kind):
    module = importlib.import_module(f"fsframework.testing.{kind}")
    own = [check for check in checks_for(kind) if hasattr(module, check.__name__)]
    assert len(own) >= len(checks_for(kind)) - 9  # eight are common, and that of a fresh process


def test_checks_are_found_by_class_too():
    assert checks_for(Mean) == checks_for("statistic")


def test_an_unknown_kind_is_an_error():
    with pytest.raises(ValueError, match="there are no checks for 'metric'"):
        checks_for("metric")
    with pytest.raises(ValueError, match="there are no checks for <class 'int'>"):
        checks_for(int)
    with pytest.raises(ValueError, match="int is not a component"):
        check_component(int)


def test_the_kind_follows_from_the_component():
    assert kind_of(Mean) == kind_of(Mean()) == "statistic"
    assert kind_of(3) is None
    for make in (Mean, functools.partial(Mean, factor=0.5), lambda: Mean(factor=0.5)):
        assert all(result.passed for result in check_component(make))


def test_a_failure_says_what_and_how():
    result = results(FirstWay)["check_way_order"]
    assert result.outcome == "failed"
    assert not result.passed
    assert result.rule == "The numbering of the ways does not matter."
    assert result.sizes == {"tasks": 1, "ways": 2, "queries": 1}
    assert result.call == "per_task(outcomes), outcomes.predictions = [[[1], [1]]]"
    assert result.message.endswith("1, not 0")
    with pytest.raises(ConformanceError, match="1, not 0"):
        exec(result.code, {})


@pytest.mark.parametrize(
    "error", [RuntimeError("boom"), SystemExit("boom"), AssertionError("boom")]
)
def test_what_a_component_raises_is_a_failure(error):
    class Raising(Mean):
        """Raises."""

        def per_task(self, outcomes):
            raise error

    found = results(Raising)
    message = found["check_one_number_a_task"].message
    assert message.startswith(f"raised {type(error).__name__}: boom (test_suite.py, line ")
    assert message.endswith(": raise error)")
    assert found["check_way_order"] == CheckResult(
        "check_way_order",
        "skipped",
        found["check_way_order"].rule,
        "depends on check_one_number_a_task, which fails",
        found["check_way_order"].seconds,
    )
    assert [name for name, result in found.items() if not result.passed] == [
        "check_one_number_a_task"
    ]


def test_an_interrupt_is_not_contained():
    class Interrupted(Mean):
        """The user had enough."""

        def per_task(self, outcomes):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_component(Interrupted)


def test_a_component_that_cannot_be_made_fails_once():
    def make():
        raise OSError("no weights")

    found = results(make)
    assert found.pop("check_construction").message == "raised OSError: no weights"
    assert {result.outcome for result in found.values()} == {"skipped"}


def test_a_factory_must_make_fresh_components():
    shared = Mean()
    message = results(lambda: shared)["check_construction"].message
    assert message == "the factory must return a fresh component on every call"


def test_another_kind_of_component_is_named():
    message = results(Mean, "sampler")["check_construction"].message
    assert message == "it must be a TaskSampler, not a Mean"


def test_options_are_compared_as_values():
    class Weighted(Mean):
        """Options that are arrays, components and optional."""

        def __init__(self, *, weights: object = (1.0, 2.0), inner: object = None):
            super().__init__()
            self.weights = np.asarray(weights)
            self.inner = inner

    make = functools.partial(Weighted, inner=Mean(factor=0.5))
    assert results(make)["check_options_stored"].passed


class Nesting(Mean):
    """An option that is a component, one that may name a file, and a plain one."""

    name = "nested-mean"
    argument = "weights"
    reads = ("weights",)
    usual_components: ClassVar = {"inner": "acc"}

    def __init__(self, *, inner: Statistic | None = None, weights: str = "", factor: float = 1.0):
        super().__init__(factor=factor)
        self.inner = inner
        self.weights = weights


def test_sound_declarations_pass():
    assert all(result.passed for result in check_component(Nesting))


@pytest.mark.parametrize(
    ("check", "declared", "message"),
    [
        ("check_name", {"name": "MyMean"}, "digits joined by hyphens, not 'MyMean'"),
        ("check_argument", {"argument": "wieghts"}, "its options are: inner, weights, factor"),
        ("check_reads", {"reads": "weights"}, "reads must be a tuple, not 'weights'"),
        ("check_reads", {"external": {"wieghts": "x"}}, "its options are: inner, weights"),
        ("check_reads", {"external": {"weights": ""}}, "external must say what 'weights' does"),
        ("check_usual_components", {"usual_components": ("inner",)}, "must be a mapping"),
        (
            "check_usual_components",
            {"usual_components": {"factor": "acc"}},
            "names the option 'factor', whose type is not an interface",
        ),
        (
            "check_usual_components",
            {"usual_components": {"inner": Mean}},
            "usual_components['inner'] must be the name of a plugin",
        ),
    ],
)
def test_a_wrong_declaration_is_named(check, declared, message):
    wrong = type("Wrong", (Nesting,), {"__doc__": "Wrong in one declaration.", **declared})
    [failed] = [result for result in results(wrong).values() if not result.passed]
    assert failed.name == check
    assert message in failed.message


def test_star_arguments_are_no_options():
    class Starred(Mean):
        """Takes anything."""

        def __init__(self, **options: float):
            super().__init__(**options)
            self.options = options

    assert "keyword-only" in results(Starred)["check_options_typed"].message


def test_a_type_must_be_known_at_run_time():
    class Unknown(Mean):
        """A type that only a type checker sees."""

        def __init__(self, *, factor: "Missing" = 1.0):  # noqa: F821
            super().__init__(factor=factor)

    assert "unknown at run time" in results(Unknown)["check_options_typed"].message


def test_options_of_a_module_without_a_constructor():
    from fsframework.testing.method import ToyBackbone

    class Bare(ToyBackbone):
        """Inherits a constructor without options."""

    assert options_of(Bare) == {}
    assert list(options_of(Mean)) == ["factor"]


@parametrize_with_checks(
    [Mean, functools.partial(Mean, factor=0.5), FirstWay],
    {FirstWay: {"check_way_order": "it is the example of what must not be"}},
)
def test_parametrised(make, check):
    check(make)


def run_pytest(tmp_path, body):
    path = tmp_path / "test_it.py"
    path.write_text(
        "from fsframework.interfaces import Statistic\n"
        "from fsframework.testing import parametrize_with_checks\n"
        "class Half(Statistic):\n"
        "    '''One half.'''\n"
        "    def per_task(self, outcomes):\n"
        "        return outcomes.class_accuracy.mean(axis=1)\n"
        f"{body}\n"
        "def test_conformance(make, check):\n"
        "    check(make)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout


@pytest.mark.slow
def test_an_excuse_that_is_no_longer_needed_fails(tmp_path):
    excuse = "{Half: {'check_bounds': 'not yet'}}"
    output = run_pytest(tmp_path, f"@parametrize_with_checks([Half], {excuse})")
    assert "[XPASS(strict)] not yet" in output
    assert "PASSED test_it.py::test_conformance[Half-check_way_order]" in output


def test_an_excuse_must_name_a_check_and_a_component():
    with pytest.raises(ValueError, match="Mean has no check check_ways"):
        parametrize_with_checks([Mean], {Mean: {"check_ways": "?"}})
    with pytest.raises(ValueError, match="expected_failures names FirstWay, which is not checked"):
        parametrize_with_checks([Mean], {FirstWay: {"check_bounds": "?"}})


def test_a_failing_check_raises_an_assertion():
    [check] = [check for check in checks_for(FirstWay) if check.__name__ == "check_way_order"]
    with pytest.raises(ConformanceError, match="1, 4, 3, 0, 2"):
        check(FirstWay)
    assert issubclass(ConformanceError, AssertionError)


def test_neither_pytest_nor_torch_is_imported_before_it_is_needed():
    code = (
        "import sys, fsframework.testing as t\n"
        "t.checks_for('statistic'), t.checks_for('sampler')\n"
        "print({'pytest', 'torch'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "set()"


class Noisy(Mean):
    """Warns of what it does."""

    def per_task(self, outcomes):
        warnings.warn("how odd", UserWarning, stacklevel=1)
        return super().per_task(outcomes)


def test_a_warning_names_the_check_that_raised_it():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        check_component(Noisy)
    names = {str(one.message).partition(": how odd")[0] for one in shown}
    assert names
    assert names <= {check.__name__ for check in checks_for("statistic")}
