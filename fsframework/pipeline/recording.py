"""The record of a run, made when it starts and completed as it proceeds."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import torch

import fsframework
from fsframework.components.resolution import Component, plain
from fsframework.pipeline.learning.model import FewShotModel
from fsframework.pipeline.lineage import seen_by, under_test
from fsframework.pipeline.preparation import Prepared
from fsframework.records import (
    ArmRecord,
    ComponentRecord,
    DataRecord,
    Environment,
    PluginRecord,
    RunRecord,
    StageRecord,
)
from fsframework.statistics.differences import FEWEST_RESAMPLED
from fsframework.statistics.estimation import saturation
from fsframework.statistics.estimators import Interval
from fsframework.values import ArmOutcomes, Arms

__all__ = [
    "component_record",
    "environment",
    "interval_notes",
    "new_record",
    "plugin_records",
]

_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_SHAPE = ("name", "n_way", "n_shot", "n_query")


def new_record(prepared: Prepared, model: FewShotModel, *, trains: bool) -> RunRecord:
    """Return the record of a run that is about to start.

    Args:
        prepared: the experiment with its data and tasks.
        model: as built, with its pretrained weights.
        trains: whether the run trains it on the split ``train``.
    """
    experiment, pool = prepared.experiment, prepared.pool
    settings = experiment.settings
    tested = under_test(experiment.dataset, prepared.source.store.dataset, settings.split or "test")
    data, cautions = seen_by(tested, model.extractor, experiment.stages, trains=trains)
    digests = {"data": prepared.source.dataset.fingerprint, "pool": pool.fingerprint}
    if pool.attributes is not None:
        digests["attributes"] = pool.attributes.fingerprint
    return RunRecord(
        fingerprint=prepared.fingerprint,
        group=prepared.group,
        status="unfinished",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        name=experiment.name,
        given=experiment.given,
        settings=plain(vars(settings)),
        origins={k: v for k, v in experiment.origins.items() if isinstance(v, str)},
        components={role: component_record(c) for role, c in experiment.roles.items()},
        stages=tuple(
            StageRecord(options, origins)
            for options, origins in zip(
                experiment.training_json(), experiment.origins["training"], strict=True
            )
        ),
        plugins=plugin_records(experiment.components()),
        environment=environment(prepared.device, _DTYPES[settings.precision]),
        digests=digests,
        arms=_arm_records(prepared.arms, experiment.sampler, pool.class_sizes.tolist()),
        contrast=prepared.arms.contrast,
        notes=(*prepared.notes, *_weight_notes(data), *cautions),
        cautions=cautions,
        data=replace(data, image_size=model.size),
    )


def _weight_notes(data: DataRecord) -> Iterator[str]:
    """Yield where the pretrained weights came from, if there are any."""
    if data.weights_from:
        source = ", ".join(f"{word} {value}" for word, value in data.weights_from.items())
        yield f"the backbone's pretrained weights: {source}"


def component_record(component: Component) -> ComponentRecord:
    """Return the entry of a component in a record."""
    options = component.to_json()
    del options["name"]
    return ComponentRecord(
        component.name,
        options,
        component.origins_json(),
        component.cls.argument,
        component.added_as,
    )


def plugin_records(components: Iterable[Component]) -> tuple[PluginRecord, ...]:
    """Return the plugins of components, each once, sorted."""
    plugins = {component.plugin for component in components}
    return tuple(
        sorted(PluginRecord(p.kind, p.name, p.target, p.distribution, p.version) for p in plugins)
    )


def environment(device: torch.device, dtype: str = "float32") -> Environment:
    """Return the versions, threads and device that this process computes with."""
    return Environment(
        fsframework=fsframework.__version__,
        python=platform.python_version(),
        torch=torch.__version__,
        numpy=np.__version__,
        threads=torch.get_num_threads(),
        device=str(device),
        device_name=_device_name(device),
        dtype=dtype,
    )


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def _arm_records(arms: Arms, sampler: Component, class_sizes: list[int]) -> dict[str, ArmRecord]:
    given = [
        name
        for name, origin in sampler.origins.items()
        if name not in _SHAPE and origin != "default"
    ]
    return {
        arm: ArmRecord(
            sampler=tasks.sampler,
            options=dict(tasks.options),
            seed=tasks.seed,
            digest=tasks.digest,
            n_way=tasks.n_way,
            n_shot=tasks.n_shot,
            n_query=tasks.n_query,
            n_tasks=len(tasks),
            class_sizes=tuple(class_sizes),
            symbol=arms.symbols.get(arm, ""),
            given_options=tuple(name for name in given if name in tasks.options),
        )
        for arm, tasks in arms.items()
    }


def interval_notes(outcomes: ArmOutcomes, interval: Interval) -> Iterator[str]:
    """Yield warnings about intervals that these outcomes cannot support."""
    for arm, answered in outcomes.items():
        if (warning := saturation(answered)) is not None:
            yield f"{arm} tasks: {warning}"
        if interval in ("percentile", "bca") and len(answered) < FEWEST_RESAMPLED:
            yield (
                f"{arm} tasks: a bootstrap of {len(answered)} tasks gives intervals that are too "
                f"short; use at least {FEWEST_RESAMPLED} tasks, or student-t, which allows for few"
            )
