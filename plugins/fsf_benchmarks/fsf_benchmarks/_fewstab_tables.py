"""FewSTAB's tables as views of a grid that was run, the printed values beside.

Source: Zheng et al. 2024, Tables 3, 4, 6, S5, S6, S7 and S8.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fsframework.benchmarks.cells import CellResult, cell_footnotes
from fsframework.benchmarks.fewstab import (
    BACKBONE,
    DETECTOR,
    PLAIN,
    TASKS,
    Choice,
    Grid,
    Slot,
    spelt,
)
from fsframework.benchmarks.published import AVERAGE, DETECTORS, printed_values
from fsframework.benchmarks.tables import Line, Quantity, Table
from fsframework.components.resolution import parameters
from fsframework.errors import DataError
from fsframework.pipeline.experiment.configuration import Experiment
from fsframework.pipeline.ranking import LEAST_CONTESTANTS, bootstrap_spearman, spearman
from fsframework.pipeline.run import load_outcomes
from fsframework.records import RunRecord
from fsframework.values import FloatArray

__all__ = ["make_tables"]

_ESTIMATES = {"Acc": "acc-R", "wAcc-A": "wacc-A", "wAcc-R": "wacc-R"}
_KINDS = {
    "closed": "closed (they speak of this data set alone)",
    "open": "open (they speak of where the data came from)",
}
_PUBLISHED_SAMPLER = "fewstab-published"
_REPLICATES = 2000
_PAPER_SHAPE = (5, 15)  # ways, queries a class


def make_tables(grid: Grid, results: Sequence[CellResult]) -> list[Table]:
    """Return the tables that were asked for.

    Args:
        results: of ``grid.cells``, in their order.
    """
    view = _View(grid, results)
    blocks = list(dict.fromkeys((s.dataset, s.backbone) for s in grid.slots))
    parts: list[Callable[[str, str], Table | None]] = [view.table_3, view.table_s7, view.table_s8]
    if grid.request.ablation:
        parts += [view.table_s5, view.table_s6]
    found = [part(*block) for part in parts for block in blocks]
    if grid.request.agreement:
        found += [view.table_4(), view.table_6()]
    return [table for table in found if table is not None]


_LONGEST_REASON = 60


def _in_a_cell(reason: str) -> str:
    """Return why a cell has no number, so far as it fits; the notes tell the rest."""
    if len(reason) > _LONGEST_REASON:
        return "failed, see below"
    return f"failed: {reason}" if reason else ""


class _View:
    """Finds in the results what each table shows."""

    def __init__(self, grid: Grid, results: Sequence[CellResult]) -> None:
        self._grid, self._results = grid, results
        self._choices = {choice.text: choice for choice in grid.datasets}
        self._loaded: dict[Path, dict[str, tuple[str, FloatArray]]] = {}

    def table_3(self, dataset: str, backbone: str) -> Table:
        """wAcc-A and wAcc-R."""
        title = "Worst-class accuracy on attribute-biased (wAcc-A) and random tasks (wAcc-R), in %"
        return self._accuracies("3", title, dataset, backbone, ("wAcc-A", "wAcc-R"))

    def table_s7(self, dataset: str, backbone: str) -> Table:
        """Acc and wAcc-A."""
        title = (
            "Accuracy on random tasks (Acc) and worst-class accuracy on attribute-biased tasks "
            "(wAcc-A), in %"
        )
        return self._accuracies("S7", title, dataset, backbone, ("Acc", "wAcc-A"))

    def _accuracies(
        self, number: str, title: str, dataset: str, backbone: str, columns: tuple[str, ...]
    ) -> Table:
        words = self._choices[dataset].words[0]
        slots = [s for s in self._slots(dataset, backbone) if s.words == words]
        lines = [
            self._line(number, slot, _ESTIMATES[column], column)
            for slot in slots
            for column in columns
        ]
        return self._table(number, title, slots, lines)

    def table_s8(self, dataset: str, backbone: str) -> Table:
        """wAcc-A with each source of attributes."""
        slots = self._slots(dataset, backbone)
        lines = [
            self._line("S8", slot, "wacc-A", DETECTORS.get(slot.words, slot.words))
            for slot in slots
        ]
        title = "wAcc-A by where the attributes come from, in %"
        return self._table("S8", title, slots, lines)

    def _slots(self, dataset: str, backbone: str, technique: str = PLAIN) -> list[Slot]:
        wanted = dataset, backbone, technique
        return [s for s in self._grid.slots if (s.dataset, s.backbone, s.technique) == wanted]

    def _result(self, slot: Slot) -> CellResult:
        return self._results[self._grid.slots[slot]]

    def _line(self, number: str, slot: Slot, estimate: str, column: str) -> Line:
        """Return one estimate of a run beside what the table prints in that column."""
        result = self._result(slot)
        measured = None
        if result.record is not None:
            measured = Quantity.of(result.record.estimates[estimate])
        return Line(
            (str(slot.shot), spelt(slot.method)),
            column,
            measured,
            _in_a_cell(result.reason),
            self._printed(number, slot, spelt(slot.method), column),
            about=self._about(slot, estimate),
        )

    def _printed(self, number: str, slot: Slot, method: str, column: str) -> Quantity | None:
        if not self._comparable(slot):
            return None
        label = self._choices[slot.dataset].label
        return printed_values().get((number, label, slot.shot, method, column))

    def _comparable(self, slot: Slot) -> bool:
        """Whether the tasks have the shape of the paper's, without which wAcc is another thing."""
        sampler = self._result(slot).cell.experiment.sampler.create()
        return (sampler.n_way, sampler.n_query) == _PAPER_SHAPE

    def _about(self, slot: Slot, estimate: str) -> dict[str, Any]:
        result, choice = self._result(slot), self._choices[slot.dataset]
        experiment, record = result.cell.experiment, result.record
        found = record.estimates[estimate] if record is not None else None
        return {
            "dataset": slot.dataset,
            "label": choice.label,
            "data_fingerprint": choice.fingerprint,
            "backbone": slot.backbone,
            "shot": slot.shot,
            "method": slot.method,
            "attributes": slot.words,
            "sampler": experiment.sampler.name,
            "technique": slot.technique,
            "tasks": experiment.settings.tasks if record is None else record.tasks["R"]["count"],
            "query_batch": experiment.settings.query_batch,
            "interval": None if found is None else found.kind,
            "level": experiment.settings.level,
            "estimator": None if found is None else found.estimator,
            "contestants": 1,
            "run": None if result.folder is None else str(result.folder),
            "fingerprint": None if record is None else record.fingerprint,
            "cautions": "" if record is None else "; ".join(record.cautions),
        }

    def table_s5(self, dataset: str, backbone: str) -> Table | None:
        """Accuracy gaps by construction of the support."""
        title = (
            "Accuracy gap wAcc-R − wAcc-A by construction of the support, in %: random (SC1), with "
            "the class's attribute (SC2), with no other class's attribute either (SC3, FewSTAB)"
        )
        return self._ablation("S5", title, dataset, backbone, ("SC1", "SC2", "SC3"))

    def table_s6(self, dataset: str, backbone: str) -> Table | None:
        """Accuracy gaps by construction of the queries."""
        title = (
            "Accuracy gap wAcc-R − wAcc-A by construction of the queries, in %: without the "
            "class's attribute (QC1), with another class's (QC2), with the fewest other attributes "
            "(QC3, FewSTAB)"
        )
        return self._ablation("S6", title, dataset, backbone, ("QC1", "QC2", "QC3"))

    def _ablation(
        self, number: str, title: str, dataset: str, backbone: str, techniques: tuple[str, ...]
    ) -> Table | None:
        slots = self._slots(dataset, backbone, techniques[0])
        if not slots:
            return None
        lines: list[Line] = []
        for shot, group in itertools.groupby(slots, key=lambda s: s.shot):
            rows = [[s._replace(technique=t) for t in techniques] for s in group]
            lines += [self._line(number, s, "wacc-gap", s.technique) for row in rows for s in row]
            # A method that failed in one construction would shift the others' averages.
            whole = [row for row in rows if all(self._result(s).record for s in row)]
            for place, technique in enumerate(techniques):
                column = [row[place] for row in whole]
                lines.append(self._average_drop(number, shot, technique, rows[0][place], column))
        notes = [
            "average drop: the mean of the gaps over the methods; they share their tasks, so its "
            "interval is Welch's on the tasks' means over methods",
        ]
        if any(line.printed for line in lines):
            notes.append("the paper gives gaps no interval: a difference has the measured one's")
        every = [s._replace(technique=t) for t in techniques for s in slots]
        return self._table(number, title, every, lines, notes)

    def _average_drop(
        self, number: str, shot: int, technique: str, slot: Slot, slots: Sequence[Slot]
    ) -> Line:
        """Return the gap averaged over methods, the paper's average drop."""
        measured, reason = None, "none: no method finished all constructions"
        methods = [spelt(s.method) for s in slots]
        level = self._result(slot).cell.experiment.settings.level
        if slots:
            try:
                random, biased = (self._per_task(slots, kind).mean(axis=0) for kind in "RA")
                measured, reason = _difference(random, biased, level), ""
            except DataError as error:
                reason = f"none: {error}"
        printed = [self._printed(number, slot, name, technique) for name in methods]
        values = [q.value for q in printed if q is not None]
        known = bool(values) and len(values) == len(methods)
        return Line(
            (
                str(shot),
                f"average drop ({len(slots)} {'method' if len(slots) == 1 else 'methods'})",
            ),
            technique,
            measured,
            reason,
            self._printed(number, slot, AVERAGE, technique),
            Quantity(float(np.mean(values))) if known else None,
            {
                **self._about(slots[0] if slots else slot, "wacc-gap"),
                "method": ";".join(s.method for s in slots),
                "contestants": len(slots),
                "estimator": "welch-t",
                "run": None,
                "fingerprint": None,
            },
        )

    def _per_task(self, slots: Sequence[Slot], kind: str) -> FloatArray:
        """Return wAcc of every task for some contestants, float64 ``(contestants, tasks)``.

        Raises:
            DataError: the contestants' tasks are not the same, or the outcomes of one are gone.
        """
        found = []
        for slot in slots:
            outcomes = self._outcomes(slot)
            if kind not in outcomes:
                raise DataError(f"the outcomes in {self._result(slot).folder} are gone")
            found.append(outcomes[kind])
        if len({digest for digest, _ in found}) > 1:
            raise DataError("the methods were evaluated on different tasks")
        return np.stack([values for _, values in found])

    def _outcomes(self, slot: Slot) -> dict[str, tuple[str, FloatArray]]:
        """Return the digest of the tasks and the wAcc of each, by kind of tasks."""
        result = self._result(slot)
        assert result.folder is not None
        if result.folder not in self._loaded:
            statistic = result.cell.experiment.statistics["wacc"].create()
            _, outcomes = load_outcomes(result.folder)
            self._loaded[result.folder] = {
                kind: (answered.task_digest, np.asarray(statistic.per_task(answered)))
                for kind, answered in outcomes.items()
            }
        return self._loaded[result.folder]

    def table_4(self) -> Table:
        """Rank correlation of wAcc-A and wAcc-R."""
        used: list[Slot] = []
        lines: list[Line] = []
        for choice, shot, slots in self._by_shot():
            chosen = [s for s in slots if s.words == choice.words[0]]
            used += chosen
            row = (choice.name, str(shot))
            lines.append(self._correlation("4", row, chosen, "A", chosen, "R", ("3", "wAcc-R")))
        title = "Spearman's rank correlation of wAcc-A and wAcc-R over the contestants"
        return self._correlations("4", title, ("data set", "shot"), used, lines)

    def table_6(self) -> Table:
        """Rank correlation of wAcc-A between sources of attributes."""
        lines: list[Line] = []
        used: list[Slot] = []
        row: tuple[str, ...]
        for choice, shot, slots in self._by_shot():
            used += slots
            for first, second in itertools.combinations(choice.words, 2):
                names = [DETECTORS.get(w, w) for w in (first, second)]
                row = (choice.name, str(shot), " and ".join(names))
                chosen = [[s for s in slots if s.words == w] for w in (first, second)]
                lines.append(
                    self._correlation("6", row, chosen[0], "A", chosen[1], "A", ("S8", names[1]))
                )
            if len(choice.words) < 2:
                reason = f"none: one source of attributes ({choice.words[0]}); name two --detector"
                row = (choice.name, str(shot), choice.words[0], str(len(slots)))
                lines.append(Line(row, "rho", None, reason, about=self._about(slots[0], "wacc-A")))
        title = "Spearman's rank correlation of wAcc-A between two sources of attributes"
        return self._correlations("6", title, ("data set", "shot", "attributes"), used, lines)

    def _by_shot(self) -> Iterator[tuple[Choice, int, list[Slot]]]:
        """Yield the plain slots of each data set and shot; backbones are contestants alike."""
        for choice in self._grid.datasets:
            slots = [
                s for s in self._grid.slots if s.dataset == choice.text and s.technique == PLAIN
            ]
            for shot in dict.fromkeys(s.shot for s in slots):
                yield choice, shot, [s for s in slots if s.shot == shot]

    def _correlation(
        self,
        number: str,
        row: tuple[str, ...],
        first: Sequence[Slot],
        first_kind: str,
        second: Sequence[Slot],
        second_kind: str,
        second_printed: tuple[str, str],
    ) -> Line:
        """Return the rank correlation of two columns of wAcc over the same contestants."""
        pairs = [
            (one, other)
            for one, other in zip(first, second, strict=True)
            if self._result(one).record and self._result(other).record
        ]
        measured, reason = None, ""
        about = {
            **self._about(first[0], "wacc-A"),
            "backbone": ";".join(dict.fromkeys(one.backbone for one in first)),
            "method": ";".join(dict.fromkeys(one.method for one, _ in pairs)),
            "attributes": ";".join(dict.fromkeys((first[0].words, second[0].words))),
            "contestants": len(pairs),
            "estimator": "bootstrap-percentile",
            "run": None,
            "fingerprint": None,
        }
        if len(pairs) < LEAST_CONTESTANTS:
            count = "is 1" if len(pairs) == 1 else f"are {len(pairs)}"
            reason = f"none: it takes {LEAST_CONTESTANTS} contestants, here {count}"
        else:
            settings = self._result(first[0]).cell.experiment.settings
            try:
                found = bootstrap_spearman(
                    self._per_task([one for one, _ in pairs], first_kind),
                    self._per_task([other for _, other in pairs], second_kind),
                    n_replicates=_REPLICATES,
                    level=settings.level,
                    seed=settings.seed,
                )
            except DataError as error:
                reason = f"none: {error}"
            else:
                # A percentile interval need not hold the estimate; see bootstrap_spearman.
                measured = Quantity(found.rho, found.low, found.high, unit="")
                if np.isnan(found.rho):
                    measured, reason = None, "none: all contestants have the same wAcc"
        return Line(
            (*row, str(len(pairs))),
            "rho",
            measured,
            reason,
            self._printed_rho(number, first[0], second[0]),
            self._from_printed(first[0], second[0], [one for one, _ in pairs], second_printed),
            about,
        )

    def _printed_rho(self, number: str, first: Slot, second: Slot) -> Quantity | None:
        vlms = {DETECTORS.get(s.words) for s in (first, second)}
        if number == "6" and vlms != set(DETECTORS.values()):
            return None
        return self._printed(number, first, "", "rho")

    def _from_printed(
        self, first: Slot, second: Slot, slots: Sequence[Slot], second_printed: tuple[str, str]
    ) -> Quantity | None:
        """Return the correlation of the paper's values of the same methods."""
        own = ("3", "wAcc-A")
        if second_printed[0] == "S8":
            own = ("S8", DETECTORS.get(first.words, first.words))
        methods = list(dict.fromkeys(spelt(s.method) for s in slots))
        values = [
            [self._printed(table, slot, method, column) for method in methods]
            for slot, (table, column) in ((first, own), (second, second_printed))
        ]
        if len(methods) < LEAST_CONTESTANTS or any(q is None for side in values for q in side):
            return None
        sides = [np.array([q.value for q in side if q is not None]) for side in values]
        return Quantity(spearman(sides[0], sides[1]), unit="")

    def _correlations(
        self,
        number: str,
        title: str,
        names: tuple[str, ...],
        slots: Sequence[Slot],
        lines: Sequence[Line],
    ) -> Table:
        data, tasks, _ = self._settings(slots)
        notes = [data, tasks, "contestants: methods with their backbones"]
        measured = [line for line in lines if line.measured is not None]
        if measured:
            level = _joined(f"{100 * line.about['level']:g} %" for line in measured)
            kinds = _joined(_KINDS[line.about["interval"]] for line in measured)
            notes.append(
                f"intervals: {level}, percentile bootstrap over the tasks, {_REPLICATES:,} "
                f"replicates, the same tasks for all contestants, whose weights are taken as "
                f"given; {kinds}"
            )
        if any(line.printed for line in lines):
            notes.append("printed: FewSTAB's, of its ten methods; it gives no interval")
        if any(line.from_printed for line in lines):
            notes.append("printed, these methods: computed from its values of the methods here")
        notes += self._cautions(slots)
        columns = (*names, "contestants")
        return Table(number, f"{title}.", columns, tuple(lines), tuple(notes), differences=False)

    def _table(
        self,
        number: str,
        title: str,
        slots: Sequence[Slot],
        lines: Sequence[Line],
        notes: Iterable[str] = (),
    ) -> Table:
        said = [*self._settings(slots), *notes]
        reasons = dict.fromkeys(self._result(slot).reason for slot in slots)
        said += [f"failed: {reason}" for reason in reasons if len(reason) > _LONGEST_REASON]
        if any(line.printed for line in lines):
            said.append(self._printed_note(number, slots))
        said += self._cautions(slots)
        name = self._choices[slots[0].dataset].name
        title = f"{name}, {slots[0].backbone}: {title}."
        return Table(number, title, ("shot", "method"), tuple(lines), tuple(said))

    def _cautions(self, slots: Sequence[Slot]) -> list[str]:
        """Say whose classes may not be new, and what data are not as published."""
        results = [self._result(slot) for slot in slots]
        return cell_footnotes(results)

    def _settings(self, slots: Sequence[Slot]) -> list[str]:
        """Say what the cells of a table have in common, several values where they have not."""
        cells = [self._result(slot).cell for slot in slots]
        records = [r for slot in slots if (r := self._result(slot).record) is not None]
        estimates = [e for r in records for e in r.estimates.values()]
        data = []
        for choice in {slot.dataset: self._choices[slot.dataset] for slot in slots}.values():
            same = f"{choice.label} = {choice.text}" if choice.label else choice.text
            data.append(f"{same} (fingerprint {choice.fingerprint[:12]})")
        kinds = _joined(f"{100 * e.level:g} %, {_KINDS[e.kind]}" for e in estimates)
        shapes = []
        for cell in cells:
            sampler = cell.experiment.sampler.create()
            shapes.append(f"{sampler.n_way}-way, {sampler.n_query} queries a class")
        settings = [cell.experiment.settings for cell in cells]
        return [
            f"data set: {_joined(data)}; backbone: {_joined(s.backbone for s in slots)}; "
            f"attributes: {_joined(s.words for s in slots)}",
            f"tasks: {_joined(self._count(slot) for slot in slots)} random and as many "
            f"attribute-biased ones by sampler {_joined(_sampler(c.experiment) for c in cells)}, "
            f"{_joined(shapes)}, seed {_joined(s.seed for s in settings)}; queries shown by "
            f"{_joined(s.query_batch for s in settings)}",
            f"intervals: {kinds}" if kinds else "intervals: none",
        ]

    def _count(self, slot: Slot) -> str:
        record, tasks = self._result(slot).record, self._result(slot).cell.experiment.settings.tasks
        if record is not None:
            tasks = record.tasks["R"]["count"]
        return "all" if tasks is None else f"{tasks:,}"

    def _printed_note(self, number: str, slots: Sequence[Slot]) -> str:
        """Say in what the printed values differ from those measured here."""
        results = [self._result(slot) for slot in slots]
        weights = _joined(_weights(r.record) for r in results if r.record is not None)
        apart = [f"weights (here {weights or 'none'})"]
        backbone = slots[0].backbone
        if backbone != BACKBONE:
            apart.append(f"backbone (ResNet-12, here {backbone})")
        if number != "S8" and any(slot.words != DETECTOR for slot in slots):
            apart.append(f"attributes (ViT-GPT2's, here {_joined(s.words for s in slots)})")
        samplers = {r.cell.experiment.sampler.name for r in results}
        if samplers != {_PUBLISHED_SAMPLER}:
            apart.append(
                f"sampler ({_PUBLISHED_SAMPLER} draws as its code does, here "
                f"{_joined(sorted(samplers))})"
            )
        counts = _joined(self._count(slot) for slot in slots)
        if counts != f"{TASKS:,}":
            apart.append(f"number of tasks ({TASKS:,}, here {counts})")
        if any(r.cell.experiment.settings.query_batch != "class" for r in results):
            apart.append("which queries are shown together (those of a class, here of a task)")
        return (
            f"printed: FewSTAB (Zheng et al. 2024), Table {number}; it differs from what was "
            f"measured in {', '.join(apart)}"
        )


def _joined(values: Iterable[object]) -> str:
    """Return distinct values in their order, as a phrase."""
    return " and ".join(dict.fromkeys(str(value) for value in values))


def _sampler(experiment: Experiment) -> str:
    """Return a sampler's name and the options that were set, but for the shape of its tasks."""
    component = experiment.sampler
    defaults = parameters(component.cls)
    options = [
        f"{key}={value}"
        for key, value in component.options.items()
        if key not in ("n_way", "n_shot", "n_query") and value != defaults[key][1]
    ]
    return f"{component.name} ({', '.join(options)})" if options else component.name


def _weights(record: RunRecord) -> str:
    if record.training.get("history"):
        return "trained by these runs"
    sources = [s["init_from"] for s in record.resolved["training"] if s["init_from"]]
    return f"taken from {sources[-1]}" if sources else "untrained"


def _difference(first: FloatArray, second: FloatArray, level: float) -> Quantity:
    """Return the difference of two means of shares in percent, with Welch's interval."""
    from scipy import stats

    value = 100 * float(first.mean() - second.mean())
    if min(len(first), len(second)) < 2:
        return Quantity(value)
    if first.std() == second.std() == 0:
        return Quantity.around(value, 0.0)
    interval = stats.ttest_ind(first, second, equal_var=False).confidence_interval(level)
    return Quantity(value, 100 * float(interval.low), 100 * float(interval.high))
