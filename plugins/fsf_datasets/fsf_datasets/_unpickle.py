"""Reading pickles of arrays without running code from them or loading their pixels.

A pickle is a program. Here it may only build plain containers, strings, bytes, numbers and NumPy
arrays, and it never calls NumPy: an array becomes a description, and a long run of bytes becomes
its position in the file, from which it can be read on demand.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable
from typing import Any, BinaryIO, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fsframework.interfaces import DataError

__all__ = ["Extent", "StoredArray", "read_pickle"]

_MIN_RUN = 256
"""Size in bytes from which a run is left in the file."""

_DTYPE = re.compile(r"[<>|=]?[biufcSUO?][0-9]*")


class Extent(NamedTuple):
    """A run of bytes left in the file: its start and its size."""

    start: int
    size: int


class _Refused(Exception):
    """A pickle asks for something that is not allowed."""


class StoredArray:
    """An array as described in its pickle; ``numpy()`` creates the array."""

    __slots__ = ("data", "dtype", "fortran", "shape")

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        self.dtype: np.dtype[Any] = np.dtype(np.uint8)
        self.fortran = False
        self.data: bytes | Extent | list[Any] = b""

    def __setstate__(self, state: Any) -> None:
        """Set the state that NumPy stores: version, shape, dtype, order and data."""
        _, shape, dtype, fortran, data = state
        self._fill(shape, dtype, bool(fortran), data)

    def _fill(self, shape: Any, dtype: Any, fortran: bool, data: Any) -> None:
        if isinstance(shape, int):
            shape = (shape,)
        if isinstance(data, str):  # from Python 2, whose strings are bytes
            data = data.encode("latin1")
        if isinstance(data, bytearray):
            data = bytes(data)
        if (
            not isinstance(dtype, _DType)
            or not isinstance(data, (bytes, Extent, list))
            or not all(isinstance(n, int) and n >= 0 for n in shape)
        ):
            raise _Refused("an array is not stored in NumPy's format")
        self.shape, self.dtype, self.fortran, self.data = tuple(shape), dtype.dtype, fortran, data

    def numpy(self, read: Callable[[int, int], bytes] | None = None) -> npt.NDArray[Any]:
        """Return the array.

        Args:
            read: returns bytes of the file, given start and size, for data left in the file.

        Raises:
            ValueError: shape and data do not agree, or the array contains objects.
        """
        data = self.data
        if isinstance(data, list):
            raise ValueError("it contains objects")
        if isinstance(data, Extent):
            assert read is not None
            data = read(*data)
        values: npt.NDArray[Any] = np.frombuffer(data, np.uint8).view(self.dtype)
        return values.reshape(self.shape, order="F" if self.fortran else "C")


class _DType:
    """A dtype as described in its pickle."""

    def __init__(self, text: Any, *_: Any) -> None:
        if isinstance(text, bytes):
            text = text.decode("latin1")
        if not isinstance(text, str) or not _DTYPE.fullmatch(text):
            raise _Refused(f"the dtype {text!r} is not one of plain numbers or strings")
        self.dtype: np.dtype[Any] = np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        order = state[1].decode() if isinstance(state[1], bytes) else state[1]
        if any(part is not None for part in state[2:5]):
            raise _Refused("it contains a dtype with fields")
        if order in ("<", ">"):
            self.dtype = self.dtype.newbyteorder("<" if order == "<" else ">")


def _reconstruct(cls: Any, _shape: Any, _typecode: Any) -> StoredArray:
    if cls is not StoredArray:
        raise _Refused("it contains an array of another class")
    return StoredArray()


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> StoredArray:
    array = StoredArray()
    array._fill(shape, dtype, order == "F", data)
    return array


def _scalar(dtype: Any, data: Any = b"") -> Any:
    array = StoredArray()
    array._fill((1,), dtype, False, data)
    return array.numpy()[0].item()


def _encoded(text: Any, encoding: Any) -> bytes:
    """Return the bytes that Python 3 stores as a string in pickles that Python 2 can read."""
    if not isinstance(text, str) or encoding != "latin1":
        raise _Refused("it contains a string in an encoding other than latin1")
    return text.encode("latin1")


def _bytes(content: Any = b"") -> bytes:
    """Return bytes unchanged; for a number, ``bytes`` would allocate that many."""
    if not isinstance(content, (bytes, Extent)):
        raise _Refused("it makes bytes from something else")
    return content  # type: ignore[return-value]


def _default_dict(_factory: Any = None, *more: Any) -> dict[Any, Any]:
    return dict(*more)


_ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("_codecs", "encode"): _encoded,
    ("collections", "OrderedDict"): dict,
    ("collections", "defaultdict"): _default_dict,
    ("numpy", "ndarray"): StoredArray,
    ("numpy", "dtype"): _DType,
    **{
        (f"{module}.{name}", function): stand_in
        for module in ("numpy.core", "numpy._core")
        for name, function, stand_in in (
            ("multiarray", "_reconstruct", _reconstruct),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _from_buffer),
        )
    },
    **{
        (module, cls.__name__): cls
        for module in ("builtins", "__builtin__")
        for cls in (dict, frozenset, list, set, tuple)
    },
    **{
        (module, name): _bytes
        for module in ("builtins", "__builtin__")
        for name in ("bytes", "bytearray")
    },
}


# The pure-Python unpickler has one function per opcode, so single ones can be replaced.
_PurePython: Any = pickle._Unpickler


class _Unpickler(_PurePython):  # type: ignore[misc]
    dispatch: ClassVar[dict[int, Any]] = dict(_PurePython.dispatch)

    def __init__(self, stream: BinaryIO, leave: bool) -> None:
        super().__init__(stream, encoding="latin1")
        self._stream = stream
        self._leave = leave
        self._start_of_frame = 0
        here = stream.tell()
        self._size = stream.seek(0, io.SEEK_END)
        stream.seek(here)

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise _Refused(
                f"it asks for {module}.{name}; only arrays, plain containers, strings, bytes and "
                "numbers are allowed"
            ) from None

    def persistent_load(self, pid: Any) -> Any:
        raise _Refused(f"it refers to {pid!r} outside itself")

    def get_extension(self, code: int) -> None:
        raise _Refused(f"it uses the extension {code}")

    def load_frame(self) -> None:
        size = int.from_bytes(self.read(8), "little")
        self._demand(size)
        self._start_of_frame = self._stream.tell()
        self._unframer.load_frame(size)

    dispatch[pickle.FRAME[0]] = load_frame

    def _demand(self, size: int) -> None:
        if not 0 <= size <= self._size:
            raise EOFError

    def _run(self, size: int) -> bytes | Extent:
        self._demand(size)
        frame = self._unframer.current_frame
        if not self._leave or size < _MIN_RUN:
            return self.read(size)  # type: ignore[no-any-return]
        if frame is not None and frame.tell() < len(frame.getbuffer()):
            start = self._start_of_frame + frame.tell()
            self.read(size)
            return Extent(start, size)
        self._unframer.current_frame = None
        start = self._stream.tell()
        if start + size > self._size:
            raise EOFError
        self._stream.seek(size, io.SEEK_CUR)
        return Extent(start, size)

    def load_bytes_of_4(self) -> None:
        self.append(self._run(int.from_bytes(self.read(4), "little")))

    dispatch[pickle.BINBYTES[0]] = load_bytes_of_4

    def load_bytes_of_8(self) -> None:
        self.append(self._run(int.from_bytes(self.read(8), "little")))

    dispatch[pickle.BINBYTES8[0]] = load_bytes_of_8
    dispatch[pickle.BYTEARRAY8[0]] = load_bytes_of_8

    def load_text_of_python_2(self) -> None:
        found = self._run(int.from_bytes(self.read(4), "little"))
        self.append(found if isinstance(found, Extent) else found.decode("latin1"))

    dispatch[pickle.BINSTRING[0]] = load_text_of_python_2

    def load_build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], (StoredArray, _DType)):
            raise _Refused("it sets attributes of something that is not an array")
        self.stack[-1].__setstate__(state)

    dispatch[pickle.BUILD[0]] = load_build


def read_pickle(stream: BinaryIO, place: str, *, leave: bool = False) -> Any:
    """Return the contents of a pickle: plain containers, with a ``StoredArray`` for each array.

    Args:
        stream: the pickle; seekable.
        place: location of the pickle for messages.
        leave: whether long runs of bytes stay in the file and become an ``Extent``.

    Raises:
        DataError: the pickle is damaged or asks for anything else, which the message names.
    """
    try:
        return _Unpickler(stream, leave).load()
    except _Refused as error:
        raise DataError(f"{place}: this pickle is not read: {error}") from None
    except RecursionError:
        raise DataError(f"{place}: this pickle is not read: it is nested too deeply") from None
    except Exception as error:  # a damaged pickle is an arbitrary program
        cause = str(error) or "it ends too early"
        raise DataError(f"{place}: not a pickle, or damaged or incomplete ({cause})") from None
