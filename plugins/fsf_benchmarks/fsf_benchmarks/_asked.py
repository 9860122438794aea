"""What a user asks of a benchmark, separated from the options of its experiments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fsf_benchmarks.interfaces import AXES, Benchmark, Labelled, Selection
from fsf_tools.grids import plain_tree
from fsframework.api.data import opened
from fsframework.api.experiments import merged
from fsframework.api.session import Session
from fsframework.errors import OptionError, argument
from fsframework.interfaces import Dataset

__all__ = ["Tree", "check_reserved", "labelled", "selection_of", "without_choices"]

Tree = Mapping[str, Any]
"""Options in the shape of a configuration file; each leaf has its origin."""

_NEVER = ("task_file", "placebo", "statistics", "name")
"""Options that no benchmark leaves to the user: they would change what its tables show."""

_LABELLED = ("dataset", "model")


def labelled(text: str) -> Labelled:
    """Return value and label of ``[LABEL=]VALUE``.

    >>> labelled("CUB-200=folder:birds"), labelled("folder:a=b")
    (Labelled(value='folder:birds', label='CUB-200'), Labelled(value='folder:a=b', label=''))
    """
    label, equals, value = text.partition("=")
    if not equals or ":" in label:
        return Labelled(text)
    return Labelled(value, label.strip())


def check_reserved(benchmark: Benchmark, name: str, trees: Iterable[Tree]) -> None:
    """Check that no option is given that the benchmark sets itself.

    Raises:
        OptionError: such an option is given; the message names it.
    """
    for tree in trees:
        for key in (*_NEVER, *benchmark.reserved):
            if _gives(tree, key):
                raise OptionError(f"{argument(key)}: the benchmark {name} sets this itself")


def _gives(tree: Tree, dotted: str) -> bool:
    """Whether a tree gives an option, or the name of a component."""
    first, _, rest = dotted.partition(".")
    if first not in tree:
        return False
    node = tree[first]
    if not rest:
        return not isinstance(node, Mapping) or "name" in node or first == "statistics"
    return isinstance(node, Mapping) and _gives(node, rest)


def selection_of(
    benchmark: Benchmark,
    name: str,
    chosen: Mapping[str, Sequence[Any]],
    trees: Sequence[Tree],
    session: Session,
) -> Selection:
    """Return what the user asks of a benchmark.

    Args:
        benchmark: the benchmark.
        name: its name, for messages.
        chosen: values by axis; an axis without values takes the value in the trees.
        trees: options of every experiment, in order of precedence.
        session: the session, which has the plugins.

    Raises:
        OptionError: the benchmark has no such axis, or a number of shots is not a number.
    """
    values: dict[str, tuple[Any, ...]] = {}
    for axis in AXES:
        given = tuple(dict.fromkeys(chosen.get(axis) or ())) or _named(axis, trees)
        if given and axis not in benchmark.axes:
            there = ", ".join(argument(one) for one in benchmark.axes) or "nothing"
            raise OptionError(
                f"{argument(axis)} cannot be chosen in the benchmark {name}; you can choose {there}"
            )
        values[axis] = tuple(map(labelled, given)) if axis in _LABELLED else given
    options = merged(*map(without_choices, trees))
    plain = plain_tree(options)
    own = plain.get("dataset", {})
    registry = session.registry
    kinds = ("backbone", "dataset", "detector", "method", "sampler")
    usable = {k: [p.name for p in registry.plugins(k) if p.status == "ok"] for k in kinds}

    def open_dataset(text: str) -> Dataset:
        return opened(registry, text, own)[1]

    return Selection(
        datasets=values["dataset"],
        methods=values["method"],
        backbones=values["backbone"],
        shots=values["shot"],
        detectors=values["detector"],
        models=values["model"],
        options=plain,
        installed={kind: tuple(names) for kind, names in usable.items()},
        open_dataset=open_dataset,
    )


def _named(axis: str, trees: Sequence[Tree]) -> tuple[Any, ...]:
    """Return the value that the first tree with one gives for an axis, empty without any."""
    for tree in trees:
        node = plain_tree(tree.get("sampler" if axis == "shot" else axis))
        if axis == "shot":
            value = node.get("n_shot") if isinstance(node, Mapping) else None
            if value is not None and not str(value).isdecimal():
                raise OptionError(f"sampler.n_shot must be a whole number, not {value!r}")
            value = None if value is None else int(value)
        else:
            value = node.get("name") if isinstance(node, Mapping) else node
        if value is not None:
            return (value,)
    return ()


def without_choices(tree: Tree) -> dict[str, Any]:
    """Return a tree without its choices for the axes; options of components stay."""
    found = dict(tree)
    for axis in AXES:
        key, name = ("sampler", "n_shot") if axis == "shot" else (axis, "name")
        node = found.get(key)
        if isinstance(node, Mapping):
            found[key] = {k: v for k, v in node.items() if k != name}
        elif axis != "shot":
            found.pop(key, None)
    return {key: value for key, value in found.items() if value != {}}
