"""Files by relative name, in a folder or in a zip archive."""

from __future__ import annotations

import contextlib
import io
import os
import re
import threading
import unicodedata
import weakref
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from fsframework.interfaces import DataError

__all__ = [
    "ENDINGS",
    "FolderTree",
    "RawFile",
    "Tree",
    "ZipTree",
    "ending",
    "images_of",
    "natural",
    "open_tree",
]

ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".ppm"})
"""Extensions of image files, compared in lower case."""

_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".rar", ".7z", ".gz")
_LOCAL_HEADER = 30  # bytes before the name of a member (PKWARE APPNOTE, section 4.3.7)


class RawFile:
    """A file that threads and processes can read at any position at the same time.

    It is not memory-mapped, because mapped pages count as memory of the process until others need
    them.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._file)
        self.size = os.fstat(self._file).st_size

    def __reduce__(self) -> tuple[type[RawFile], tuple[Path]]:
        """Reopen the file on unpickling."""
        return type(self), (self.path,)

    def read(self, start: int, count: int) -> bytes:
        """Return ``count`` bytes from position ``start``, or fewer at the end of the file."""
        part = self._part(start, count)
        if len(part) == count:
            return part
        # Linux reads at most 2,147,479,552 bytes at a time.
        parts = [part]
        while part and (done := sum(map(len, parts))) < count:
            part = self._part(start + done, count - done)
            parts.append(part)
        return b"".join(parts)

    def _part(self, start: int, count: int) -> bytes:
        """Return between one and ``count`` bytes; none at the end of the file."""
        if hasattr(os, "pread"):  # needs no lock and does not move a position that others share
            return os.pread(self._file, count, start)
        with self._lock:
            os.lseek(self._file, start, os.SEEK_SET)
            return os.read(self._file, count)


class Tree(ABC):
    """Files below a root; names are relative to it, separated by ``/`` and in Unicode NFC."""

    root: Path
    """The folder or archive."""

    names: tuple[str, ...]
    """Every file that is not hidden, sorted as text."""

    folders: frozenset[str]
    """Every folder below the root that is not hidden."""

    @cached_property
    def images(self) -> tuple[str, ...]:
        """The image files, recognised by their extensions."""
        return tuple(name for name in self.names if ending(name) in ENDINGS)

    @cached_property
    def _others(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for name in set(self.names).difference(self.images):
            found.setdefault(name.rpartition("/")[2].casefold(), []).append(name)
        return found

    def nearest(self, last: str) -> str | None:
        """Return the file with this name (ignoring case) nearest to the root; never an image."""
        same = self._others.get(last.casefold(), ())
        return min(same, key=lambda name: (name.count("/"), name), default=None)

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """Open a file for reading; several threads may do so at the same time.

        Raises:
            FileNotFoundError: the file does not exist.
            OSError: the file exists but cannot be read, or is damaged within its archive.
        """

    @abstractmethod
    def states(self, names: Iterable[str]) -> list[str]:
        """Return for each file a cheap text that changes with its content."""

    def local_states(self, names: Iterable[str]) -> list[str]:
        """Return for each file a text that changes with any edit, on this machine only.

        It is empty where ``states`` depends on the content itself.
        """
        return ["" for _ in names]

    @abstractmethod
    def place(self, name: str) -> str:
        """Return the location of a file for messages."""

    def local(self, name: str) -> Path | None:
        """Return the path of a file that can be read in parts; ``None`` if it has no path."""
        return None


class FolderTree(Tree):
    """Files below a folder on disk.

    Args:
        root: the folder.
        walk: whether to list the files; otherwise any name may be requested.

    Raises:
        DataError: two names differ only in their Unicode form, or a name is not printable.
    """

    def __init__(self, root: Path, *, walk: bool = True) -> None:
        self.root = root
        self._walked = walk
        self._prefix = os.path.join(root, "")  # noqa: PTH118 - a Path per file would cost seconds
        self._written: dict[str, str] = {}
        folders: set[str] = set()
        found = list(self._walk("", (), folders)) if walk else []
        self.names = self._in_one_form(found)
        self.folders = frozenset(unicodedata.normalize("NFC", folder) for folder in folders)

    def _walk(self, above: str, real_above: tuple[str, ...], folders: set[str]) -> Iterator[str]:
        """Yield each file; links are followed unless they lead back to a folder above."""
        folder = os.path.join(self.root, above)  # noqa: PTH118 - a Path per file would cost seconds
        real = os.path.realpath(folder)
        if real in real_above:
            return
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                name = f"{above}/{entry.name}" if above else entry.name
                if entry.is_dir():
                    folders.add(name)
                    yield from self._walk(name, (*real_above, real), folders)
                else:
                    yield name

    def _in_one_form(self, found: Iterable[str]) -> tuple[str, ...]:
        names: set[str] = set()
        for written in found:
            name = unicodedata.normalize("NFC", written)
            if not name.isprintable():
                place = str(self.root / written)
                raise DataError(f"{place!a}: file names must be printable Unicode")
            if name in names:
                raise DataError(
                    f"{self.root / written}: another file has the same name in another Unicode form"
                )
            names.add(name)
            if name != written:
                self._written[name] = written
        return tuple(sorted(names))

    def _path(self, name: str) -> str:
        if self._walked:
            return f"{self._prefix}{self._written.get(name, name)}"
        return os.path.join(self.root, name)  # noqa: PTH118 - name may be absolute

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        return open(self._path(name), "rb")  # noqa: PTH123 - as above

    def states(self, names: Iterable[str]) -> list[str]:
        """Return size and modification time of each file, or ``missing``."""
        return [self._state(name) for name in names]

    def _state(self, name: str) -> str:
        try:
            state = os.stat(self._path(name))  # noqa: PTH116 - as above
        except OSError:
            return "missing"
        return f"{state.st_size} {state.st_mtime_ns}"

    def local_states(self, names: Iterable[str]) -> list[str]:
        """Return inode and change time of each file, which no program can set back."""
        return [self._local_state(name) for name in names]

    def _local_state(self, name: str) -> str:
        try:
            state = os.stat(self._path(name))  # noqa: PTH116 - as above
        except OSError:
            return "missing"
        return f"{state.st_ino} {state.st_ctime_ns}"

    def place(self, name: str) -> str:
        """Return the path of a file."""
        return self._path(name)

    def local(self, name: str) -> Path | None:
        """Return the path of a file."""
        return Path(self._path(name))


class ZipTree(Tree):
    """Files within a zip archive, read without unpacking.

    Threads cannot share a ``zipfile.ZipFile``, and one per thread would read the table of contents
    again. So the table is read once and members are read by their position in the file.

    Args:
        root: the archive.

    Raises:
        DataError: the file is not a complete zip archive, or is encrypted.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            with zipfile.ZipFile(root) as archive:
                members = archive.infolist()
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise DataError(
                f"{root}: not a complete zip archive ({error}); was its download interrupted?"
            ) from None
        self._members: dict[str, zipfile.ZipInfo] = {}
        folders: set[str] = set()
        for member in members:
            name = _name_in_archive(member)
            parts = PurePosixPath(name).parts
            if not parts or parts[0] == "__MACOSX" or any(p.startswith(".") for p in parts):
                continue
            above = parts if member.is_dir() else parts[:-1]
            folders.update("/".join(above[:depth]) for depth in range(1, len(above) + 1))
            if member.is_dir():
                continue
            if member.flag_bits & 1:
                raise DataError(f"{root}: its files are encrypted; unpack it first")
            if not name.isprintable():
                raise DataError(f"{root}: {name!a}: file names must be printable Unicode")
            self._members[name] = member
        self.names = tuple(sorted(self._members))
        self.folders = frozenset(folders)
        self._file = RawFile(root)

    def __reduce__(self) -> tuple[type[ZipTree], tuple[Path]]:
        """Reopen the archive on unpickling."""
        return type(self), (self.root,)

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading; its checksum is verified first."""
        return io.BytesIO(self._content(name))

    def _content(self, name: str) -> bytes:
        member = self._members.get(name)
        if member is None:
            raise FileNotFoundError(name)
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            return self._rarely_compressed(member)
        header = self._file.read(member.header_offset, _LOCAL_HEADER)
        if header[:4] != b"PK\x03\x04" or len(header) < _LOCAL_HEADER:
            raise OSError("the archive is damaged here")
        skipped = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        start = member.header_offset + _LOCAL_HEADER + skipped
        content = self._file.read(start, member.compress_size)
        if member.compress_type == zipfile.ZIP_DEFLATED:
            try:
                content = zlib.decompress(content, -zlib.MAX_WBITS)
            except zlib.error:
                raise OSError("the archive is damaged here") from None
        if len(content) != member.file_size or zlib.crc32(content) != member.CRC:
            raise OSError("the archive is damaged here: its checksum differs")
        return content

    def _rarely_compressed(self, member: zipfile.ZipInfo) -> bytes:
        try:
            with zipfile.ZipFile(self.root) as archive:
                return archive.read(member)
        except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
            raise OSError(f"{error}") from None

    def states(self, names: Iterable[str]) -> list[str]:
        """Return size and checksum of each file, or ``missing``."""
        return [
            f"{self._members[name].file_size} {self._members[name].CRC:08x}"
            if name in self._members
            else "missing"
            for name in names
        ]

    def place(self, name: str) -> str:
        """Return the archive and the name inside it."""
        return f"{self.root}: {name}"


def _name_in_archive(member: zipfile.ZipInfo) -> str:
    """Return the name of a member, also if it is UTF-8 without the UTF-8 flag, as on macOS."""
    name = member.filename
    if not member.flag_bits & 0x800 and not name.isascii():
        with contextlib.suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return unicodedata.normalize("NFC", name)


def open_tree(path: Path) -> Tree:
    """Return the files of a folder or zip archive.

    Raises:
        DataError: the path does not exist, or is a file other than a zip archive.
    """
    if path.is_dir():
        return FolderTree(path)
    if not path.exists():
        raise DataError(f"{path}: no such folder")
    if path.suffix.lower() == ".zip":
        return ZipTree(path)
    if path.name.lower().endswith(_ARCHIVES):
        raise DataError(f"{path}: unpack this archive first; only folders and .zip files are read")
    raise DataError(f"{path}: must be a folder or a .zip archive, not another file")


def images_of(tree: Tree) -> tuple[str, ...]:
    """Return the names of the image files in natural order.

    Raises:
        DataError: there are no images.
    """
    if not tree.images:
        endings = ", ".join(sorted(ending[1:] for ending in ENDINGS))
        raise DataError(f"{tree.root}: contains no images ({endings})")
    return tuple(sorted(tree.images, key=_counted))  # already sorted as text; the sort is stable


def ending(name: str) -> str:
    """Return the extension of a file name in lower case.

    >>> ending("cat/1.PNG"), ending("a.b/README")
    ('.png', '')
    """
    last = name.rpartition("/")[2]
    before, dot, after = last.rpartition(".")
    return f".{after.lower()}" if before and dot else ""


_NUMBERS = re.compile(r"[0-9]+")


def natural(text: str) -> tuple[str, str]:
    """Return a key that sorts ``cat2`` before ``cat10``; ties are sorted as text.

    >>> sorted(["cat10", "cats", "cat2", "b/1", "b", "cat010"], key=natural)
    ['b', 'b/1', 'cat2', 'cat010', 'cat10', 'cats']
    """
    return _counted(text), text


def _counted(text: str) -> str:
    """Return a text with the length of each number before it, so that longer numbers sort later.

    The key is one string per name to save memory in large data sets.
    """
    return _NUMBERS.sub(_with_length, text)


def _with_length(number: re.Match[str]) -> str:
    digits = number[0].lstrip("0")
    return f"\0{chr(len(digits))}{digits}"
