"""Reading pickles of arrays without running code from them or loading their pixels.

A pickle is a program. Here it may only build plain containers, strings, bytes, numbers and NumPy
arrays, and it never calls NumPy: an array becomes a description, and a long run of bytes becomes
its position in the file, from which it can be read on demand.

Time and memory are proportional to the size of the pickle: the number of its steps is bounded, what
it copies counts against its size, and keys are text, bytes and numbers, because a tuple that
contains itself many times takes exponential time to hash, to compare and to print.
"""

from __future__ import annotations

import io
import pickle
import re
import reprlib
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fsframework.interfaces import DataError

__all__ = ["Extent", "StoredArray", "read_pickle"]

_MIN_RUN = 256
"""Size in bytes from which a run is left in the file."""

_MOST_STEPS = 1 << 25
"""Number of steps of a pickle; half a million small arrays take about eleven million."""

_MOST_LINE = 1 << 30
"""Size of a text in protocol 0, which stores the content of an array as one."""

_FREE_COPIES = 1 << 20
"""Number of items that may be copied in addition to twice the size of a pickle."""

_MOST_ARGUMENTS = 8
_LARGE = 1 << 64
_KEYS = (str, bytes, int, float)

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
            raise _Refused(f"the dtype {reprlib.repr(text)} is not one of numbers or strings")
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


def _dict(*pairs: Any) -> dict[Any, Any]:
    return dict(_sound_pairs(*pairs))


def _default_dict(_factory: Any = None, *pairs: Any) -> dict[Any, Any]:
    return _dict(*pairs)


def _sound_pairs(pairs: Any = ()) -> list[tuple[Any, Any]]:
    """Return pairs of a key and a value, of which every key can be hashed at once."""
    found = [(key, value) for key, value in (pairs.items() if type(pairs) is dict else pairs)]
    _demand_keys(key for key, _ in found)
    return found


def _set(items: Any = ()) -> set[Any]:
    _demand_keys(items)
    return set(items)


def _frozen_set(items: Any = ()) -> frozenset[Any]:
    return frozenset(_set(items))


def _is_sized(value: Any) -> bool:
    return isinstance(value, (str, bytes, list, tuple, dict, set, frozenset))


def _demand_keys(keys: Iterable[Any]) -> None:
    for key in keys:
        if not isinstance(key, _KEYS) or (isinstance(key, int) and abs(key) >= _LARGE):
            raise _Refused(
                f"it has a {type(key).__name__} as a key; only text, bytes and numbers below 2**64 "
                "are allowed"
            )


_ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("_codecs", "encode"): _encoded,
    ("collections", "OrderedDict"): _dict,
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
        (module, name): stand_in
        for module in ("builtins", "__builtin__")
        for name, stand_in in (
            ("bytes", _bytes),
            ("bytearray", _bytes),
            ("dict", _dict),
            ("frozenset", _frozen_set),
            ("list", list),
            ("set", _set),
            ("tuple", tuple),
        )
    },
}


class _Sized:
    """A stream that never allocates more than it contains, whatever size is requested."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream, self._size = stream, size

    def read(self, count: int) -> bytes:
        """Return ``count`` bytes.

        Raises:
            EOFError: the stream ends before them.
        """
        if not 0 <= count <= self._size:
            raise EOFError
        found = self._stream.read(count)
        if len(found) < count:
            raise EOFError
        return found

    def readline(self) -> bytes:
        """Return a line with its end."""
        return self._stream.readline(_MOST_LINE)


# The pure-Python unpickler has one function per opcode, so single ones can be replaced.
_PurePython: Any = pickle._Unpickler


class _Unpickler(_PurePython):  # type: ignore[misc]
    dispatch: ClassVar[dict[int, Any]] = dict(_PurePython.dispatch)

    def __init__(self, stream: BinaryIO, leave: bool) -> None:
        here = stream.tell()
        self._size = stream.seek(0, io.SEEK_END)
        stream.seek(here)
        super().__init__(_Sized(stream, self._size), encoding="latin1")
        self._stream = stream
        self._leave = leave
        self._start_of_frame = 0
        self._copied = 0

    def load(self) -> Any:
        """Return the contents; the pickle's steps, in a loop that counts them."""
        self._unframer = pickle._Unframer(self._file_read, self._file_readline)
        self.read, self.readinto = self._unframer.read, self._unframer.readinto
        self.readline = self._unframer.readline
        self.metastack: list[list[Any]] = []
        self.stack: list[Any] = []
        self.append = self.stack.append
        read, dispatch = self.read, self.dispatch
        try:
            for _ in range(_MOST_STEPS):
                if not (step := read(1)):
                    raise EOFError
                dispatch[step[0]](self)
        except pickle._Stop as stop:
            return stop.value
        raise _Refused(f"it has more than {_MOST_STEPS:,} steps")

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise _Refused(
                f"it asks for {module}.{name}; only arrays, plain containers, strings, bytes and "
                "numbers are allowed"
            ) from None

    def persistent_load(self, pid: Any) -> Any:
        raise _Refused(f"it refers to {reprlib.repr(pid)} outside itself")

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
        self._count(state)
        self.stack[-1].__setstate__(state)

    dispatch[pickle.BUILD[0]] = load_build

    def _call(self, function: Any, arguments: Any) -> Any:
        """Call a stand-in; what it may copy counts."""
        if not callable(function):
            raise _Refused("it calls something that is not a function")
        self._count(arguments)
        return function(*arguments)

    def _count(self, values: Any) -> None:
        if not isinstance(values, (tuple, list)):
            raise _Refused("it passes arguments that are not a tuple")
        self._copied += len(values)
        self._copied += sum(len(value) for value in values[:_MOST_ARGUMENTS] if _is_sized(value))
        if self._copied > 2 * self._size + _FREE_COPIES:
            raise _Refused("it copies the same content again and again")

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        self.stack[-1] = self._call(self.stack[-1], arguments)

    dispatch[pickle.REDUCE[0]] = load_reduce

    def load_newobj(self) -> None:
        arguments = self.stack.pop()
        self.stack[-1] = self._call(self.stack[-1], arguments)

    dispatch[pickle.NEWOBJ[0]] = load_newobj

    def load_obj(self) -> None:
        function, *arguments = self.pop_mark()
        self.append(self._call(function, arguments))

    dispatch[pickle.OBJ[0]] = load_obj

    def load_inst(self) -> None:
        module, name = (self.readline()[:-1].decode("ascii") for _ in range(2))
        arguments = self.pop_mark()
        self.append(self._call(self.find_class(module, name), arguments))

    dispatch[pickle.INST[0]] = load_inst

    def load_unused(self) -> None:
        raise _Refused("it contains an object of another class")

    dispatch[pickle.NEWOBJ_EX[0]] = load_unused

    def load_dict(self) -> None:
        items = self.pop_mark()
        self.append(_dict(zip(items[::2], items[1::2], strict=True)))

    dispatch[pickle.DICT[0]] = load_dict

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._container(dict).update(_sound_pairs([(key, value)]))

    dispatch[pickle.SETITEM[0]] = load_setitem

    def load_setitems(self) -> None:
        items = self.pop_mark()
        self._container(dict).update(_sound_pairs(zip(items[::2], items[1::2], strict=True)))

    dispatch[pickle.SETITEMS[0]] = load_setitems

    def load_additems(self) -> None:
        items = self.pop_mark()
        self._container(set).update(_set(items))

    dispatch[pickle.ADDITEMS[0]] = load_additems

    def load_frozenset(self) -> None:
        items = self.pop_mark()
        self.append(_frozen_set(items))

    dispatch[pickle.FROZENSET[0]] = load_frozenset

    def load_append(self) -> None:
        value = self.stack.pop()
        self._container(list).append(value)

    dispatch[pickle.APPEND[0]] = load_append

    def load_appends(self) -> None:
        items = self.pop_mark()
        self._container(list).extend(items)

    dispatch[pickle.APPENDS[0]] = load_appends

    def _container(self, kind: type[Any]) -> Any:
        if type(self.stack[-1]) is not kind:
            raise _Refused(f"it adds items to something that is not a {kind.__name__}")
        return self.stack[-1]


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
        undecoded = isinstance(error, UnicodeError)
        cause = "a text is damaged" if undecoded else str(error)[:200] or "it ends too early"
        raise DataError(f"{place}: not a pickle, or damaged or incomplete ({cause})") from None
