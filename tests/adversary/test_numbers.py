"""Attacks on every option that takes a number or a name: out of range, absurd, or not one."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from fsframework.components.registry import Registry
from tests.adversary.world import QUICK, TRAINED, World

_NUMBERS = (
    "-1", "0", "1", "1_0", "nan", "inf", "-inf", "1e400", "0x10", "１", "", " ", "abc", "1,5",
    "1.5", "1e9", "1000000000000", "9" * 40, "9" * 5000, "-0.0", "1e-400", "None", "true",
)  # fmt: skip
_TEXTS = (
    "", " ", ":", "::", "a:b:c", "x" * 5000, "../..", "/", "/dev/null", "/dev/zero",
    "\n", "🦊", "\udcff", "none", "NAME:ARG", "%s%n", "${HOME}", "--help", "[", "(a+)+$", "column:",
    "folder:", "csv:/dev/null", "declared:/dev/null", "folder:/proc/self/fd",
    "captions-file:/dev/null", "timm:",
)  # fmt: skip
_OPTIONS = (
    "dataset.n_per_class", "dataset.size", "dataset.bias", "backbone.width", "training.epochs",
    "training.steps", "training.batch_size", "training.learning_rate", "training.momentum",
    "training.weight_decay", "training.validation_tasks", "training.way", "training.query",
    "sampler.n_way", "sampler.n_shot", "sampler.n_query", "method.temperature", "training",
    "method", "method.name", "statistics.acc", "statistics.acc.name", "detector", "seed", "..", "",
)  # fmt: skip
_SMALL = {"run": QUICK, "sweep": QUICK, "pretrain": TRAINED}
"""What keeps the work of a command small."""


def _options() -> Iterator[tuple[str, click.Option]]:
    """Yield every option of every command that takes a value, with the command's path."""
    registry = Registry()
    for installed in registry.commands:
        command = registry.load_command(installed.command.name)
        path = " ".join(installed.command.path)
        yield from ((path, p) for p in command.params if _takes_a_value(p))
        if isinstance(command, click.Group):
            for name, inner in command.commands.items():
                yield from ((f"{path} {name}", p) for p in inner.params if _takes_a_value(p))


def _takes_a_value(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and not parameter.is_flag and not parameter.count


def _attacks() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for path, option in _options():
        name = max(option.opts, key=len)
        if name == "--option":
            continue
        found.extend((*path.split(), name, value) for value in (*_NUMBERS, *_TEXTS))
    found += [("run", "-o", f"{key}={v}") for key in _OPTIONS for v in (*_NUMBERS, *_TEXTS)]
    return found


def _attack(world: World, attacks: list[tuple[str, ...]]) -> list[str]:
    faults = []
    for arguments in attacks:
        told = world.tell(arguments[0], *_SMALL.get(arguments[0], ()), *arguments[1:])
        faults += [f"fsf {' '.join(arguments)[:100]!r}: {fault}" for fault in told.faults()]
    return faults


def test_a_sample_of_bad_values(world: World) -> None:
    assert _attack(world, _attacks()[5::293]) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(16))
def test_every_bad_value(world: World, part: int) -> None:
    assert _attack(world, _attacks()[part::16]) == []
