"""Sizes without bound: an estimate stops them before any work, in a sentence with the numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adversary.world import PLANTED, QUICK, World

HUGE = 10**9

SIZES = {
    "images": ("-o", f"dataset.n_per_class={HUGE}"),
    "tasks": ("--tasks", 10**12),
    "random tasks": ("--sampler", "random", "--tasks", 10**12),
    "tasks of the context": ("--sampler", "context", "-o", "sampler.column=background",
                             "--tasks", 10**12),
    "pixels": ("--image-size", 10**6),
    "pixels, broken images": ("--image-size", 10**6, "--broken", "skip"),
    "pixels on the disk": ("--image-size", 20_000),
    "steps": ("-o", f"training.steps={10**12}"),
    "a batch": ("-o", f"training.batch_size={10**12}"),
    "episodes of a step": ("-o", f"training.tasks_per_step={10**12}"),
    "validation": ("-o", f"training.validation_tasks={10**12}"),
}  # fmt: skip


def files_of(world: World) -> list[Path]:
    """Return what is there, but for locks and the index of what is installed."""
    index = world.folder / "cache" / "plugins"
    found = (path for path in world.folder.rglob("*") if path.name != "lock")
    return sorted(path for path in found if not path.is_relative_to(index))


@pytest.mark.parametrize("given", SIZES.values(), ids=SIZES)
def test_more_than_memory_or_disk_can_hold(world: World, given: tuple[object, ...]) -> None:
    before = files_of(world)
    told = world.tell("run", *QUICK, *given, seconds=30)
    assert (told.code, told.faults()) == (2, [])
    sentence = told.err.splitlines()[-1]
    assert " need at least " in sentence
    assert " of memory, and " in sentence or " of disk space, and " in sentence
    assert files_of(world) == before, "nothing is written"


@pytest.mark.parametrize("option", ["--way", "--shot", "--queries"])
@pytest.mark.parametrize("sampler", ["fewstab", "random", "depleting"])
def test_shapes_beyond_the_data(world: World, option: str, sampler: str) -> None:
    given = ("--sampler", sampler, option, HUGE)
    told = world.tell("tasks", "make", "t.safetensors", *PLANTED, *given, seconds=30)
    assert (told.code, told.faults()) == (2, [])
    assert "no such tasks can be drawn from the split 'test'" in told.err


def test_many_tasks_are_refused_before_they_are_drawn(world: World) -> None:
    made = ("tasks", "make", "t.safetensors", *PLANTED, "--sampler", "random")
    told = world.tell(*made, "--tasks", 10**12, seconds=30)
    assert (told.code, told.faults()) == (2, [])
    assert "1,000,000,000,000 tasks of 5 ways and 20 images per class need at least" in told.err
    assert " PB of memory, and " in told.err
    assert told.err.endswith("; draw fewer with --tasks\n")


@pytest.mark.parametrize("sampler", ["random", "fewstab"])
def test_a_long_draw_says_how_far_it_is(world: World, sampler: str) -> None:
    shape = ("--way", 2, "--shot", 1, "--queries", 1)
    made = ("tasks", "make", "t.safetensors", *PLANTED, "--sampler", sampler, *shape)
    told = world.tell(*made, "--tasks", 20_000)
    assert (told.code, told.faults()) == (0, [])
    assert f"drawing {sampler} tasks: 0 of 20,000" in told.err
    assert f"drawing {sampler} tasks: done in" in told.err
    few = world.tell(*made, "--tasks", 10, "--force")
    assert (few.code, few.faults()) == (0, [])
    assert "drawing" not in few.err
