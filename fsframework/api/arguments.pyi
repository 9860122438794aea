"""The arguments of ``fsframework.run``, made by docs/sitepages/options.py."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

Component = Any
"""A name, a mapping of a name and options, a class or an instance."""

class Arguments(TypedDict, total=False):
    method: Component
    sampler: Component
    dataset: Component
    backbone: Component
    detector: Component
    shot: int | None
    way: int | None
    queries: int | None
    training: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
    statistics: Component
    seed: int | None
    name: str | None
    allow_code: bool | None
    attributes: str | Path | None
    drop_class_words: bool | None
    drop_words: str | Sequence[str] | None
    drop_words_in_classes: float | None
    min_count: int | None
    task_seed: int | None
    training_seed: int | None
    tasks: int | Literal["all"] | None
    device: str | None
    placebo: bool | None
    level: float | None
    interval: Literal["student-t", "percentile", "bca", "image-level", "class-level"] | None
    query_batch: Literal["task", "class"] | None
    image_size: int | None
    precision: Literal["fp32", "bf16", "fp16"] | None
    decoding: Literal["exact", "scaled"] | None
    broken: Literal["fatal", "skip"] | None
    split: str | None
    task_file: str | Path | None
    offline: bool | None
    recipe: str | None
    model: str | Path | None
    tensorboard: bool | None
    init_from: str | Path | None
