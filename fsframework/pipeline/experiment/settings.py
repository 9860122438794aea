"""The options of a run as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fsframework.errors import OptionError
from fsframework.interfaces.dataset import Decoding
from fsframework.pipeline.cache.images import Broken
from fsframework.pipeline.experiment.arguments import SEEDS
from fsframework.pipeline.experiment.recipes import QUICK
from fsframework.pipeline.experiment.stages import Precision
from fsframework.statistics.estimators import Interval, IntervalChoice
from fsframework.values import QueryBatch

__all__ = ["Settings", "WordChoice"]


_LEAST = {
    "tasks": (1, ""),
    "image_size": (8, " pixels"),
    "min_count": (1, ""),
}


@dataclass(frozen=True)
class WordChoice:
    """Which words images have.

    Args:
        attributes: file or column they are read from, ``None`` for the data set's own.
        drop_class_words: remove from each image the words that name its own class.
        drop_words: words that are not attributes.
        min_count: remove words that fewer images of the split have.
    """

    attributes: str | None = None
    drop_class_words: bool = False
    drop_words: tuple[str, ...] = ()
    min_count: int = 1

    @property
    def drops(self) -> bool:
        """Whether any word is dropped."""
        return bool(self.drop_class_words or self.drop_words or self.min_count > 1)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of a run as a whole.

    Args:
        task_seed: of the tasks and the placebo.
        training_seed: of initial weights, training episodes and batches; with ``model`` it is that
            of the run whose weights are taken.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
        tasks: number of tasks per arm; ``none`` takes all, for samplers that end.
        attributes: ``FILE.csv``, ``FILE.parquet`` or ``column:NAME``; ``none`` takes the data
            set's own words.
        placebo: permute the images of each class, separately for every task.
        level: confidence level of the intervals, 0 < level < 1.
        interval: how intervals are computed: ``student-t``; ``percentile`` or ``bca``, bootstraps
            over tasks; ``image-level`` or ``class-level``, which cover new images or new classes
            even where tasks share them. See ``statistics.intervals``.
        image_size: height and width in pixels; ``none`` takes the data set's or backbone's.
        precision: of the backbone when images are embedded, and of everything computed by a method
            that adapts its backbone: ``fp32``, or products and convolutions in ``bf16`` or
            ``fp16``. That of training is an option of its stages.
        decoding: of image files: ``exact``, or ``scaled`` to skip detail that the image size does
            not need, which is faster and changes pixels a little.
        broken: what to do with an image that cannot be decoded: ``fatal`` stops, ``skip`` leaves
            it out.
        split: the split that the tasks are drawn from; ``all`` for every image. If it is not
            given and the data have no split ``test`` that allows the tasks, another one is taken.
        task_file: evaluate these tasks instead of drawing some with the sampler.
        query_batch: whether a method gets all queries of a task together (``task``) or those
            of one class at a time (``class``), as FewSTAB's published evaluation does.
        drop_class_words: remove from each image the words that name its own class.
        drop_words: words that are not attributes.
        min_count: remove words that fewer images of the split have.
        offline: whether detectors must make no network call.
        recipe: name of the recipe for training the method, ``NAME`` or ``NAME:DATASET``; ``none``
            for the defaults of training. Options given elsewhere take precedence.
        model: a run folder: take its method and backbone with their options, its image size and
            its weights, and train nothing.
        tensorboard: also write the training curve for TensorBoard into the run folder.
    """

    task_seed: int = 0
    training_seed: int = 0
    device: str = "auto"
    tasks: int | None = 600
    attributes: str | None = None
    placebo: bool = False
    level: float = 0.95
    interval: Interval = "student-t"
    image_size: int | None = None
    precision: Precision = "fp32"
    decoding: Decoding = "exact"
    broken: Broken = "fatal"
    split: str | None = None
    task_file: Path | None = None
    query_batch: QueryBatch = "task"
    drop_class_words: bool = False
    drop_words: tuple[str, ...] = ()
    min_count: int = 1
    offline: bool = False
    recipe: str | None = QUICK
    model: Path | None = None
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in SEEDS:
            seed = getattr(self, name)
            if not 0 <= seed < 2**63:
                raise OptionError(f"{name} must be at least 0 and below 2**63, not {seed}")
        for name, (least, unit) in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise OptionError(f"{name} must be at least {least}{unit}, not {value}")
        IntervalChoice(self.level)

    @property
    def words(self) -> WordChoice:
        """Where the words of images come from, and which are dropped."""
        return WordChoice(self.attributes, self.drop_class_words, self.drop_words, self.min_count)

    @property
    def intervals(self) -> IntervalChoice:
        """Level and method of the intervals."""
        return IntervalChoice(self.level, self.interval)
