"""Leases: which process works on an item, agreed on through files alone.

The lease of an item is a chain of files ``KEY.0``, ``KEY.1``, ... in a folder that all processes
see. A process holds the item after it has created the next file of the chain, which only one can
do. The holder rewrites its file every few seconds. Whoever finds that the last file no longer
changes, or that its process on this machine is dead, may create the next one. Clocks of different
machines are never compared, and no lock of the file system is needed.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from fsframework._files import atomic_write, explain_os_error
from fsframework.errors import FsfError

__all__ = ["LEASE_SECONDS", "Holder", "Lease", "Leases", "this_machine"]

LEASE_SECONDS = 60.0
"""A holder that has not renewed its lease for so long counts as dead."""
_RENEWALS_PER_LEASE = 12


@dataclass(frozen=True)
class Holder:
    """Who holds an item, as its lease says.

    Args:
        worker: name of the worker; ``machine`` where it runs.
        system: the running system and the process namespace in which ``pid`` is valid; empty where
            that is not known. ``started`` tells the process from a later one with the same number.
        seconds: that the lease is valid after each change of the file.
        beat: number of renewals.
        deaths: how often the item was left by a holder that did not give it back.
        given_back: whether the holder has given the item back.
        note: what the holder is doing, for people.
        token: tells this lease from any other.
    """

    worker: str
    machine: str
    system: str
    pid: int
    started: str
    seconds: float
    beat: int = 0
    deaths: int = 0
    given_back: bool = False
    note: str = ""
    token: str = ""

    @property
    def is_dead(self) -> bool:
        """Whether its process is known to be dead; unknown for other machines."""
        if not self.system or self.system != _system():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False  # it lives, and is somebody else's
        started = _start_of(self.pid)
        return started is not None and started != self.started


def this_machine() -> str:
    """Return the name of this machine."""
    return socket.gethostname() or "unknown machine"


@cache
def _system() -> str:
    """Return what is equal for processes that see each other's process numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _start_of(pid: int) -> str | None:
    """Return when a process was started, in ticks.

    Returns:
        An empty text if only the remains of the process are left; ``None`` if it is not known.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "" if fields[0] in ("Z", "X") else fields[19]


class Lease:
    """An item that this process holds until the block ends.

    Args:
        path: of its file.
        key: of the item.
        holder: this process.
        drop: called at the end.
    """

    def __init__(self, path: Path, key: str, holder: Holder, drop: Callable[[Lease], None]) -> None:
        self.key, self._path, self._holder, self._drop = key, path, holder, drop
        self._note = ""
        self._lock = threading.Lock()

    @property
    def deaths(self) -> int:
        """How often a holder of the item has died."""
        return self._holder.deaths

    @property
    def is_held(self) -> bool:
        """Whether nobody has taken the item since, as from a process that had stopped for long."""
        number = _number(self._path) + 1
        found = _read(self._path)
        taken = self._path.with_suffix(f".{number}").exists()
        return found is not None and found.token == self._holder.token and not taken

    def note(self, text: str) -> None:
        """Describe what this process is doing; others see it after the next renewal."""
        self._note = text

    def renew(self) -> None:
        """Show the others that this process lives."""
        with self._lock:
            if self._holder.given_back:
                return
            beat = self._holder.beat + 1
            self._holder = replace(self._holder, beat=beat, note=self._note)
            self._write()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._drop(self)
        with self._lock:
            self._holder = replace(self._holder, given_back=True)
            self._write()

    def _write(self) -> None:
        # What the disk refuses costs the lease at worst, never the work.
        with suppress(FsfError, OSError):
            if self.is_held:
                atomic_write(self._path, msgspec.json.encode(self._holder))


class Leases:
    """The leases of a folder, as one process sees and takes them.

    Args:
        folder: of the files; made if needed.
        worker: name of this worker.
        seconds: that a lease stays valid without renewal.
    """

    def __init__(self, folder: Path, worker: str, seconds: float = LEASE_SECONDS) -> None:
        self.folder = folder
        pid = os.getpid()
        self._me = Holder(worker, this_machine(), _system(), pid, _start_of(pid) or "", seconds)
        self._held: set[Lease] = set()
        self._seen: dict[str, tuple[bytes, float]] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, key: str) -> Lease | None:
        """Take an item, unless another process holds it; to be used in a ``with`` block.

        Raises:
            FsfError: the folder cannot be written.
        """
        last = self._last(key)
        if last is not None and self._holder_by(last) is not None:
            return None
        former = None if last is None else _read(last)
        deaths = 0 if former is None else former.deaths + (not former.given_back)
        number = 0 if last is None else _number(last) + 1
        path = self.folder / f"{key}.{number}"
        holder = replace(self._me, deaths=deaths, token=secrets.token_hex(8))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(msgspec.json.encode(holder))
        except FileExistsError:
            return None
        except OSError as error:
            raise explain_os_error(error, path) from error
        lease = Lease(path, key, holder, self._held.discard)
        self._held.add(lease)
        self._keep_renewing()
        return lease

    def holder(self, key: str) -> Holder | None:
        """Return who holds an item, ``None`` if it is free, as far as this process knows."""
        last = self._last(key)
        return None if last is None else self._holder_by(last)

    def holders(self, keys: Iterable[str]) -> dict[str, Holder]:
        """Return who holds which of the items, listing the folder once."""
        last: dict[str, Path] = {}
        for path in self.folder.glob("*.*"):
            if path.suffix[1:].isdecimal():
                last[path.stem] = max(path, last.get(path.stem, path), key=_number)
        found = {key: self._holder_by(last[key]) for key in keys if key in last}
        return {key: holder for key, holder in found.items() if holder is not None}

    def silence(self, key: str) -> float:
        """Return the seconds since the last renewal, by the clocks of disk and machine: roughly."""
        last = self._last(key)
        try:
            return 0.0 if last is None else max(0.0, time.time() - last.stat().st_mtime)
        except OSError:
            return 0.0

    def clear(self, key: str) -> None:
        """Remove the leases of an item that is done."""
        for path in self._chain(key):
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def _chain(self, key: str) -> list[Path]:
        return [p for p in self.folder.glob(f"{key}.*") if p.suffix[1:].isdecimal()]

    def _last(self, key: str) -> Path | None:
        return max(self._chain(key), key=_number, default=None)

    def _holder_by(self, path: Path) -> Holder | None:
        """Return who holds an item by the last file of its chain, ``None`` if nobody does.

        A file that cannot be read belongs to somebody who is just creating it.
        """
        try:
            content = path.read_bytes()
        except OSError:
            content = b""
        holder = _decoded(content) or replace(self._me, worker="", machine="", system="")
        stale = self._is_stale(path.name, content, holder.seconds)
        return None if stale or holder.given_back or holder.is_dead else holder

    def _is_stale(self, name: str, content: bytes, seconds: float) -> bool:
        """Return whether a file has not changed for so long, by the clock of this process."""
        now = time.monotonic()
        seen, since = self._seen.get(name, (None, now))
        since = since if seen == content else now
        self._seen[name] = content, since
        return now - since > seconds

    def _keep_renewing(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._renew, name="leases", daemon=True)
            self._thread.start()

    def _renew(self) -> None:
        while not self._wake.wait(self._me.seconds / _RENEWALS_PER_LEASE):
            for lease in tuple(self._held):
                lease.renew()


def _number(path: Path) -> int:
    return int(path.suffix[1:])


def _decoded(content: bytes) -> Holder | None:
    try:
        return msgspec.json.decode(content, type=Holder)
    except msgspec.DecodeError:
        return None


def _read(path: Path) -> Holder | None:
    try:
        return _decoded(path.read_bytes())
    except OSError:
        return None
