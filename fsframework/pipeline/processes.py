"""The processes that train a model together, as torchrun starts them.

Process 0 prepares, writes, evaluates and reports. The others wait for its messages, train with it,
and wait again until the run is finished. Messages go through the store of torchrun, so that waiting
takes no time of a processor and ends at once when another process fails.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from fsframework._calls import interrupt, is_out_of_memory, text_of
from fsframework._digest import digest_of
from fsframework.errors import FsfError, OptionError, argument

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch._C._distributed_c10d import Store

__all__ = ["JobEnded", "Processes", "processes_here"]

_T = TypeVar("_T")
_FAILED = "failed"
_SECONDS_BETWEEN_LOOKS = 0.05
_TO_CONNECT, _TO_COMPUTE = timedelta(minutes=1), timedelta(hours=1)
"""How long a process waits for torchrun's store, and for the others within a training step."""


class JobEnded(FsfError):
    """This process cannot go on, because another one of its job has ended.

    Args:
        reported: whether the other one tells the user why.
    """

    def __init__(self, *, reported: bool) -> None:
        super().__init__(
            "another process of this job has ended, or the job was told to stop; run the same "
            "command again to resume from the last checkpoint"
        )
        self.reported = reported


class Processes:
    """The processes of one job that train together; by default this one alone.

    Args:
        rank: number of this process; process 0 leads.
        size: number of processes.
        place: number of this process on its machine, which decides its GPU.
        store: of torchrun; ``None`` for one process.
    """

    def __init__(
        self, rank: int = 0, size: int = 1, place: int = 0, store: Store | None = None
    ) -> None:
        self.rank, self.size, self._place, self._store = rank, size, place, store
        self._told = self._heard = self._met = 0
        self._terminated = False

    @property
    def leads(self) -> bool:
        """Whether this process does what only one may do: write files and report."""
        return self.rank == 0

    def device(self, device: torch.device) -> torch.device:
        """Return the device of this process: of several GPUs, one for each, the current one.

        Raises:
            OptionError: there are too few, or processes cannot share this kind of device.
        """
        import torch

        if self.size == 1 or device.type == "cpu":
            return device
        if device.type != "cuda" or device.index is not None:
            raise OptionError(
                f"{argument('device', str(device))}: each of the {self.size} processes needs a "
                f"device of its own; use auto, cuda or cpu"
            )
        if self._place >= torch.cuda.device_count():
            raise OptionError(
                f"{argument('device', 'cuda')}: this machine has {torch.cuda.device_count()} GPUs, "
                "and every process needs one; start fewer processes (--nproc-per-node), or use "
                f"{argument('device', 'cpu')}"
            )
        found = torch.device("cuda", self._place)
        torch.cuda.set_device(found)
        return found

    def tell(self, **message: Any) -> None:
        """Send a message of JSON values to the other processes."""
        if self._store is not None:
            with self._explained():
                self._store.set(f"message {self._told}", json.dumps(message))
            self._told += 1

    def hear(self) -> Mapping[str, Any]:
        """Wait for the next message of process 0.

        Raises:
            JobEnded: another process has failed.
        """
        assert self._store is not None, "a process alone hears nothing"
        key, store = f"message {self._heard}", self._store
        self._wait(lambda: store.check([key]))
        self._heard += 1
        found: Mapping[str, Any] = json.loads(store.get(key))
        return found

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let the other processes know if this one fails in a block."""
        try:
            yield
        except BaseException as error:
            if self._store is not None and not isinstance(error, JobEnded) and not self._terminated:
                self._fail(self._store)
            raise

    @contextmanager
    def connected(self, device: torch.device) -> Iterator[None]:
        """Connect all processes for the block, in which tensors can be shared.

        Args:
            device: of the tensors.

        Raises:
            JobEnded: another process has ended.
        """
        if self._store is None:
            yield
            return
        from torch import distributed
        from torch.distributed.distributed_c10d import PrefixStore

        name, store = f"meeting {self._met}", self._store
        self._met += 1
        store.add(name, 1)
        self._wait(lambda: bool(store.add(name, 0) >= self.size))
        with self._explained():
            distributed.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                store=PrefixStore(name, store),
                rank=self.rank,
                world_size=self.size,
                timeout=_TO_COMPUTE,
                device_id=device if device.type == "cuda" else None,
            )
        yield
        distributed.destroy_process_group()

    def shared(self, value: _T) -> _T:
        """Return the value of process 0."""
        if self._store is None:
            return value
        from torch import distributed

        found = [value]
        with self._explained():
            distributed.broadcast_object_list(found)
        return found[0]

    def copy_from_first(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the tensors to those of process 0."""
        if self._store is None:
            return
        from torch import distributed

        with self._explained():
            for tensor in tensors.values():
                dense = tensor.contiguous()
                distributed.broadcast(dense, 0)
                tensor.copy_(dense)

    def total(self, values: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self._store is None:
            return values
        from torch import distributed

        with self._explained():
            work = distributed.all_reduce(values, async_op=True)
            # A GPU's partner that has died is noticed by torchrun alone, whose signal Python
            # handles only between two calls.
            while values.is_cuda and not work.is_completed():
                time.sleep(0)
            work.wait()
        return values

    def end_on_signal(self) -> None:
        """End with a sentence when torchrun terminates this process, as it does when one dies."""

        def terminate(number: int, frame: object) -> None:
            self._terminated = True
            interrupt(number, frame)

        if self._store is not None and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, terminate)

    def end_in_peace(self) -> None:
        """Ignore torchrun's signal from now on; this process is about to end by itself."""
        if self._store is not None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def ended_by_signal(self) -> JobEnded | None:
        """Return the error to report if torchrun has terminated this process."""
        return self._ended() if self._terminated else None

    def first_to_say(self, error: BaseException) -> bool:
        """Return whether no other process reports this error; they learn that one has failed."""
        if self._store is None:
            return True
        if isinstance(error, JobEnded) and error.reported:
            return False
        try:
            self._fail(self._store)
            return bool(self._store.add(f"said {digest_of(text_of(error))}", 1) == 1)
        except RuntimeError:
            return True  # torchrun has ended too

    def _ended(self) -> JobEnded:
        try:
            return JobEnded(reported=self._store is not None and self._store.check([_FAILED]))
        except RuntimeError:
            return JobEnded(reported=False)

    def _fail(self, store: Store) -> None:
        store.set(_FAILED, "")

    def _wait(self, ready: Callable[[], bool]) -> None:
        """Wait until something is ready.

        Raises:
            JobEnded: another process has failed.
        """
        with self._explained():
            while not ready():
                if self._store is not None and self._store.check([_FAILED]):
                    raise JobEnded(reported=True)
                time.sleep(_SECONDS_BETWEEN_LOOKS)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Explain why a block that needs the other processes fails.

        Raises:
            JobEnded: another process has ended.
        """
        try:
            yield
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise self._ended() from error


@functools.cache
def processes_here() -> Processes:
    """Return the processes of this one's job, if torchrun started several, else this one alone.

    Raises:
        FsfError: torchrun does not answer.
    """
    told = os.environ
    if "TORCHELASTIC_RUN_ID" not in told or int(told.get("WORLD_SIZE", "1")) == 1:
        return Processes()
    from torch.distributed.rendezvous import rendezvous

    try:
        store, rank, size = next(rendezvous("env://", timeout=_TO_CONNECT))
    except RuntimeError as error:
        raise FsfError(
            "torchrun, which started this process according to TORCHELASTIC_RUN_ID, does not "
            f"answer: {text_of(error)}"
        ) from None
    return Processes(rank, size, int(told["LOCAL_RANK"]), store)
