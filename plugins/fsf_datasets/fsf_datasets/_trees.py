"""Files by relative name, in a folder or in a zip archive."""

from __future__ import annotations

import bz2
import contextlib
import errno
import io
import itertools
import lzma
import os
import re
import threading
import tomllib
import unicodedata
import weakref
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from fsf_datasets._messages import counted, first_few, is_image_start, reason
from fsf_datasets.file_names import (
    IMAGE_ENDINGS,
    ending,
    folded,
    has_control_character,
    is_image,
    is_leftover,
    is_perhaps_class,
    is_unread_image,
    sort_key,
)
from fsframework.interfaces import DataError
from fsframework.values import check_file, open_file

__all__ = [
    "CONTAINERS",
    "FolderTree",
    "RawFile",
    "Tree",
    "ZipTree",
    "images_of",
    "open_tree",
    "walk_files",
]

_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".rar", ".7z", ".gz")
CONTAINERS = (*_ARCHIVES[:-1], ".zip", ".npy", ".npz")
_LOCAL_HEADER = 30  # bytes before the name of a member (PKWARE APPNOTE, section 4.3.7)
_LZMA_HEADER = 9
_MOST_DICTIONARY = 1 << 28
_ENCRYPTED = 0x1 | 0x40
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_ABSOLUTE = re.compile(r"/|[A-Za-z]:[/\\]")

_ANY_RATIO = 1 << 26
"""Size in bytes up to which a file in an archive may be compressed to any degree."""

_MOST_RATIO = 200
"""Degree of compression up to which a larger file is read; pixels reach a few dozen."""

_MOST_VISITS = 100
"""Number of links to one folder, so that folders full of links to each other are refused."""


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
        with open_file(path) as file:
            self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)
        self.size = os.fstat(self._file).st_size

    def __reduce__(self) -> tuple[type[RawFile], tuple[Path]]:
        """Reopen the file on unpickling."""
        return type(self), (self.path,)

    def read(self, start: int, count: int) -> bytes:
        """Return ``count`` bytes from position ``start``, or fewer at the end of the file."""
        count = max(0, min(count, self.size - start))
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
    """Every file that is neither hidden nor left by a system, sorted as text."""

    folders: frozenset[str]
    """Every folder below the root that is neither hidden nor left by a system."""

    @cached_property
    def images(self) -> tuple[str, ...]:
        """The image files, recognised by their extensions."""
        return tuple(name for name in self.names if is_image(name))

    _hidden: Counter[str]
    """The number of images in each folder that is left out by its name, but may be a class."""

    def unread_images(self, others: tuple[str, ...] = ()) -> list[str]:
        """Return a sentence on files that look like images and are not read; none without them.

        Args:
            others: endings of files that may hold images, which count too.
        """
        names = [n for n in self.names if is_unread_image(n) or n.lower().endswith(others)]
        kinds = Counter(map(ending, names)) + self._hidden
        kinds["without an extension"] = sum(map(self._is_bare_image, self.names))
        shown = [f"{count:,} {kind}" for kind, count in kinds.most_common() if count]
        images = counted(kinds.total(), "image")
        return [f"left out: {images} or files of images ({first_few(shown, 8)})"] if shown else []

    def _is_bare_image(self, name: str) -> bool:
        """Return whether a file is an image without an extension."""
        if "." in name.rpartition("/")[2]:
            return False
        with contextlib.suppress(OSError), self.open(name) as stream:
            return is_image_start(stream.read(64))
        return False

    @cached_property
    def _others(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for name in set(self.names).difference(self.images):
            found.setdefault(name.rpartition("/")[2].casefold(), []).append(name)
        return found

    def nearest(self, last: str) -> str | None:
        """Return the file with this name (ignoring case) nearest to the root; never an image.

        Raises:
            DataError: the names of two such files differ only in case.
        """
        same = self._others.get(last.casefold(), ())
        found = min(same, key=lambda name: (name.count("/"), name), default=None)
        for name in same:
            if name != found and found is not None and name.casefold() == found.casefold():
                raise DataError(f"{self.place(found)}: {name} differs only in case; keep one")
        return found

    @abstractmethod
    def open(self, name: str, most: int | None = None) -> BinaryIO:
        """Open a file for reading; several threads may do so at the same time.

        A file may be named in another letter case or Unicode form if only one is meant.

        Args:
            name: the file.
            most: size in bytes up to which it is read; ``None`` for any size.

        Raises:
            FileNotFoundError: the file does not exist.
            OSError: the file exists but cannot be read, is not a regular file, is larger, or is
                damaged within its archive.
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

    def folded_place(self, name: str) -> str:
        """Return a text that is the same for all spellings of a file, and perhaps of others."""
        return folded(name)

    def local(self, name: str) -> Path | None:
        """Return the path of a file that can be read in parts; ``None`` if it has no path."""
        return None


class FolderTree(Tree):
    """Files below a folder on disk.

    Args:
        root: the folder.
        walk: whether to list the files; otherwise any name may be requested.

    Raises:
        DataError: two names differ only in their Unicode form, the name of an image has a control
            character, or a folder cannot be read.
    """

    def __init__(self, root: Path, *, walk: bool = True) -> None:
        self.root = root
        self._walked = walk
        self._prefix = os.path.join(root, "")  # noqa: PTH118 - a Path per file would cost seconds
        self._written: dict[str, str] = {}
        self._hidden = Counter()
        self._listings: dict[str, dict[str, list[str]]] = {}
        self._real_folders: dict[str, str] = {}
        folders: set[str] = set()
        found = list(walk_files(root, folders, self._hidden)) if walk else []
        self.names = self._in_one_form(found)
        self.folders = frozenset(self._in_one_form(folders))

    def _in_one_form(self, found: Iterable[str]) -> tuple[str, ...]:
        names: set[str] = set()
        for written in found:
            name = unicodedata.normalize("NFC", written)
            if has_control_character(name):
                if is_image(name):
                    raise _unprintable(self.root / written)
                continue
            if name in names:
                raise DataError(
                    f"{self.root / written}: another has the same name in another Unicode form"
                )
            names.add(name)
            if name != written:
                self._written[name] = written
        return tuple(sorted(names))

    def _path(self, name: str) -> str:
        if self._walked:
            return f"{self._prefix}{self._written.get(name, name)}"
        # A name may be absolute.
        return os.path.join(self.root, self._written.get(name, name))  # noqa: PTH118

    def _respell(self, name: str) -> bool:
        """Look for the only file whose path differs in letter case or Unicode form."""
        if self._walked:
            return False
        found = "/" if name.startswith("/") else ""
        for part in filter(None, name.split("/")):
            if found not in self._listings:
                listing: dict[str, list[str]] = {}
                with contextlib.suppress(OSError):
                    for entry in os.listdir(os.path.join(self.root, found)):  # noqa: PTH118, PTH208
                        listing.setdefault(folded(entry), []).append(entry)
                self._listings[found] = listing  # complete: other threads read it too
            same = self._listings[found].get(folded(part), [])
            if part not in ("..", *same) and len(same) != 1:
                return False
            found += f"{part if part in ('..', *same) else same[0]}/"
        self._written[name] = found.removesuffix("/")
        return True

    def _stat(self, name: str) -> os.stat_result | None:
        with contextlib.suppress(OSError, ValueError):  # ValueError: the name contains a NUL byte
            return os.stat(self._path(name))  # noqa: PTH116 - a Path per file would cost seconds
        return self._stat(name) if name not in self._written and self._respell(name) else None

    def open(self, name: str, most: int | None = None) -> BinaryIO:
        """Open a file for reading."""
        try:
            file = open_file(self._path(name))
        except FileNotFoundError:
            if name in self._written or not self._respell(name):
                raise
            return self.open(name, most)
        if most is not None and (size := os.fstat(file.fileno()).st_size) > most:
            file.close()
            raise _too_large(size, most)
        return file

    def states(self, names: Iterable[str]) -> list[str]:
        """Return size and modification time of each file, or ``missing``."""
        stats = map(self._stat, names)
        return ["missing" if s is None else f"{s.st_size} {s.st_mtime_ns}" for s in stats]

    def local_states(self, names: Iterable[str]) -> list[str]:
        """Return inode and change time of each file, which no program can set back."""
        stats = map(self._stat, names)
        return ["missing" if s is None else f"{s.st_ino} {s.st_ctime_ns}" for s in stats]

    def place(self, name: str) -> str:
        """Return the path of a file."""
        self._stat(name)  # finds another spelling
        return self._path(name)

    def folded_place(self, name: str) -> str:
        """Return the real path of the folder of a file and its folded name."""
        folder, _, file = name.rpartition("/")
        if folder not in self._real_folders:
            self._real_folders[folder] = os.path.realpath(self.place(folder))
        return f"{self._real_folders[folder]}/{folded(file)}"

    def local(self, name: str) -> Path | None:
        """Return the path of a file."""
        return Path(self._path(name))


def walk_files(root: Path, folders: set[str], hidden: Counter[str] | None = None) -> Iterator[str]:
    """Yield each file below a folder, as the disk spells its name relative to the folder.

    Hidden files and what systems leave are left out. Links are followed unless they lead back to a
    folder above.

    Args:
        root: the folder.
        folders: receives the name of each folder below it.
        hidden: receives the number of images in each folder that is left out and may be a class.

    Raises:
        DataError: a folder cannot be read, or more than 100 links lead to it.
    """
    waiting: list[tuple[str, tuple[tuple[int, int], ...]]] = [("", ())]
    visits: Counter[tuple[int, int]] = Counter()
    while waiting:
        above, real_above = waiting.pop()
        folder = os.path.join(root, above)  # noqa: PTH118 - a Path would cost seconds
        real = _identity(folder)
        if real in real_above:
            continue
        if above:
            folders.add(above)
        visits[real] += 1
        if visits[real] > _MOST_VISITS:
            raise DataError(f"{folder}: more than {_MOST_VISITS} links lead to this folder")
        for entry in _entries(folder):
            name = f"{above}/{entry.name}" if above else entry.name
            is_folder = _is_folder(entry)
            if is_leftover(entry.name, folder=is_folder):
                if hidden is not None and is_folder and is_perhaps_class(entry.name):
                    inside = [inner.name for inner in _entries(entry.path)]
                    images = sum(is_image(n) and not is_leftover(n) for n in inside)
                    hidden.update({f"in {name}": images} if images else {})
            elif is_folder:
                waiting.append((name, (*real_above, real)))
            else:
                yield name


def _identity(folder: str) -> tuple[int, int]:
    """Return what two paths of the same folder have in common."""
    try:
        state = os.stat(folder)  # noqa: PTH116 - a Path per folder would cost seconds
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror})") from None
    return state.st_dev, state.st_ino


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [*entries]
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror})") from None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, which is a file that cannot be read
        return False


def _unprintable(place: object) -> DataError:
    return DataError(f"{str(place)!a}: file names must be printable Unicode; rename this image")


def _too_large(size: int, most: int) -> OSError:
    return OSError(errno.EFBIG, f"it has {size:,} bytes; at most {most:,} are read")


class ZipTree(Tree):
    """Files within a zip archive, read without unpacking.

    Threads cannot share a ``zipfile.ZipFile``, and one per thread would read the table of contents
    again. So the table is read once and members are read by their position in the file.

    Args:
        root: the archive.
        content: its content, if it is not a file of its own; ``root`` is then its location.

    Raises:
        DataError: the file is not a complete zip archive, a file in it cannot be read or has a name
            that leads out of it, or two files have the same name or place.
    """

    def __init__(self, root: Path, content: bytes | None = None) -> None:
        self.root = root
        self._file = _Memory(content) if content is not None else _raw_file(root)
        self._members: dict[str, zipfile.ZipInfo] = {}
        self._hidden = Counter()
        folders: set[str] = set()
        members = _members(root, content)
        for member in members:
            name = _name_in_archive(member)
            parts = PurePosixPath(name).parts
            if ".." in parts or _ABSOLUTE.match(name):
                raise DataError(
                    f"{root}: {name!a}: the names of files in an archive must be relative, "
                    "without '..'"
                )
            above = parts if member.is_dir() else parts[:-1]
            left = [part for part in above if is_leftover(part, folder=True)]
            if not parts or left or is_leftover(parts[-1], folder=member.is_dir()):
                image = is_image(parts[-1]) and not is_leftover(parts[-1])
                if image and left == [*above[-1:]] and is_perhaps_class(above[-1]):
                    self._hidden[f"in {'/'.join(above)}"] += 1
                continue
            folders.update("/".join(above[:depth]) for depth in range(1, len(above) + 1))
            if not member.is_dir():
                self._add("/".join(parts), member)
        _demand_apart(members, root)
        self.names = tuple(sorted(self._members))
        self.folders = frozenset(folders)

    def _add(self, name: str, member: zipfile.ZipInfo) -> None:
        if member.flag_bits & _ENCRYPTED:
            raise DataError(f"{self.root}: its files are encrypted; unpack it first")
        if member.compress_type not in _METHODS:
            raise DataError(
                f"{self.root}: {name!a} is compressed with method {member.compress_type}, which is "
                "not read; unpack the archive first"
            )
        if has_control_character(name):
            if is_image(name):
                raise _unprintable(f"{self.root}: {name}")
            return
        if name in self._members:
            raise DataError(f"{self.root}: two files in the archive have the name {name!r}")
        self._members[name] = member

    def __reduce__(self) -> tuple[type[ZipTree], tuple[Path]]:
        """Reopen the archive on unpickling."""
        return type(self), (self.root,)

    def open(self, name: str, most: int | None = None) -> BinaryIO:
        """Open a file for reading; its checksum is verified first."""
        return io.BytesIO(self._content(name, most))

    def stored(self, name: str) -> tuple[int, int] | None:
        """Return start and size of an uncompressed file in the archive; ``None`` for others."""
        member = self._members[name]
        if member.compress_type != zipfile.ZIP_STORED:
            return None
        return self._start(member), member.compress_size

    def _start(self, member: zipfile.ZipInfo) -> int:
        header = self._file.read(member.header_offset, _LOCAL_HEADER)
        if header[:4] != b"PK\x03\x04" or len(header) < _LOCAL_HEADER:
            raise OSError("the archive is damaged here")
        skipped = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        return member.header_offset + _LOCAL_HEADER + skipped

    @cached_property
    def _spellings(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for name in self.names:
            found.setdefault(folded(name), []).append(name)
        return found

    def _member(self, name: str) -> zipfile.ZipInfo | None:
        if name not in self._members:
            same = self._spellings.get(folded(name), ())
            name = same[0] if len(same) == 1 else name
        return self._members.get(name)

    def _content(self, name: str, most: int | None) -> bytes:
        if (member := self._member(name)) is None:
            raise FileNotFoundError(name)
        size, packed = member.file_size, member.compress_size
        if most is not None and size > most:
            raise _too_large(size, most)
        if size > _ANY_RATIO and size > _MOST_RATIO * packed:
            raise OSError(
                errno.EFBIG,
                f"it has {size:,} bytes, more than {_MOST_RATIO} times its compressed "
                f"size of {packed:,}",
            )
        content = _unpacked(self._file.read(self._start(member), packed), member)
        if len(content) > size:
            raise OSError("the archive is damaged here: it has more bytes than it declares")
        if len(content) < size or zlib.crc32(content) != member.CRC:
            raise OSError("the archive is damaged here: its checksum differs")
        return content

    def states(self, names: Iterable[str]) -> list[str]:
        """Return size and checksum of each file, or ``missing``."""
        return [
            "missing" if member is None else f"{member.file_size} {member.CRC:08x}"
            for member in map(self._member, names)
        ]

    def place(self, name: str) -> str:
        """Return the archive and the name inside it."""
        member = self._member(name)
        return f"{self.root}: {name if member is None else _name_in_archive(member)}"


class _Memory:
    """Bytes that are read like a ``RawFile``."""

    def __init__(self, content: bytes) -> None:
        self._bytes = content

    def read(self, start: int, count: int) -> bytes:
        """Return ``count`` bytes from position ``start``, or fewer at the end."""
        return self._bytes[start : start + count]


def _raw_file(path: Path) -> RawFile:
    try:
        return RawFile(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


def _members(root: Path, content: bytes | None) -> list[zipfile.ZipInfo]:
    """Return the files and folders that an archive lists."""
    try:
        stream = open_file(root) if content is None else io.BytesIO(content)
        with stream, zipfile.ZipFile(stream) as archive:
            return archive.infolist()
    except Exception as error:  # a damaged archive can fail anywhere in zipfile
        raise DataError(
            f"{root}: not a complete zip archive ({reason(error)}); was its download interrupted?"
        ) from None


def _demand_apart(members: Sequence[zipfile.ZipInfo], root: Path) -> None:
    """Refuse an archive whose files share bytes, which expands to far more than its size."""
    ordered = sorted(members, key=lambda member: member.header_offset)
    for one, following in itertools.pairwise(ordered):
        if one.header_offset + _LOCAL_HEADER + one.compress_size > following.header_offset:
            raise DataError(
                f"{root}: the files {one.filename!a} and {following.filename!a} overlap in the "
                "archive; it is damaged"
            )


def _unpacked(raw: bytes, member: zipfile.ZipInfo) -> bytes:
    """Return the content of a file, of at most one byte more than it declares."""
    most = member.file_size + 1
    try:
        if member.compress_type == zipfile.ZIP_STORED:
            return raw
        if member.compress_type == zipfile.ZIP_DEFLATED:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(raw, most)
        if member.compress_type == zipfile.ZIP_BZIP2:
            return bz2.BZ2Decompressor().decompress(raw, most)
        return _lzma_decompressor(raw).decompress(raw[_LZMA_HEADER:], most)
    except (zlib.error, lzma.LZMAError, OSError, ValueError, EOFError):
        raise OSError("the archive is damaged here") from None


def _lzma_decompressor(raw: bytes) -> lzma.LZMADecompressor:
    """Return the decompressor of a file (PKWARE APPNOTE, section 5.8.8).

    The header is a version of two bytes, the size of the properties, 5, in two bytes, and the
    properties: lc, lp and pb in one byte and the size of the dictionary in four.
    """
    packed, dictionary = raw[4], int.from_bytes(raw[5:_LZMA_HEADER], "little")
    if int.from_bytes(raw[2:4], "little") != 5 or packed >= 225:
        raise ValueError
    options = {
        "id": lzma.FILTER_LZMA1,
        "lc": packed % 9,
        "lp": packed // 9 % 5,
        "pb": packed // 45,
        "dict_size": min(max(dictionary, 1 << 12), _MOST_DICTIONARY),
    }
    return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[options])


def _name_in_archive(member: zipfile.ZipInfo) -> str:
    """Return the name of a member, also if it is UTF-8 without the UTF-8 flag, as on macOS.

    Some programs on Windows separate folders by backslashes.
    """
    name = member.filename.replace("\\", "/")
    if not member.flag_bits & 0x800 and not name.isascii():
        with contextlib.suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return unicodedata.normalize("NFC", name)


def open_tree(path: Path) -> Tree:
    """Return the files of a folder or zip archive.

    Raises:
        DataError: the path does not exist, or is a file other than a zip archive.
    """
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises an error for names that are too long
        return FolderTree(path)
    try:
        check_file(path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such folder") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    if path.suffix.lower() == ".zip":
        return ZipTree(path)
    if path.name.lower().endswith(_ARCHIVES):
        raise DataError(f"{path}: unpack this archive first; only folders and .zip files are read")
    reader = _reader_of([path.name], path.parent)
    raise DataError(f"{path}: must be a folder or a .zip archive, not another file{reader}")


def images_of(tree: Tree) -> tuple[str, ...]:
    """Return the names of the image files in natural order.

    Raises:
        DataError: there are no images.
    """
    if not tree.images:
        endings = ", ".join(sorted(kind[1:] for kind in IMAGE_ENDINGS))
        held = Counter(ending(name) or "no extension" for name in tree.names).most_common()
        files = first_few([f"{count:,} with {kind}" for kind, count in held]) or "none"
        raise DataError(
            f"{tree.root}: contains no images ({endings}); its files: {files}"
            f"{_reader_of(tree.names, tree.root)}"
        )
    return tuple(sorted(tree.images, key=sort_key))  # already sorted as text; the sort is stable


def _reader_of(names: Iterable[str], folder: Path) -> str:
    """Return which data set reads files of these names in a folder, if one of this package does."""
    lasts = {name.rpartition("/")[2] for name in names}
    for file in sorted(Path(__file__).with_name("declarations").glob("*.toml")):
        for layout in tomllib.loads(file.read_text(encoding="utf-8")).get("layouts", ()):
            listed = {name for names in layout.get("files", {}).values() for name in names}
            if known := sorted(listed & lasts):
                return f"; {known[0]} is a file of {file.stem}, read as {file.stem}:{folder}"
    tables = sorted(name for name in lasts if ending(name) in (".csv", ".json"))
    return f"; if {tables[0]} lists images, it is read as csv:{tables[0]}" if tables else ""
