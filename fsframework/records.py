"""Run records: written before a run starts, completed when it ends, readable by later versions."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Required, Self, TypedDict

import msgspec

from fsframework._digest import digest_of
from fsframework._files import atomic_write
from fsframework._reading import VersionError, check_version, parse_json, read_file
from fsframework._text import NAME
from fsframework.errors import DataError, FsfError, OptionError, RecordError, close_matches
from fsframework.values import (
    ArmOutcomes,
    Arms,
    Contrast,
    Estimate,
    Outcomes,
    TaskSet,
    label_in_arms,
)

__all__ = [
    "RECORD_NAME",
    "ArmRecord",
    "ComponentRecord",
    "DataRecord",
    "Environment",
    "Epoch",
    "ImportedRecord",
    "PluginRecord",
    "RecordVersionError",
    "RunRecord",
    "StageRecord",
    "TrainedOn",
    "TrainingRecord",
    "find_run",
    "list_records",
    "load_arms",
    "load_outcomes",
    "outcomes_digests",
    "read_arms",
    "read_outcomes",
]

RECORD_VERSION = 3
RECORD_NAME = "run.json"

_AGAIN = "; run the command that made it again"
Status = Literal["unfinished", "finished", "imported"]

Name = Annotated[str, msgspec.Meta(pattern=rf"\A{NAME}\Z")]
"""Of a component, a statistic or an arm, which names files too."""
FileName = Annotated[str, msgspec.Meta(pattern=r"\A[^/\\\x00-\x1f]{1,251}\.py\Z")]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
"""A finite number, such as of seconds or of tokens."""


class _Settings(TypedDict, total=False):
    """The settings that are read from records, with their types."""

    attributes: str | None
    image_size: Count | None
    interval: str
    level: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    task_seed: Count
    training_seed: Count | None


class _StageOptions(TypedDict, total=False):
    """The options of a stage that are read from records, with their types."""

    steps: Required[Count]
    epochs: Count
    init_from: str | None


class RecordVersionError(RecordError):
    """Another version of the framework wrote a record."""


@dataclass(frozen=True, order=True)
class PluginRecord:
    """A plugin that was used.

    Args:
        kind: such as ``method``; ``name`` its name.
        target: ``module:attribute``, or the file it was read from.
        distribution: name of its distribution; ``version`` the distribution's version.
        files: of a plugin of no distribution: digests of the files that it consists of, by the
            names of their copies in the run's folder ``code``.
    """

    kind: Name
    name: Name
    target: str
    distribution: str
    version: str
    files: dict[FileName, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ComponentRecord:
    """A component with the value of each of its options.

    Args:
        name: of the plugin.
        options: by name, as JSON values; a nested component is an object with a ``name``.
        origins: where each value came from.
        argument: name of the option that ``NAME:VALUE`` sets, if any.
        added_as: the name under which the user had added it, if that is a different one.
    """

    name: Name
    options: Mapping[Name, Any] = field(default_factory=dict)
    origins: Mapping[str, Any] = field(default_factory=dict)
    argument: str | None = None
    added_as: Name | None = None

    @property
    def called(self) -> str:
        """The component as users name it, such as ``timm:resnet50`` or ``ifsl:maml``."""
        value = None if self.argument is None else self.options.get(self.argument)
        if isinstance(value, Mapping):
            value = value.get("name")
        return self.name if value is None else f"{self.name}:{value}"

    def to_tree(self) -> dict[str, Any]:
        """Return name and options as written in a configuration file."""
        return {"name": self.name, **self.options}


@dataclass(frozen=True)
class StageRecord:
    """One stage of training: the value of each option, and where it came from."""

    options: Mapping[Name, Any]
    origins: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Number of updates per epoch."""
        return int(self.options["steps"])

    @property
    def init_from(self) -> str | None:
        """Run folder or file whose weights the stage started from."""
        return self.options.get("init_from")


@dataclass(frozen=True)
class ArmRecord:
    """The tasks of one arm.

    Args:
        sampler: name of the sampler; ``options`` its options; ``seed`` its seed.
        digest: of the tasks: equal digests, equal tasks.
        n_way: classes per task; ``n_shot`` support images and ``n_query`` queries per class.
        n_tasks: number of tasks.
        class_sizes: images of each class of the data.
        symbol: what tables print after a statistic's name.
        given_options: names of the sampler's options that were given, besides the shape.
        name: of imported tasks, as given at the import.
    """

    sampler: str = ""
    options: Mapping[Name, Any] = field(default_factory=dict)
    seed: Count = 0
    digest: str = ""
    n_way: Count = 0
    n_shot: Count = 0
    n_query: Count = 0
    n_tasks: Count = 0
    class_sizes: tuple[Count, ...] = ()
    symbol: str = ""
    given_options: tuple[str, ...] = ()
    name: str = ""

    @classmethod
    def of(
        cls, tasks: TaskSet, class_sizes: Iterable[int], symbol: str, given: Iterable[str] = ()
    ) -> Self:
        """Describe tasks; of the options ``given``, those that the tasks have."""
        names = ("sampler", "seed", "digest", "n_way", "n_shot", "n_query")
        return cls(
            **{name: getattr(tasks, name) for name in names},
            options=dict(tasks.options),
            n_tasks=len(tasks),
            class_sizes=tuple(int(size) for size in class_sizes),
            symbol=symbol,
            given_options=tuple(name for name in given if name in tasks.options),
        )

    @property
    def shape(self) -> str:
        """Ways and shots as text, such as ``5-way 1-shot``."""
        return f"{self.n_way}-way {self.n_shot}-shot"


@dataclass(frozen=True)
class Environment:
    """What a run ran on: versions of the numerical libraries, device, threads and number format."""

    fsframework: str = ""
    python: str = ""
    torch: str = ""
    numpy: str = ""
    threads: Count = 0
    device: str = ""
    device_name: str = ""
    dtype: str = ""


@dataclass(frozen=True)
class Epoch:
    """One epoch of training.

    Args:
        stage: number of the stage, from 0; ``epoch`` number of the epoch within it, from 0.
        learning_rate: of the epoch.
        loss: mean over its steps.
        validation_accuracy: share of correct answers, ``None`` without validation.
        seconds: wall-clock time.
    """

    stage: Count
    epoch: Count
    learning_rate: float
    loss: float
    validation_accuracy: float | None
    seconds: Amount


@dataclass(frozen=True)
class TrainingRecord:
    """The course of a training; without epochs if nothing was trained.

    Args:
        history: the epochs in order.
        best_validation_accuracy: of the epoch whose weights were kept.
        backbone_is_frozen: whether the backbone kept the weights it started with.
        recipe: the recipe's name, source and expectation in one sentence.
    """

    history: tuple[Epoch, ...] = ()
    best_validation_accuracy: float | None = None
    backbone_is_frozen: bool = False
    recipe: str = ""


@dataclass(frozen=True)
class TrainedOn:
    """A data set on whose training split weights were trained.

    Args:
        name: as readers know it; ``options`` the options it was read with.
        place: folder or file it was read from.
        images_from: names of the data that its images were taken from.
        classes: names of its training classes, unless they are too many to list.
    """

    name: str
    options: Mapping[Name, Any] = field(default_factory=dict)
    place: str = ""
    images_from: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataRecord:
    """The data under test, and what the model had seen before.

    Args:
        name: as readers know the data; ``image_size`` pixels per side that the model saw.
        pretrained_on: names of the data that the backbone had been pretrained on.
        trained_on: data sets on which the weights were trained here.
        unknown_weights: files of weights whose training data are not known.
        weights_from: where the backbone's pretrained weights came from, by keys such as
            ``package``, ``repository``, ``file`` and ``licence``; empty if it had none.
        thumbnails: of a few images of a task set, which tell these from others of the same names.
    """

    name: str = ""
    image_size: Count | None = None
    pretrained_on: tuple[str, ...] = ()
    trained_on: tuple[TrainedOn, ...] = ()
    unknown_weights: tuple[str, ...] = ()
    weights_from: Mapping[str, str] = field(default_factory=dict)
    thumbnails: Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{96})*\Z")] = ""

    @property
    def seen(self) -> tuple[object, ...]:
        """All that the weights were trained on; empty if nothing has trained them."""
        return (*self.pretrained_on, *self.trained_on, *self.unknown_weights)


@dataclass(frozen=True)
class ImportedRecord:
    """The source of an imported run.

    Args:
        source: the model of another library, or a file of accuracies.
        method: name of the method, for accuracies.
        folder: of the checkpoint.
        n_base_classes: classes the model was trained on, 0 if no weight depends on it.
        n_way: classes per task that a model is made for; ``n_shot`` and ``n_query`` likewise.
    """

    source: str
    method: str = ""
    folder: str = ""
    n_base_classes: Count = 0
    n_way: Count = 0
    n_shot: Count = 0
    n_query: Count = 0


@dataclass(frozen=True, repr=False)
class RunRecord:
    """One run: the given options, their resolved values, versions, and results.

    Args:
        fingerprint: digest of everything that decides the outcomes; statistics are not in it,
            since any can be computed from the outcomes later.
        group: digest of the same but for the training seed: runs of equal groups are one method,
            trained with several seeds and evaluated on the same tasks; empty for imports.
        status: ``finished`` once it has every requested estimate; ``imported`` if the weights
            or accuracies were imported and nothing was evaluated.
        created: date and time, ISO 8601, UTC.
        name: given by the user, else empty.
        given: options as the user gave them.
        settings: value of every option of the run as a whole; ``origins`` where each came from.
        components: by role: ``dataset``, ``backbone``, ``method``, ``sampler``, ``detector``.
        stages: of the training.
        plugins: every plugin used.
        arms: tasks by name of the arm, the control first; ``contrast`` the two that are compared.
        digests: of data, pool, attributes, weights and images.
        notes: what a reader must know (relaxed tasks, images without attributes, ...).
        cautions: those of the notes to print under every table that shows the run: classes the
            model may have seen before, data that are not as published.
        timings: wall-clock seconds by stage, 0 if a stage was reused.
        usage: what the method used beyond time, such as ``requests`` or ``prompt_tokens``.
        class_names: what each class was called, of a method that needs class names.
        statistics: fingerprint of each computed statistic; ``statistic_options``: its options;
            ``labels``: its name in tables.
        estimates: by name: ``acc-random``, ``wacc-random``, ``wacc-biased``, ``wacc-gap``, ...
    """

    fingerprint: str
    status: Status
    created: str
    group: str = ""
    name: str = ""
    given: Mapping[Name, Any] = field(default_factory=dict)
    settings: Mapping[Name, Any] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    components: Mapping[Name, ComponentRecord] = field(default_factory=dict)
    stages: tuple[StageRecord, ...] = ()
    plugins: tuple[PluginRecord, ...] = ()
    environment: Environment = field(default_factory=Environment)
    arms: Mapping[Name, ArmRecord] = field(default_factory=dict)
    contrast: Contrast | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    data: DataRecord = field(default_factory=DataRecord)
    training: TrainingRecord = field(default_factory=TrainingRecord)
    imported: ImportedRecord | None = None
    timings: Mapping[str, Amount] = field(default_factory=dict)
    usage: Mapping[str, Amount] = field(default_factory=dict)
    class_names: Mapping[str, str] = field(default_factory=dict)
    statistics: Mapping[Name, str] = field(default_factory=dict)
    statistic_options: Mapping[Name, Mapping[Name, Any]] = field(default_factory=dict)
    labels: Mapping[Name, str] = field(default_factory=dict)
    estimates: Mapping[Name, Estimate] = field(default_factory=dict)
    schema_version: int = RECORD_VERSION

    @property
    def method(self) -> ComponentRecord | None:
        """The method, ``None`` for accuracies measured elsewhere."""
        return self.components.get("method")

    @property
    def backbone(self) -> ComponentRecord | None:
        """The backbone, ``None`` for accuracies measured elsewhere."""
        return self.components.get("backbone")

    def model_tree(self, called: str) -> dict[str, Any]:
        """Return its backbone and its method as written in a configuration file.

        Args:
            called: the run, as the error names it.

        Raises:
            OptionError: it holds only tasks, or accuracies measured elsewhere.
        """
        if self.method is None or self.backbone is None:
            raise OptionError(f"{called}: holds tasks or accuracies, and no model")
        return {"backbone": self.backbone.to_tree(), "method": self.method.to_tree()}

    @property
    def configuration(self) -> dict[str, Any]:
        """The options that make it, in the shape of a configuration file.

        Those that were given, with the statistics and intervals that later calls have asked for.

        Raises:
            RecordError: it was imported.
        """
        if self.status == "imported":
            raise RecordError("an imported run was not made with options")
        asked = [self.statistic_tree(name) for name in self.statistics]
        later = {k: v for k, v in self.settings.items() if k in ("level", "interval")}
        return {**self.given, **later, **({"statistics": asked} if asked else {})}

    def statistic_tree(self, name: str) -> Any:
        """Return a statistic with its options, as written in a configuration file."""
        options = self.statistic_options.get(name)
        return {"name": name, **options} if options else name

    @property
    def training_seed(self) -> int | None:
        """Seed that its model was trained with, ``None`` if that is not known."""
        return self.settings.get("training_seed")

    @property
    def seen_size(self) -> int | None:
        """Height and width in pixels of the images its model saw, if known."""
        return self.data.image_size or self.settings.get("image_size")

    @property
    def tested(self) -> ArmRecord | None:
        """The tasks under test: those of the arm that is not the control."""
        if self.contrast is not None:
            return self.arms[self.contrast.tested]
        return next(reversed(list(self.arms.values())), None)

    def label(self, estimate: Estimate) -> str:
        """Return the name of an estimate in tables, such as ``wAcc-R``.

        The name of a gap states its terms: ``wAcc gap = wAcc-R − wAcc-A``.
        """
        name = self.labels.get(estimate.statistic) or estimate.statistic
        symbols = {arm: one.symbol for arm, one in self.arms.items()}
        arms = estimate.arms if estimate.higher_is_better else estimate.arms[::-1]
        if estimate.relative:
            return f"{name} drop"
        return label_in_arms(name, arms, symbols, only=len(self.arms) == 1)

    def tasks_file(self, folder: Path, arm: str) -> Path:
        """Return the file of an arm's tasks in the run's folder."""
        return folder / f"tasks-{arm}.safetensors"

    def outcomes_file(self, folder: Path, arm: str) -> Path:
        """Return the file of an arm's outcomes in the run's folder."""
        return folder / f"outcomes-{arm}.parquet"

    def images_file(self, folder: Path) -> Path:
        """Return the file of the images that the tasks were drawn from, without their words."""
        return folder / "images.parquet"

    def words_file(self, folder: Path) -> Path:
        """Return the file of the words of these images; there is none where they have no words."""
        return folder / "words.parquet"

    def __repr__(self) -> str:
        estimates = ", ".join(f"{name} {e}" for name, e in self.estimates.items())
        told = "; ".join(filter(None, (self.status, estimates)))
        return f"<RunRecord {self.fingerprint[:8]}: {told}>"

    def save(self, folder: Path) -> None:
        """Write ``run.json`` with a digest of its values, whole or not at all."""
        raw = json.loads(json.dumps(self.to_json()))
        sealed = {**raw, "digest": _digest(raw)}
        atomic_write(folder / RECORD_NAME, json.dumps(sealed, indent=2) + "\n")

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        # msgspec alone leaves out what a record that was read does not have.
        raw: dict[str, Any] = msgspec.to_builtins(dataclasses.asdict(self), enc_hook=_plain)
        raw["estimates"] = {name: e.to_json() for name, e in self.estimates.items()}
        return raw

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the record of a run folder, or of a file.

        Raises:
            RecordError: it is missing, not JSON, of another version, not what was written, or a
                value is of a type, or a name of a form, that no record has.
        """
        path = folder if folder.suffix == ".json" else folder / RECORD_NAME
        try:
            raw = parse_json(read_file(path))
            if not isinstance(raw, dict):
                raise ValueError("it is not a run record")
            check_version(raw.get("schema_version"), RECORD_VERSION)
            if raw.pop("digest", None) != _digest(raw):
                raise ValueError("it is not what was written")
            estimates = {name: Estimate.from_json(e) for name, e in raw["estimates"].items()}
            read = msgspec.convert({**raw, "estimates": {}}, cls)
            record = dataclasses.replace(read, estimates=estimates)
            _check_values(record)
            return record
        except FileNotFoundError:
            raise RecordError(f"{folder}: holds no run ({RECORD_NAME} is missing)") from None
        except VersionError as error:
            raise RecordVersionError(f"{path}: {error}") from None
        except (OSError, KeyError, AttributeError, TypeError, ValueError, FsfError) as error:
            reason = str(getattr(error, "strerror", None) or error)
            reason = re.sub(r"`str` matching regex '.*?'( - |$)", r"a name\1", reason)
            raise RecordError(f"{path}: cannot be read ({reason})") from None


def _check_values(record: RunRecord) -> None:
    """Check what the types of the fields leave open.

    Raises:
        ValueError: a value that readers rely on is missing, or of another type or form.
    """
    datetime.fromisoformat(record.created)
    msgspec.convert(record.settings, _Settings)
    for stage in record.stages:
        msgspec.convert(stage.options, _StageOptions)
    ran = record.status != "imported"
    evaluated = ran and record.method is not None
    needed = {
        "arms": record.contrast.arms if record.contrast else (),
        "components": ("dataset", "sampler") * ran + ("backbone",) * evaluated,
        "settings": ("level", "interval") * evaluated,
    }
    for where, names in needed.items():
        if missing := sorted({*names} - getattr(record, where).keys()):
            raise ValueError(f"{where} lacks {', '.join(missing)}")
    for arm in record.arms.values():
        if {*arm.given_options} - arm.options.keys():
            raise ValueError("given_options of an arm are not among its options")
    for name, estimate in record.estimates.items():
        msgspec.convert(name, Name)
        if name != estimate.name:
            raise ValueError(f"{name!r} is the estimate {estimate.name!r}")


def _digest(raw: Mapping[str, Any]) -> str:
    """Return the digest of a record's values, as JSON in the order of their names."""
    return digest_of("record", json.dumps(raw, sort_keys=True))


def _plain(value: Any) -> Any:
    """Return a read-only mapping as a dictionary, and a subclass of a text as the text."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError


def load_arms(folder: Path, record: RunRecord) -> Arms:
    """Return the tasks of a run's arms.

    Raises:
        DataError: a file is missing or damaged, or holds other tasks than the record says.
    """
    tasks = {arm: TaskSet.load(record.tasks_file(folder, arm)) for arm in record.arms}
    for arm, found in tasks.items():
        if record.arms[arm].digest not in ("", found.digest):
            raise DataError(f"{record.tasks_file(folder, arm)}: holds tasks of another run")
    symbols = {arm: one.symbol for arm, one in record.arms.items() if one.symbol}
    return Arms(tasks, record.contrast, symbols)


def read_arms(file: Path) -> Arms:
    """Return the tasks of a file, or those of every arm in the folder of a run.

    Raises:
        DataError: a file is missing or damaged, or holds other tasks than the record says.
        RecordError: the folder is not that of a run.
    """
    if file.is_dir():
        return load_arms(file, RunRecord.load(file))
    tasks = TaskSet.load(file)
    arm = tasks.arm or tasks.sampler
    if not re.fullmatch(NAME, arm):
        raise DataError(f"{file}: its arm {arm!r} has a name that no arm can have")
    return Arms({arm: tasks})


def outcomes_digests(outcomes: Mapping[str, Outcomes]) -> dict[str, str]:
    """Return the digests of the outcomes of each arm, by their names in a record."""
    return {f"outcomes-{arm}": answered.digest for arm, answered in outcomes.items()}


def read_outcomes(folder: Path, record: RunRecord) -> dict[str, Outcomes]:
    """Return the outcomes of a run by arm, or accuracies measured elsewhere.

    Raises:
        DataError: a file is missing or damaged, or is not that of the run; the message says which.
    """
    files = {arm: record.outcomes_file(folder, arm) for arm in record.arms}
    found = {arm: Outcomes.load(file) for arm, file in files.items()}
    for arm, file in files.items():
        if record.arms[arm].digest != found[arm].task_digest:
            raise DataError(f"{file}: its outcomes belong to other tasks")
        if record.digests.get(f"outcomes-{arm}") != found[arm].digest:
            raise DataError(f"{file}: its outcomes are not those that the run wrote")
    return found


def load_outcomes(
    folder: Path, record: RunRecord | None = None, *, advice: str = _AGAIN
) -> ArmOutcomes:
    """Return the outcomes of a finished run by arm, with its tasks.

    Args:
        folder: of the run; ``record``: its record, by default read from the folder.
        advice: ends the messages.

    Raises:
        RecordError: the run has no outcomes.
        DataError: a file is missing or damaged, or is not that of the run; the message says which.
    """
    record = RunRecord.load(folder) if record is None else record
    if not any(record.outcomes_file(folder, arm).exists() for arm in record.arms):
        raise RecordError(f"{folder}: has no outcomes{advice}")
    try:
        return ArmOutcomes(read_outcomes(folder, record), load_arms(folder, record))
    except DataError as error:
        raise DataError(f"{error}{advice}") from None


def list_records(folder: Path) -> list[tuple[Path, RunRecord | RecordError]]:
    """Return every run folder below ``folder`` with its record, or why it cannot be read."""
    found: list[tuple[Path, RunRecord | RecordError]] = []
    for path in sorted(folder.glob(f"*/{RECORD_NAME}")):
        try:
            found.append((path.parent, RunRecord.load(path.parent)))
        except RecordError as error:
            found.append((path.parent, error))
    return found


def find_run(run: str, runs_dir: Path) -> Path:
    """Return the folder of a run given as a folder, or as the name of one or its beginning.

    Raises:
        RecordError: no run matches, several do, or nothing is given.
    """
    if not run.strip():
        raise RecordError("a run must be given by its folder or its name, not by an empty text")
    if (Path(run) / RECORD_NAME).exists():
        return Path(run)
    names = sorted(p.parent.name for p in runs_dir.glob(f"*/{RECORD_NAME}"))
    near = [run] if run in names else [name for name in names if name.startswith(run)]
    if len(near) == 1:
        return runs_dir / near[0]
    if near:
        some = ", ".join(near[:5]) + (", ..." if len(near) > 5 else "")
        raise RecordError(f"{run!r} matches the names of {len(near)} runs: {some}")
    hint = close_matches(run, names)
    raise RecordError(f"no run {run!r} in {runs_dir}{hint}; see fsf runs list")
