"""Computing a run again, and comparing everything with its record."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fsframework as fsf
from fsframework.api.components import canonical
from fsframework.api.experiments import resolved, tree_of_call
from fsframework.api.models import resolve_device
from fsframework.api.running import Run, load_run, run_resolved
from fsframework.api.session import Session, open_session
from fsframework.cli.options import option_leaves
from fsframework.errors import DataError, FsfError, OptionError, PluginError, RecordError, argument
from fsframework.values import Estimate, digest_of, html_table, read_file, text_table

__all__ = ["Checked", "Repetition", "repeat_run"]

_SHOWN = 12
"""Characters of a digest that tables show."""
_NOT_COMPARED = ("name", "device", "model", "task_file", "attributes", "offline", "tensorboard")
"""Settings that decide no result by themselves: what they name is compared by its digest."""


@dataclass(frozen=True)
class Checked:
    """Something that a record tells, and what the repetition gives.

    Args:
        name: such as ``weights`` or ``wacc-gap``.
        recorded: as a text; ``repeated`` likewise, empty where there is nothing.
        same: whether both are equal, to the last digit.
        difference: how much they differ, where that is a number.
    """

    name: str
    recorded: str
    repeated: str
    same: bool
    difference: str = ""


@dataclass(frozen=True, repr=False)
class Repetition:
    """A run that was computed again.

    Args:
        run: name of the run.
        results: every digest and every estimate of its record.
        circumstances: versions, hardware, threads, device and options that are not those of the
            record; they may explain why results differ.
        folder: of the repeated run, ``None`` if it was removed.
    """

    run: str
    results: tuple[Checked, ...]
    circumstances: tuple[Checked, ...]
    folder: Path | None = None

    @property
    def same(self) -> bool:
        """Whether all results are equal to the last digit."""
        return all(one.same for one in self.results)

    @property
    def answer(self) -> str:
        """What came of it, in one sentence."""
        differing = [one.name for one in self.results if not one.same]
        others = ", ".join(one.name for one in self.circumstances)
        if not differing:
            although = f", although other things differ: {others}" if others else ""
            return f"{self.run}: all {len(self.results)} results are the same{although}"
        also = f"; so do other things: {others}" if others else ""
        return f"{self.run}: {len(differing)} of {len(self.results)} results differ{also}"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "run": self.run,
            "same": self.same,
            "results": [dataclasses.asdict(one) for one in self.results],
            "circumstances": [dataclasses.asdict(one) for one in self.circumstances],
            "folder": self.folder and str(self.folder),
        }

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return heads and cells of a table: first the results, then what else differs."""
        told = {False: "differs", True: "same"}
        rows = [
            [one.name, one.recorded or "–", one.repeated or "–", told[one.same], one.difference]
            for one in (*self.results, *self.circumstances)
        ]
        return ["", "recorded", "repeated", "", "by"], rows

    def __repr__(self) -> str:
        return f"{text_table(*self.table())}\n{self.answer}"

    def _repr_html_(self) -> str:
        return html_table(*self.table(), self.answer)


def repeat_run(  # noqa: PLR0913 - an option each
    run: str | Path | Run,
    *,
    keep: str | Path | None = None,
    device: str | None = None,
    allow_code: bool = False,
    allow_external: bool = False,
    plugins: Sequence[str | Path] = (),
    runs_dir: str | Path | None = None,
    progress: bool = True,
) -> Repetition:
    """Compute a run again from its record, in a fresh cache, and compare every result.

    Data, words, tasks, training, evaluation and estimates are computed again, on the device and
    with the number of threads of the record where this machine has them. Nothing of the run is
    changed.

    Args:
        run: a run, its folder, its name or the beginning of it, or a selector.
        keep: folder for the repeated run and its cache; what an interrupted repetition has left
            there is used again. By default both are temporary.
        device: to compute on; by default that of the record.
        allow_code: whether to import code that the record holds or names: copies of plugin files,
            and options such as ``training.optimizer`` with the value ``module:Class``.
        allow_external: whether the record may set options that reach out of the machine, such as
            the ``url`` of an endpoint.
        plugins: Python files whose plugin classes are loaded, in place of the record's copies.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.
        progress: whether progress is shown on standard error.

    Raises:
        RecordError: the run is not finished, or was imported.
        PluginError: a plugin of the run is not there, or its class was given in Python.
        FsfError: the data or weights that it started from are gone or wrong.

    >>> import fsframework as fsf
    >>> from fsf_tools import repeat_run
    >>> run = fsf.run(
    ...     method="ncc", sampler="random", tasks=20, way=2, shot=1, queries=2, progress=False,
    ...     dataset={"name": "planted", "n_per_class": 8, "size": 16}, training={"epochs": 0},
    ... )
    >>> repeat_run(run, progress=False).same
    True
    """
    opened = run if isinstance(run, Run) else load_run(run, runs_dir)
    if len(opened.runs) > 1:
        raise DataError(f"{opened.name}: has several seeds; repeat each of its runs")
    if opened.record.status != "finished":
        raise RecordError(f"{opened.folder}: is {opened.record.status}; only finished runs repeat")
    with ExitStack() as stack:
        if keep is None:
            keep = stack.enter_context(TemporaryDirectory(prefix="fsf-repeat-"))
        place = Path(keep)
        session = open_session(
            runs_dir=place / "runs", cache_dir=place / "cache", plugins=plugins, progress=progress
        )
        _load_plugins(opened, session, allow_code=allow_code)
        given = {
            "device": device or _device_of(opened),
            "allow_code": allow_code,
            "allow_external": allow_external,
        }
        tree = tree_of_call(given, opened.folder / "run.json")
        tree.pop("name", None)
        stack.enter_context(_threads(opened.record.environment.threads))
        again = run_resolved(resolved(tree, session), session)
        found = Repetition(
            opened.name,
            (*_digests(opened, again), *_estimates(opened, again)),
            tuple(_circumstances(opened, again)),
            again.folder,
        )
    return found if again.folder.exists() else dataclasses.replace(found, folder=None)


def _load_plugins(run: Run, session: Session, *, allow_code: bool) -> None:
    """Load the record's copies of plugin files whose plugins are not there.

    Raises:
        PluginError: a plugin cannot be had.
        OptionError: there is a copy, which may not be imported.
        DataError: a copy is missing or damaged.
    """
    missing = [
        one for one in run.record.plugins if one.name not in session.registry.names(one.kind)
    ]
    for plugin in missing:
        called = f"{run.folder}: its {plugin.kind} {plugin.name!r}"
        if plugin.version != "-":
            raise PluginError(f"{called} of {plugin.distribution} is not installed")
        if not plugin.target.endswith(".py"):
            raise PluginError(
                f"{called} was a class or object given in Python; call fsframework.run with it "
                f"again, or give a file that defines it with {argument('plugins')}"
            )
    for copy in dict.fromkeys(_copy_of(run, one.target, one.files) for one in missing):
        if not allow_code:
            raise OptionError(
                f"{run.folder}: its plugins come from {copy}, a file that is imported and so runs; "
                f"if you trust it, give {argument('allow_code', True)}"
            )
        session.registry.load_file(copy)


def _copy_of(run: Run, file: str, copies: Mapping[str, str]) -> Path:
    """Return the copy of a plugin's file in the folder of a run.

    Args:
        file: that it was loaded from.
        copies: of all files that it consists of: digests by name.
    """
    stem = Path(file).stem
    for name, digest in copies.items():
        copy = run.folder / "code" / name
        if name.rpartition("-")[0] != stem:
            continue
        if not copy.is_file() or digest_of(read_file(copy)) != digest:
            raise DataError(f"{copy}: is missing, or is not what the run wrote")
        return copy
    raise DataError(f"{run.folder}: has no copy of {file}; give it as a plugin file")


def _device_of(run: Run) -> str:
    """Return the device of a run if this machine has it."""
    try:
        return str(resolve_device(run.record.environment.device))
    except OptionError:
        return "auto"


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Compute with a number of threads, since sums depend on it; 0 leaves it as it is.

    More than this machine has cores would only make it slow, or fail.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(min(number, os.cpu_count() or 1) or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _digests(run: Run, again: Run) -> Iterator[Checked]:
    """Yield the digests of both, in the order in which they are computed."""
    first, second = (
        {**one.digests, **{f"tasks-{arm}": tasks.digest for arm, tasks in one.arms.items()}}
        for one in (run.record, again.record)
    )
    order = ("data", "pool", "attributes", "tasks", "images", "weights", "outcomes")
    names = sorted({**first, **second}, key=lambda name: _place(name, order))
    for name in names:
        then, now = first.get(name, ""), second.get(name, "")
        by = "" if then == now else _how_much(name, run, again)
        yield Checked(name, then[:_SHOWN], now[:_SHOWN], then == now, by)


def _place(name: str, order: Sequence[str]) -> int:
    return next((at for at, one in enumerate(order) if name.startswith(one)), len(order))


def _how_much(name: str, run: Run, again: Run) -> str:
    """Return how much what a digest stands for differs, empty if that is not a number."""
    kind, _, arm = name.partition("-")
    if kind == "weights":
        return _distance(run.folder / "weights.safetensors", again.folder / "weights.safetensors")
    if kind != "outcomes" or run.record.arms[arm].digest != again.record.arms[arm].digest:
        return ""
    try:
        other = run.outcomes[arm].predictions != again.outcomes[arm].predictions
    except FsfError:
        return ""  # the files of the run are no longer there
    tasks = other.any(axis=(1, 2))
    return f"{tasks.sum():,} of {len(tasks):,} tasks, {other.sum():,} of {other.size:,} queries"


def _distance(first: Path, second: Path) -> str:
    """Return the distance of two files of weights as a share of the norm of the first."""
    import torch
    from safetensors.torch import load_file

    if not first.exists():
        return ""
    then, now = load_file(first), load_file(second)
    if {k: v.shape for k, v in then.items()} != {k: v.shape for k, v in now.items()}:
        return "other shapes"
    pairs = [(then[key].double(), now[key].double()) for key in then]
    apart = math.sqrt(sum(float(torch.sum((a - b) ** 2)) for a, b in pairs))
    norm = math.sqrt(sum(float(torch.sum(a**2)) for a, _ in pairs))
    return f"{apart / norm:.1g} of their norm" if norm else ""


def _estimates(run: Run, again: Run) -> Iterator[Checked]:
    for name in {**run.estimates, **again.estimates}:
        pair = [one.estimates.get(name) for one in (run, again)]
        told = ["" if one is None else str(one) for one in pair]
        same = pair[0] is not None and pair[1] is not None
        same = same and canonical(pair[0].to_json()) == canonical(pair[1].to_json())
        yield Checked(name, *told, same, "" if same else _points(name, run, again, pair))


def _points(name: str, run: Run, again: Run, pair: Sequence[Estimate | None]) -> str:
    """Return by how much an estimate differs, with the interval of the paired difference."""
    then, now = pair
    if then is None or now is None:
        return ""
    scale, unit = (100, " points") if then.share else (1, "")
    told = f"{scale * (now.value - then.value):+z.3g}{unit}".replace("-", "−")
    try:
        [part] = fsf.compare({"repeated": again, "recorded": run}, name).parts
        difference = part.pairs[0].difference
    except FsfError:
        return told  # other tasks, or a measure that is not compared
    if math.isnan(difference.low):
        return told
    low, high = (f"{scale * bound:+z.3g}" for bound in (difference.low, difference.high))
    return f"{told}, {100 * difference.level:g} % interval {low} to {high}".replace("-", "−")


def _circumstances(run: Run, again: Run) -> Iterator[Checked]:
    """Yield what is not as it was when the run was made."""
    first, second = ({**_surroundings(one), **_options(one)} for one in (run, again))
    for name in {**first, **second}:
        then, now = first.get(name, ""), second.get(name, "")
        if then != now:
            yield Checked(name, then, now, False)
    if run.record.fingerprint != again.record.fingerprint:
        identities = (one.record.fingerprint[:_SHOWN] for one in (run, again))
        yield Checked("identity of the run", *identities, False)


def _surroundings(run: Run) -> dict[str, str]:
    """Return the environment of a run and the versions of its plugins."""
    told = vars(run.record.environment)
    known = {name.replace("_", " "): str(value) for name, value in told.items()}
    plugins = {
        f"{one.kind} {one.name}": f"{one.distribution} {one.version}" for one in run.record.plugins
    }
    return {**known, **plugins}


def _options(run: Run) -> Mapping[str, str]:
    """Return every resolved option of a run that decides its results."""
    values = {key: v for key, v in run.options[0].items() if key not in _NOT_COMPARED}
    return {key: canonical(value) for key, value in option_leaves(values)}
