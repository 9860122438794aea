"""Optuna as a searcher: one study per search, in a journal that several processes may share."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fsf_tools.searcher import Range, Search, Searcher, Space, State, Trial
from fsframework.errors import DataError
from fsframework.interfaces.checks import check_at_least
from fsframework.values import read_file

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

__all__ = ["OptunaSearcher", "study"]

_NUMBER, _REASON = "number", "reason"
"""Attributes of a trial of Optuna: its number in the search, which may differ, and its failure."""
_STATES: dict[State, str] = {"finished": "COMPLETE", "stopped": "PRUNED", "failed": "FAIL"}


@dataclass(kw_only=True, eq=False)
class OptunaSearcher(Searcher):
    """Samplers and pruners of Optuna (Akiba et al. 2019).

    A sampler proposes values; a pruner stops trainings whose validation accuracy is low for their
    epoch. Trials of one process depend on the seed only, not on interruptions; several processes
    propose without knowing the results of each other's running trials.

    Args:
        sampler: tpe, which models good and bad values (Bergstra et al. 2011); gp, a Gaussian
            process; qmc, a Sobol sequence; random.
        pruner: median stops what is below the median of earlier trials at the same epoch;
            successive-halving and hyperband stop most trials after few epochs (Li et al. 2018).
        seed: of the sampler.
        startup: trials at random before tpe and gp begin; before it median stops none.
        warmup: epochs in which no training is stopped.

    Raises:
        OptionError: a number is out of its bounds.
    """

    sampler: Literal["tpe", "gp", "qmc", "random"] = "tpe"
    pruner: Literal["none", "median", "successive-halving", "hyperband"] = "none"
    seed: int = 0
    startup: int = 10
    warmup: int = 0

    def __post_init__(self) -> None:
        check_at_least(0, seed=self.seed, warmup=self.warmup)
        check_at_least(1, startup=self.startup)

    def open(self, file: Path, space: Space) -> Search:
        """Open the study in a journal."""
        return _Study(self, _opened(file, pruner=self._pruner()), space)

    def sampler_of(self, number: int) -> optuna.samplers.BaseSampler:
        """Return the sampler of a trial, which depends on no state of a process."""
        from optuna import samplers

        seed = (self.seed * 1_000_003 + number) % 2**32
        with warnings.catch_warnings(action="ignore"):  # some samplers are experimental
            if self.sampler == "tpe":
                return samplers.TPESampler(
                    n_startup_trials=self.startup, seed=seed, constant_liar=True
                )
            if self.sampler == "gp":
                return samplers.GPSampler(n_startup_trials=self.startup, seed=seed)
            if self.sampler == "qmc":  # one sequence, whose position is in the journal
                return samplers.QMCSampler(scramble=True, seed=self.seed)
            return samplers.RandomSampler(seed=seed)

    def _pruner(self) -> optuna.pruners.BasePruner:
        from optuna import pruners

        if self.pruner == "median":
            return pruners.MedianPruner(self.startup, self.warmup)
        if self.pruner == "successive-halving":
            return pruners.SuccessiveHalvingPruner(min_resource=max(1, self.warmup))
        if self.pruner == "hyperband":
            return pruners.HyperbandPruner(min_resource=max(1, self.warmup))
        return pruners.NopPruner()


class _Study(Search):
    """A study of Optuna.

    Args:
        searcher: whose samplers it uses.
        study: as opened.
        space: of the search.
    """

    def __init__(self, searcher: OptunaSearcher, study: optuna.Study, space: Space) -> None:
        self._searcher, self._study = searcher, study
        self._distributions = {name: _distribution(one) for name, one in space.items()}

    def begin(self, number: int) -> Trial:
        """Return the trial of a number."""
        found = self._find(number)
        if found is None:
            self._study.sampler = self._searcher.sampler_of(number)
            with warnings.catch_warnings(action="ignore"):
                trial = self._study.ask(self._distributions)
            trial.set_user_attr(_NUMBER, number)
            return Trial(number, trial.params)
        return _trial(found)

    def goes_on(self, number: int, epoch: int, accuracy: float) -> bool:
        """Ask the pruner."""
        from optuna import Trial as Running

        found = self._find(number)
        assert found is not None
        running = Running(self._study, found._trial_id)
        if epoch not in found.intermediate_values:
            running.report(accuracy, epoch)
        if epoch <= self._searcher.warmup:
            return True
        return not running.should_prune()

    def end(
        self, number: int, state: State, *, score: float | None = None, reason: str = ""
    ) -> None:
        """Report to the study how a trial ended."""
        from optuna import Trial as Running
        from optuna.trial import TrialState

        found = self._find(number)
        assert found is not None
        if reason:
            Running(self._study, found._trial_id).set_user_attr(_REASON, reason)
        self._study.tell(found.number, score, TrialState[_STATES[state]])

    def trials(self) -> list[Trial]:
        """Return all trials that have a number."""
        found = self._study.get_trials(deepcopy=False)
        numbered = [_trial(one) for one in found if _NUMBER in one.user_attrs]
        return sorted(numbered, key=lambda trial: trial.number)

    def _find(self, number: int) -> FrozenTrial | None:
        found = self._study.get_trials(deepcopy=False)
        return next((one for one in found if one.user_attrs.get(_NUMBER) == number), None)


def _trial(found: FrozenTrial) -> Trial:
    states = {name: state for state, name in _STATES.items()}
    state = states.get(found.state.name, "running")
    told = found.user_attrs
    score = found.value if state == "finished" else None
    return Trial(told[_NUMBER], found.params, state, score, told.get(_REASON, ""))


def _distribution(values: Range | tuple[str, ...]) -> BaseDistribution:
    from optuna import distributions

    if not isinstance(values, Range):
        return distributions.CategoricalDistribution(values)
    if values.whole:
        step = int(values.step or 1)
        return distributions.IntDistribution(int(values.low), int(values.high), values.log, step)
    return distributions.FloatDistribution(values.low, values.high, values.log, values.step)


def _opened(file: Path, pruner: optuna.pruners.BasePruner | None = None) -> optuna.Study:
    import optuna
    from filelock import FileLock
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    # Unlike Optuna's own locks, the system releases this one when its process dies.
    lock: Any = FileLock(f"{file}.lock")
    with lock:
        _check_journal(file)
    try:
        with _quietly():
            storage = JournalStorage(JournalFileBackend(str(file), lock_obj=lock))
            return optuna.create_study(
                storage=storage,
                study_name="search",
                load_if_exists=True,
                direction="maximize",
                pruner=pruner,
            )
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise _damaged(file, f"Optuna cannot read it: {type(error).__name__}: {error}") from None


def _check_journal(file: Path) -> None:
    """Check that each line of a journal is an object, and drop a last one that was not finished.

    A killed process leaves such a line; Optuna would write the next one behind it.

    Raises:
        DataError: another line is damaged.
    """
    if not file.exists():
        return
    content = read_file(file)
    *lines, torn = content.split(b"\n")
    if torn:
        os.truncate(file, len(content) - len(torn))
    for number, line in enumerate(lines, start=1):
        try:
            is_object = isinstance(json.loads(line), dict)
        except ValueError:
            is_object = False
        if not is_object:
            raise _damaged(file, f"line {number:,} is not one that Optuna has written")


def _damaged(file: Path, reason: str) -> DataError:
    return DataError(
        f"{file}: this journal of a search is damaged ({reason}); remove it, and the same command "
        "tries again what it held"
    )


@contextmanager
def _quietly() -> Iterator[None]:
    """Let Optuna say only what is wrong."""
    from optuna import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def study(file: str | Path) -> Any:
    """Return the study in a journal as Optuna's own, for its figures and its dashboard.

    Its values are scores: higher is better.

    Args:
        file: ``study.jsonl`` in the folder of a search.

    Raises:
        FileNotFoundError: the file does not exist.
        DataError: it is damaged.
    """
    path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: holds no study")
    return _opened(path)
