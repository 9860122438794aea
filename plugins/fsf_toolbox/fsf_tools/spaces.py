"""Spaces of a search: the values that options may have, as given and as searchers see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from fsf_tools.grids import plain_tree, shown, split_values
from fsf_tools.searcher import Range, Space
from fsframework.api.experiments import ARGUMENTS, check_keys
from fsframework.errors import OptionError, argument

__all__ = ["SearchSpace", "read_space"]

_SEARCHED = ("method", "backbone", "training", "recipe", "image_size", "precision", "decoding")
"""What makes a model; all else decides the tasks, on which all configurations are compared."""
_OF_RANGE = ("low", "high", "log", "step")
_FORMS = "low:high, low:high:log, low:high:STEP, or values separated by commas"


@dataclass(frozen=True)
class SearchSpace:
    """The space of a search.

    Args:
        space: as searchers see it: what may be chosen by its names.
        named: values by their names, for each option with values to choose from.
    """

    space: Space
    named: Mapping[str, Mapping[str, Any]]

    def options(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return options of a run for what a searcher has proposed."""
        return {key: self.named.get(key, {}).get(one, one) for key, one in values.items()}

    @property
    def corners(self) -> Iterator[dict[str, Any]]:
        """Smallest and largest values of all options, then each further value to choose."""
        ends: list[dict[str, Any]] = [{}, {}]
        for key, one in self.space.items():
            several = (one.low, one.high) if isinstance(one, Range) else (one[0], one[-1])
            for end, value in zip(ends, several, strict=True):
                end[key] = value
        named = ({**ends[0], key: name} for key in self.named for name in self.named[key])
        return map(self.options, chain(ends, named))

    def typed(self, options: Mapping[str, Any], *, learns: bool) -> SearchSpace:
        """Return the space with ranges of whole numbers where options demand them.

        Args:
            options: of the experiment with all smallest values.
            learns: whether any experiment trains a model.

        Raises:
            OptionError: an option with a range is no number, or one has no effect.
        """
        if not learns and (idle := [key for key in self.space if key.startswith("training.")]):
            raise _wrong(idle[0], "has no effect, because nothing is trained")
        found: dict[str, Range | tuple[str, ...]] = {}
        for key, one in self.space.items():
            if isinstance(one, Range):
                value = _value_at(options, _key_of(key))
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    raise _wrong(key, f"has a range, but its value is no number: {value!r}")
                if value != one.low:
                    raise _wrong(key, f"has no effect; with {one.low} it is {value}")
                one = _whole(key, one) if isinstance(value, int) else one
            found[key] = one
        return replace(self, space=found)

    @property
    def given(self) -> dict[str, str]:
        """The space as it is given on the command line, by option."""
        texts = {k: one if isinstance(one, Range) else ",".join(one) for k, one in self.items()}
        return {key: str(text) for key, text in texts.items()}

    def items(self) -> Any:
        """Return options with what searchers see of them."""
        return self.space.items()


def read_space(table: Any) -> SearchSpace:
    """Return the space in a tree of ``Given``.

    Raises:
        OptionError: it is not a table, an option is unknown or decides the tasks, or its values are
            malformed.
    """
    if not isinstance(table, Mapping) or not table:
        called = argument("space")
        raise OptionError(f"{called} must give at least one option: OPTION={_FORMS}")
    space: dict[str, Range | tuple[str, ...]] = {}
    named: dict[str, dict[str, Any]] = {}
    for key, raw in _leaves_of(table, ""):
        top = _key_of(key).partition(".")[0]
        check_keys({top: None})
        if top not in _SEARCHED:
            raise _wrong(
                key,
                "cannot be searched, because it may change the tasks on which configurations are "
                f"compared; what can be is {', '.join(_SEARCHED)}, and options of these",
            )
        values = _parsed(raw) if isinstance(raw, str) else raw
        if isinstance(values, Mapping):
            space[key] = _range(key, values)
        elif isinstance(values, Sequence) and not isinstance(values, str) and len(values) > 1:
            named[key] = {shown(value): value for value in values}
            if len(named[key]) < len(values):
                raise _wrong(key, "has a value twice")
            space[key] = tuple(named[key])
        else:
            raise _wrong(key, f"must have several values: {_FORMS}; not {values!r}")
    return SearchSpace(dict(sorted(space.items())), named)


def _wrong(key: str, why: str) -> OptionError:
    return OptionError(f"{argument('space')} {key}: {why}")


def _leaves_of(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, node in table.items():
        if isinstance(node, Mapping) and not set(node) & set(_OF_RANGE):
            yield from _leaves_of(node, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", plain_tree(node)


def _parsed(text: str) -> Any:
    """Return the values in a text of the command line, as a table or a list."""
    ends = text.split(":")
    with suppress(ValueError):
        if len(ends) > 1:
            found: dict[str, Any] = {"low": float(ends[0]), "high": float(ends[1])}
            for rest in ends[2:]:
                found |= {"log": True} if rest == "log" else {"step": float(rest)}
            return found
    return split_values(text)


def _range(key: str, table: Mapping[str, Any]) -> Range:
    """Return a range that is checked.

    Raises:
        OptionError: it is empty, or its parts do not go together.
    """
    numbers = [table.get(part) for part in ("low", "high")] + [table.get("step", 1)]
    wrong = [n for n in numbers if isinstance(n, bool) or not isinstance(n, (int, float))]
    if wrong or set(table) - set(_OF_RANGE) or not isinstance(table.get("log", False), bool):
        raise _wrong(key, f"a range has the numbers low and high, log or a step, not {dict(table)}")
    found = Range(table["low"], table["high"], table.get("log", False), table.get("step"))
    if not found.low < found.high:
        raise _wrong(key, f"low must be below high, not {found}")
    if found.log and (found.low <= 0 or found.step):
        raise _wrong(key, f"a logarithmic range must begin above 0 and has no step, not {found}")
    if found.step is not None and not 0 < found.step <= found.high - found.low:
        raise _wrong(key, f"the step must be above 0 and at most high - low, not {found.step:g}")
    return found


def _whole(key: str, found: Range) -> Range:
    step = None if found.step is None else int(found.step)
    if step != found.step:
        raise _wrong(key, f"its step must be a whole number, as its values are, not {found.step}")
    return replace(found, low=int(found.low), high=int(found.high), step=step, whole=True)


def _key_of(name: str) -> str:
    return ARGUMENTS[name].key if name in ARGUMENTS else name


def _value_at(options: Any, key: str) -> Any:
    """Return the value of a dotted key; of the first stage, where it is one of all stages."""
    for part in key.split("."):
        options = options[0] if isinstance(options, list) else options
        options = options.get(part) if isinstance(options, Mapping) else None
    return options
