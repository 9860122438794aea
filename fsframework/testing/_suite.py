"""The machinery of the suites: checks, and how they are found, run and reported."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import tempfile
import textwrap
import time
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol
from unittest.mock import patch

import numpy as np

from fsframework._calls import seeded, top_level
from fsframework.components.kinds import interface_of, kind_of
from fsframework.components.registry import Registry, kebab
from fsframework.errors import FsfError, OptionError, PluginError
from fsframework.interfaces.component import Configurable
from fsframework.interfaces.detector import AttributeDetector
from fsframework.interfaces.launcher import Launcher
from fsframework.testing._example import current, example, given_pool, note_call
from fsframework.testing._explained import Failure, failure_of, place_in, repeated, shrunk
from fsframework.values import ImagePool

if TYPE_CHECKING:
    import pytest

__all__ = [
    "OTHER_IMAGES",
    "Answers",
    "Check",
    "CheckResult",
    "ConformanceError",
    "Make",
    "NotApplicable",
    "Suite",
    "check_component",
    "check_options_stored",
    "checks_for",
    "counted",
    "if_possible",
    "options_of",
    "parametrize_with_checks",
    "require",
    "require_option",
    "suite_of",
    "variants",
]

Make = Callable[[], Any]
"""The argument of a check: a callable without arguments that returns a fresh component."""


Answers = Callable[[Make], Mapping[str, Any]]
"""Takes what makes a component, and returns what the component answers, by name."""


class ConformanceError(AssertionError):
    """A component breaks its contract; the message states which rule and how."""


class NotApplicable(Exception):
    """A check does not apply to this component; the message states why."""


class Check(Protocol):
    """A plain function: returns when the component keeps the rule, raises when it does not.

    Raises:
        ConformanceError: the component breaks the rule.
        NotApplicable: the rule does not apply, or a check that this one depends on fails.
    """

    __name__: str
    __doc__: str | None

    def __call__(self, make: Make, /) -> None:
        """Check what ``make`` returns."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class CheckResult:
    """The result of one check.

    Args:
        name: name of the check.
        outcome: ``skipped`` where the check does not apply to the component.
        rule: what the check requires.
        message: why it failed or was skipped; empty when it passed.
        seconds: how long it took.
        call: how the component was called last in the smallest example that fails.
        sizes: the numbers of tasks, ways or the like in that example.
        code: lines of Python that repeat the failure; empty where an option cannot be spelt.
    """

    name: str
    outcome: Literal["passed", "failed", "skipped"]
    rule: str
    message: str = ""
    seconds: float = 0.0
    call: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    code: str = ""

    @property
    def passed(self) -> bool:
        """Whether the check found no fault."""
        return self.outcome != "failed"

    def __str__(self) -> str:
        head = f"{self.outcome:<8}{self.name}{f': {self.message}' if self.message else ''}"
        return head if self.passed else "\n".join([head, *self._explanation()])

    def _explanation(self) -> Iterator[str]:
        sizes = ", ".join(f"{name}={number}" for name, number in self.sizes.items())
        for title, text in (
            ("rule", self.rule),
            ("call", self.call),
            ("size", sizes),
            ("code", textwrap.indent(self.code, 14 * " ").lstrip()),
        ):
            if text:
                yield f"{8 * ' '}{title}  {text}"


def require(condition: object, message: str) -> None:
    """Raise ``ConformanceError(message)`` unless the condition holds."""
    if not condition:
        raise ConformanceError(message)


def options_of(cls: type) -> dict[str, inspect.Parameter]:
    """Return the options of a component's class: its constructor's parameters.

    >>> class Plain: ...
    >>> options_of(Plain)
    {}
    """
    home = next(c for c in cls.__mro__ if "__init__" in vars(c))
    # nn.Module declares (*args, **kwargs), which are not options of its subclass.
    if home is object or home.__module__.startswith("torch."):
        return {}
    return dict(list(inspect.signature(cls.__init__).parameters.items())[1:])  # type: ignore[misc]


class Suite:
    """The checks of one kind, in declaration order; eight are common to all components.

    A check declared ``after`` others runs them first and is skipped when one of them fails, so a
    fault is reported once and not by every dependent check.

    Args:
        interface: the class of the components.
        has_options: whether they have options; if not, the checks of options are left out.
        takes_pool: whether the checks can be made on an author's own images.
    """

    def __init__(
        self, interface: type, *, has_options: bool = True, takes_pool: bool = False
    ) -> None:
        self.interface = interface
        self.takes_pool = takes_pool
        self._checks: list[Check] = []
        self._first: tuple[Check, ...] = ()
        if has_options:
            self._add_common(interface)

    def _add_common(self, interface: type) -> None:

        def check_construction(make: Make) -> None:
            """The factory returns a fresh instance of the interface on every call."""
            first, second = make(), make()
            for component in (first, second):
                require(
                    isinstance(component, interface),
                    f"it must be a {interface.__name__}, not a {type(component).__name__}",
                )
            require(first is not second, "the factory must return a fresh component on every call")

        self._first = (self._add(check_construction),)
        typed = self._add(check_options_typed, self._first)
        for function in (
            check_options_stored,
            check_summary,
            check_name,
            check_argument,
            check_reads,
        ):
            self._add(function, self._first)
        self._add(check_usual_components, (*self._first, typed))

    def __iter__(self) -> Iterator[Check]:
        return iter(self._checks)

    def __getitem__(self, name: str) -> Check:
        return next(check for check in self._checks if check.__name__ == name)

    def check(self, *, after: Iterable[Check] = ()) -> Callable[[Callable[[Make], None]], Check]:
        """Return a decorator that registers a check and the checks that it depends on."""
        return lambda function: self._add(function, (*self._first, *after))

    def answers(
        self, *, after: Iterable[Check] = (), calls: Mapping[str, str] | None = None
    ) -> Callable[[Answers], Answers]:
        """Return a decorator of what a component answers; a fresh process must answer the same.

        The function is one of a module. It takes what makes a component and returns texts, numbers,
        arrays or collections of them, by name.

        Args:
            after: checks that this one depends on.
            calls: how the component is called for an answer, by the name of the answer.
        """

        def register(answers: Answers) -> Answers:
            def check_fresh_process(make: Make) -> None:
                """A process with another hash seed, folder, time zone and randomness agrees."""
                from fsframework.testing._fresh import answers_in_fresh_process

                component = make()
                with seeded(0):
                    here = answers(make)
                there = answers_in_fresh_process(answers, component)
                apart = [name for name in here if not _alike(here[name], there.get(name))]
                known = calls or {}
                for call in [known[name] for name in apart if name in known][:1]:
                    note_call(call)
                require(
                    not apart,
                    f"a fresh process gives other answers: {', '.join(apart)}; look for iteration "
                    "over a set, a clock, the working folder or a generator that no seed reaches",
                )

            self._add(check_fresh_process, (*self._first, check_options_stored, *after))
            return answers

        return register

    def _add(self, function: Callable[[Make], None], after: tuple[Check, ...] = ()) -> Check:
        @functools.wraps(function)
        def checked(make: Make) -> None:
            for earlier in after:
                if reason := _reason_not_to(earlier, make):
                    raise NotApplicable(reason)
            function(make)
            _remember(checked, make, "")

        self._checks.append(checked)
        return checked


def _alike(here: object, there: object) -> bool:
    """Whether two answers are equal, arrays of floats to within a thousandth of their range."""
    if not isinstance(here, np.ndarray) or not isinstance(there, np.ndarray):
        return here == there
    if here.shape != there.shape or not np.issubdtype(here.dtype, np.floating):
        return np.array_equal(here, there)
    return not here.size or bool(
        np.abs(here - there).max() <= _RELATIVE * np.ptp(here) + _NOISE * np.abs(here).max()
    )


OTHER_IMAGES = "if it needs other images, words or columns, give them with --pool"
"""A hint for who needs what the toys lack."""

_RELATIVE, _NOISE = 1e-3, 1e-5
_REMEMBERED = 256
_reasons: dict[tuple[Check, Make, str | None], str] = {}
"""Why not to run what depends on a check, by the check, the factory and the pool, newest last."""


def _remember(check: Check, make: Make, reason: str) -> None:
    if current().sizes:  # what passes in a small example may fail in the usual one
        return
    _reasons.pop(_key(check, make), None)
    _reasons[_key(check, make)] = reason
    if len(_reasons) > _REMEMBERED:
        del _reasons[next(iter(_reasons))]


def _key(check: Check, make: Make) -> tuple[Check, Make, str | None]:
    pool = given_pool()
    return check, make, None if pool is None else pool.fingerprint


def _reason_not_to(earlier: Check, make: Make) -> str:
    # Many checks depend on the same one, and some components are heavy.
    if (key := _key(earlier, make)) in _reasons:
        return _reasons[key]
    reason = _why_failing(earlier, make)
    _remember(earlier, make, reason)
    return reason


def _why_failing(earlier: Check, make: Make) -> str:
    try:
        earlier(make)
    except NotApplicable as reason:
        return str(reason)
    except (Exception, SystemExit):
        return f"depends on {earlier.__name__}, which fails"
    return ""


def check_options_typed(make: Make) -> None:
    """Options are keyword-only parameters of the constructor, each with a type."""
    cls = type(make())
    options = options_of(cls)
    for name, parameter in options.items():
        require(
            parameter.kind is inspect.Parameter.KEYWORD_ONLY,
            f"{cls.__name__} must take {name!r} as a keyword-only parameter, "
            f"but it is {parameter.kind.description}",
        )
        require(
            parameter.annotation is not inspect.Parameter.empty,
            f"the option {name!r} of {cls.__name__} must have a type",
        )
    if options:
        try:
            typing.get_type_hints(cls.__init__)
        except NameError as error:
            raise ConformanceError(
                f"a type of {cls.__name__}'s options is unknown at run time: {error}"
            ) from None


def check_options_stored(make: Make) -> None:
    """Every option is stored under its own name, so the component can be rebuilt."""
    component = make()
    cls = _configurable(make)
    places = {name: cls.stored_as.get(name, name) for name in options_of(cls)}
    for name, place in places.items():
        require(
            hasattr(component, place),
            f"{cls.__name__} must store its option {name!r} as self.{place}",
        )
    given = {name: getattr(component, place) for name, place in places.items()}
    again = cls(**given)
    for name, value in given.items():
        stored = getattr(again, places[name])
        require(
            _same(stored, value),
            f"{cls.__name__}({name}={value!r}) stores {stored!r} as self.{places[name]}",
        )
    for name, value, other in _changed(make, once=True):
        stored = getattr(other, places[name])
        require(
            stored is None or _same(stored, value),  # None: it does not apply to this one
            f"{cls.__name__}({name}={value!r}) stores {stored!r} as self.{places[name]}",
        )


def _same(left: object, right: object) -> bool:
    if kind_of(left) is not None:
        return type(left) is type(right)
    equal = left == right
    return bool(equal.all()) if hasattr(equal, "all") else bool(equal)


def check_summary(make: Make) -> None:
    """The class has a docstring whose first line describes it."""
    cls = type(make())
    lines = (cls.__doc__ or "").strip().splitlines()
    require(lines, f"{cls.__name__} has no docstring; listings show its first line")


def check_name(make: Make) -> None:
    """A ``name`` that the class declares is lower-case kebab."""
    name = _configurable(make).name
    require(
        name is None or (isinstance(name, str) and name and kebab(name) == name),
        "name must be None or words of lower-case letters and digits joined by hyphens, "
        f"not {name!r}",
    )


def check_argument(make: Make) -> None:
    """``argument`` names an option, or is None."""
    cls = _configurable(make)
    if cls.argument is not None:
        require_option(cls, "argument", cls.argument)


def check_reads(make: Make) -> None:
    """``reads`` is a tuple of names of options, and ``external`` says what its options do."""
    cls = _configurable(make)
    require(isinstance(cls.reads, tuple), f"reads must be a tuple, not {cls.reads!r}")
    for name in cls.reads:
        require_option(cls, "reads", name)
    for name, effect in cls.external.items():
        require_option(cls, "external", name)
        require(effect and isinstance(effect, str), f"external must say what {name!r} does")


def check_usual_components(make: Make) -> None:
    """``usual_components`` maps options that are components to names of plugins."""
    cls = _configurable(make)
    usual = cls.usual_components
    require(isinstance(usual, Mapping), f"usual_components must be a mapping, not {usual!r}")
    hints = typing.get_type_hints(cls.__init__) if usual else {}
    for option, plugin in usual.items():
        require_option(cls, "usual_components", option)
        taken = (hints[option], *typing.get_args(hints[option]))
        require(
            any(isinstance(one, type) and kind_of(one) for one in taken),
            f"usual_components names the option {option!r}, whose type is not an interface",
        )
        require(
            isinstance(plugin, str) and plugin,
            f"usual_components[{option!r}] must be the name of a plugin, not {plugin!r}",
        )


def variants(make: Make) -> Iterator[tuple[str, Any]]:
    """Yield components that differ from the made one in one option, and the name of the option.

    Values of options that have no other known value, or refuse it, are left out.
    """
    for name, _, component in _changed(make):
        yield name, component


def _changed(make: Make, *, once: bool = False) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of an option, another value of it, and a component that was given this.

    Args:
        once: whether one other value of each option is enough.
    """
    component = make()
    cls = _configurable(make)
    hints = typing.get_type_hints(cls.__init__) if options_of(cls) else {}
    given = {name: getattr(component, cls.stored_as.get(name, name)) for name in options_of(cls)}
    for name, value in given.items():
        for other in _other_values(hints.get(name), value):
            if _same(other, value):
                continue
            try:
                yield name, other, cls(**{**given, name: other})
            except (FsfError, ValueError):
                continue
            if once:
                break


def _other_values(hint: Any, value: Any) -> list[Any]:
    hints = [hint, *typing.get_args(hint)]
    literals = [one for h in hints if typing.get_origin(h) is Literal for one in typing.get_args(h)]
    if literals:
        return [one for one in literals if one != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, float) or (isinstance(value, int) and float in hints):
        return [value + 0.1, 2.0 * value, value / 2, 1.001 * value]
    if isinstance(value, int):
        return [value + 1, max(1, value // 2)]
    if isinstance(value, str):
        return [" " if value in (",", ";") else f"{value} too".strip()]
    return [1] if value is None and int in hints else []


def _configurable(make: Make) -> type[Configurable]:
    cls: type[Configurable] = type(make())
    return cls


def require_option(cls: type, declaration: str, name: object) -> None:
    """Raise ``ConformanceError`` unless a declared name is one of the class's options."""
    options = options_of(cls)
    require(
        name in options,
        f"{declaration} names {name!r}, which is not an option of {cls.__name__}; "
        f"its options are: {', '.join(options) or 'none'}",
    )


def checks_for(kind: str | type) -> tuple[Check, ...]:
    """Return the checks of a kind, given by name or by class.

    Raises:
        ValueError: the kind is unknown.

    >>> [check.__name__ for check in checks_for("statistic")][:2]
    ['check_construction', 'check_options_typed']
    """
    return tuple(suite_of(kind))


def suite_of(kind: str | type) -> Suite:
    """Return the suite of a kind, given by name or by class."""
    suite: Suite = importlib.import_module(_home_of(kind)).suite
    return suite


def _home_of(kind: str | type) -> str:
    """Return the name of the module that has the checks of a kind."""
    kinds = Registry().kinds
    name = kind_of(kind) if isinstance(kind, type) else kind if kind in kinds else None
    if name is None:
        raise ValueError(f"there are no checks for {kind!r}; the kinds are {', '.join(kinds)}")
    home = kinds[name].target if isinstance(kind, str) else interface_of(kind).__module__
    return f"{top_level(home)}.testing.{name}"


def check_component(
    make: Make, kind: str | None = None, *, pool: ImagePool | None = None
) -> list[CheckResult]:
    """Run every check of a kind and return the results; a component that raises is a result too.

    Args:
        make: returns a fresh component; may be a class whose options all have defaults.
        kind: by default that of the class or of what ``make`` returns.
        pool: images in place of ``toy_pool``, for a sampler or detector that needs other columns,
            words or numbers of images.

    Raises:
        ValueError: the kind is unknown.
        OptionError: a pool is given for a kind that is checked without.
    """
    name = kind or kind_of(_class_of(make))
    if name is None:
        raise ValueError(f"{_class_of(make).__name__} is not a component")
    checks = checks_for(name)
    if "check_fresh_process" in {check.__name__ for check in checks}:
        from fsframework.testing._fresh import start_fresh_process

        start_fresh_process([_home_of(name)])  # while it starts, the other checks run
    if pool is not None:
        _require_pool_taken(name)
    with example(pool):
        return [_run(check, make, _home_of(name)) for check in checks]


def _require_pool_taken(kind: str) -> None:
    if not suite_of(kind).takes_pool:
        raise OptionError(f"a pool is for the checks of a sampler or a detector, not of a {kind}")


def counted(results: Iterable[CheckResult]) -> str:
    """Return how many checks had each outcome, in words."""
    outcomes = [result.outcome for result in results]
    return ", ".join(f"{outcomes.count(one)} {one}" for one in ("passed", "failed", "skipped"))


def if_possible(make_of: Callable[[], Make]) -> Make:
    """Return what makes a component, or says why its checks are skipped: it needs options or data.

    Args:
        make_of: returns what makes the component.
    """
    tried: list[Make] = []
    reasons: list[str] = []

    def make() -> Any:
        if not tried and not reasons:
            try:
                found = make_of()
                _try(found())
                tried.append(found)
            except PluginError:
                raise
            except FsfError as error:
                reasons.append(f"it needs more: {error}")
        if reasons:
            raise NotApplicable(reasons[0])
        return tried[0]()

    return make


def _try(component: object) -> None:
    """Do what fails where a model or a cluster is not there."""
    if isinstance(component, AttributeDetector):
        component.prepare(device="cpu", offline=True)
    if isinstance(component, Launcher):
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            list(component.map(repr, [1], name="fsf-check", logs=Path(folder)))


def _run(check: Check, make: Make, home: str) -> CheckResult:
    start = time.perf_counter()
    outcome: Literal["passed", "failed", "skipped"] = "passed"
    told: dict[str, Any] = {}
    try:
        with _naming_warnings(check.__name__):
            if failure := failure_of(partial(check, make), passes=(NotApplicable,)):
                outcome, told = "failed", _told(check, make, failure, home)
    except NotApplicable as reason:
        outcome, told = "skipped", {"message": str(reason)}
    seconds = time.perf_counter() - start
    return CheckResult(check.__name__, outcome, _rule(check), seconds=seconds, **told)


@contextmanager
def _naming_warnings(check: str) -> Iterator[None]:
    """Within the block, begin the text of each warning that is shown with the name of a check."""
    shown = warnings.showwarning

    def show(message: Warning | str, *rest: Any, **more: Any) -> None:
        shown(f"{check}: {message}", *rest, **more)

    with patch.object(warnings, "showwarning", show):
        yield


def _rule(check: Check) -> str:
    return " ".join((check.__doc__ or "").replace("``", "`").split())


def _told(check: Check, make: Make, failure: Failure, home: str) -> dict[str, Any]:
    """Return what is told about a failure, in the smallest example that fails."""
    failure = shrunk(partial(check, make), failure, passes=(NotApplicable,))
    message = str(failure.error)
    try:
        component = make()
    except (Exception, SystemExit):
        component = None
    if not isinstance(failure.error, ConformanceError):
        place = place_in(failure.error, type(component))
        message = f"raised {type(failure.error).__name__}: {message}"
        message += f" ({place})" if place else ""
        needs = isinstance(failure.error, (KeyError, FsfError)) and given_pool() is None
        if needs and sys.modules[home].suite.takes_pool:
            message += f"; {OTHER_IMAGES}"
    code = "" if component is None else repeated(check.__name__, home, component, failure.sizes)
    return {"message": message, "call": failure.call, "sizes": failure.sizes, "code": code}


def _class_of(make: Make) -> type:
    """Return the class of what ``make`` returns, calling it only if necessary."""
    target = make.func if isinstance(make, partial) else make
    return target if isinstance(target, type) else type(make())


def _label(make: Make) -> str:
    options = make.keywords if isinstance(make, partial) else {}
    shown = ",".join(f"{name}={_text_of(value)}" for name, value in options.items())
    return _class_of(make).__name__ + (f"({shown})" if shown else "")


def _text_of(value: object) -> str:
    """Return a text that is the same in all processes, unlike an address or a temporary folder."""
    if kind_of(value) is not None:
        return type(value).__name__
    return Path(value).name if isinstance(value, str) else str(value)


def parametrize_with_checks(
    components: Iterable[Make],
    expected_failures: Mapping[type, Mapping[str, str]] | None = None,
    *,
    pool: ImagePool | None = None,
) -> pytest.MarkDecorator:
    """Return a ``pytest.mark.parametrize`` over all checks of all components.

    The test takes ``make`` and ``check``::

        @parametrize_with_checks([ProtoNet, partial(ReNet, hidden=8)])
        def test_conformance(make, check):
            check(make)

    Args:
        components: classes, ``functools.partial`` of classes, or callables that return a fresh
            component.
        expected_failures: class -> name of the check -> reason. These must fail: one that passes
            fails the test run.
        pool: images in place of ``toy_pool``, for samplers and detectors.

    Raises:
        OptionError: a pool is given for a kind that is checked without.
        ValueError: an item is not a component, or an expected failure names none of its checks.
    """
    import pytest

    excuses = expected_failures or {}
    parameters = []
    seen = set()
    for make in components:
        cls = _class_of(make)
        seen.add(cls)
        checks = checks_for(cls)
        if pool is not None:
            _require_pool_taken(kind_of(cls) or "")
        reasons = excuses.get(cls, {})
        if unknown := set(reasons) - {check.__name__ for check in checks}:
            raise ValueError(f"{cls.__name__} has no check {', '.join(sorted(unknown))}")
        for check in checks:
            reason = reasons.get(check.__name__)
            marks = [] if reason is None else [pytest.mark.xfail(reason=reason, strict=True)]
            name = f"{_label(make)}-{check.__name__}"
            parameters.append(pytest.param(make, _in_pytest(check, pool), marks=marks, id=name))
    if forgotten := [cls.__name__ for cls in excuses if cls not in seen]:
        raise ValueError(f"expected_failures names {', '.join(forgotten)}, which is not checked")
    return pytest.mark.parametrize(("make", "check"), parameters)


def _in_pytest(check: Check, pool: ImagePool | None) -> Check:
    """Return a check that skips its test where it does not apply, and explains why it fails."""
    import pytest

    @functools.wraps(check)
    def run(make: Make) -> None:
        __tracebackhide__ = True  # pytest shows the check, not this
        with example(pool):
            try:
                check(make)
            except NotApplicable as reason:
                pytest.skip(str(reason))
            except Exception as error:
                error.add_note(str(_run(check, make, _home_of(_class_of(make)))))
                raise

    return run
