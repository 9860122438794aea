"""Messages between the processes of a job, and what each says when one of them fails."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.distributed import HashStore

from fsframework.components.registry import Registry
from fsframework.errors import DataError, OptionError
from fsframework.pipeline.experiment.arguments import leaves
from fsframework.pipeline.experiment.configuration import divided, resolve_experiment
from fsframework.pipeline.processes import JobEnded, Processes, processes_here


@pytest.fixture
def pair() -> tuple[Processes, Processes]:
    store = HashStore()
    return Processes(0, 2, 0, store), Processes(1, 2, 1, store)


def test_messages_are_heard_in_order_and_waited_for(pair: tuple[Processes, Processes]) -> None:
    first, second = pair
    first.tell(train="a")
    later = threading.Timer(0.2, lambda: first.tell(finished="b"))
    later.start()
    assert [second.hear(), second.hear()] == [{"train": "a"}, {"finished": "b"}]
    later.join()


def test_an_error_is_reported_once_and_ends_the_others(pair: tuple[Processes, Processes]) -> None:
    first, second = pair
    error = DataError("this image cannot be read")
    with pytest.raises(DataError), first.working():
        raise error
    assert first.first_to_say(error)
    # The other process finds the same, or waits for a message that will not come.
    assert not second.first_to_say(DataError("this image cannot be read"))
    with pytest.raises(JobEnded) as ended, second.working():
        second.hear()
    assert not second.first_to_say(ended.value)


def test_that_a_process_has_died_is_said_once(pair: tuple[Processes, Processes]) -> None:
    first, second = pair
    assert first.first_to_say(JobEnded(reported=False))
    assert not second.first_to_say(JobEnded(reported=False))


def test_one_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    processes_here.cache_clear()
    alone = processes_here()
    assert (alone.rank, alone.size, alone.leads) == (0, 1, True)
    values = torch.ones(2)
    with alone.connected(torch.device("cpu")), alone.working():
        assert alone.total(values) is values
        assert alone.shared("a") == "a"
    assert alone.first_to_say(DataError("x"))
    assert alone.first_to_say(DataError("x"))


@pytest.mark.parametrize("device", ["cuda:0", "mps"])
def test_processes_do_not_share_a_device(pair: tuple[Processes, Processes], device: str) -> None:
    assert pair[1].device(torch.device("cpu")) == torch.device("cpu")
    with pytest.raises(OptionError, match="needs a device of its own"):
        pair[1].device(torch.device(device))


def test_the_groups_follow_the_processes_unless_they_are_given() -> None:
    tree = leaves(
        {
            "method": "protonet",
            "training": {
                "epochs": 1,
                "stages": [
                    {"tasks_per_step": 8},
                    {"tasks_per_step": 3},
                    {"tasks_per_step": 1},
                    {"tasks_per_step": 8, "groups": 2},
                    {"method": "baseline", "batch_size": 20},
                ],
            },
        },
        "call",
    )
    experiment = resolve_experiment(Registry(), tree)
    assert divided(experiment, 1) is experiment
    found = divided(experiment, 4)
    assert [stage.groups for stage in found.stages] == [4, 3, 1, 2, 4]
    told = [origin["groups"] for origin in found.origins["training"]]
    assert told == ["torchrun", "torchrun", "default", "call", "torchrun"]
