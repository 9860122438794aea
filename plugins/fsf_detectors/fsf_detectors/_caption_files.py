"""Reading caption files row by row, including broken rows."""

from __future__ import annotations

import csv
import errno
import gzip
import itertools
import json
import os
import re
import reprlib
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from fsframework.interfaces import DataError
from fsframework.values import open_file, parse_json, text_lines

__all__ = ["Format", "Row", "find_format", "read_rows"]

Format = Literal["jsonl", "csv", "token", "fewstab"]

_SUFFIXES: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}
_TOKEN = re.compile(r"(?P<key>[^\t]*)#(?P<number>[0-9]+)\t(?P<caption>.*)", re.DOTALL)
_IMAGE = re.compile(r"[^,]+\.(?:bmp|gif|jpe?g|png|tiff?|webp)\s*,.*,.*", re.IGNORECASE | re.DOTALL)
_MOST_DIGITS = 18
_MOST_NAMES = 20

_ANY_EXPANSION = 1 << 26
"""Number of characters to which a gzip file of any size may expand."""

_MOST_EXPANSION = 200
"""How many times its size a gzip file may be; captions reach a few dozen."""

_FORMATS = (
    "it must contain JSON objects with key and caption, one per line, CSV with the columns key and "
    "caption, or lines IMAGE#NUMBER<TAB>CAPTION, or FewSTAB's lines FILE,CAPTION,CLASS"
)


class Row(NamedTuple):
    """A row of a caption file.

    Args:
        number: row number in the file, from 1.
        key: key of the image.
        place: number of the caption among those of the image; 0 in formats with only one.
        caption: the text.
        fault: what is wrong with the row; if set, ``key`` and ``caption`` are meaningless.
    """

    number: int
    key: str = ""
    place: int = 0
    caption: str = ""
    fault: str = ""


def find_format(path: Path) -> Format:
    """Return the format of a file by its suffix or, for other suffixes, by its first line.

    Raises:
        DataError: the file cannot be read, is empty or has another format.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    if suffixes and _SUFFIXES.get(suffixes[-1]) == "jsonl":
        return "jsonl"
    first = next((line for line in _lines(path) if line.strip()), None)
    if first is not None and _IMAGE.fullmatch(first) and "\t" not in first and _has_class(first):
        return "fewstab"
    if suffixes and suffixes[-1] in _SUFFIXES:
        return _SUFFIXES[suffixes[-1]]
    if first is None:
        raise DataError(f"{path}: is empty; {_FORMATS}")
    if first.lstrip().startswith("{"):
        return "jsonl"
    if _TOKEN.fullmatch(first.rstrip("\r\n")):
        return "token"
    if {"key", "caption"} <= {cell.strip() for cell in next(csv.reader([first]), [])}:
        return "csv"
    raise DataError(f"{path}: row 1 has an unknown format; {_FORMATS}")


def read_rows(path: Path, kind: Format) -> Iterator[Row]:
    """Yield the rows of a file that are not empty, including broken ones.

    Raises:
        DataError: the file cannot be read, or it is CSV and its header lacks a column.
    """
    if kind == "csv":
        rows = _csv_rows(path)
    else:
        parse = {"jsonl": _json_row, "token": _token_row, "fewstab": _fewstab_row}[kind]
        rows = (
            parse(number, line.rstrip("\r\n"))
            for number, line in enumerate(_lines(path), start=1)
            if line.strip()
        )
    for row in rows:
        yield row if row.fault else _checked(row)


def _checked(row: Row) -> Row:
    if not row.key:
        return Row(row.number, fault="has no key")
    try:
        (row.key + row.caption).encode()
    except UnicodeEncodeError:
        return Row(row.number, fault="is not UTF-8 text")
    return row


def _lines(path: Path) -> Iterator[str]:
    """Yield lines with their ends; bytes that are not UTF-8 become lone surrogates."""
    try:
        file = open_file(path)
        if path.suffix.lower() == ".gz":
            yield from _unzipped(file)
        else:
            yield from text_lines(file, "surrogateescape")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: is not a complete gzip file ({error})") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None


def _unzipped(file: BinaryIO) -> Iterator[str]:
    """Yield the lines of a gzip file that does not expand to far more than its size."""
    most = _ANY_EXPANSION + _MOST_EXPANSION * os.fstat(file.fileno()).st_size
    with file, gzip.GzipFile(fileobj=file) as unzipped:
        for line in text_lines(unzipped, "surrogateescape"):
            most -= len(line)
            if most < 0:
                why = f"it expands to more than {_MOST_EXPANSION} times its size"
                raise OSError(errno.EFBIG, why)
            yield line


def _json_row(number: int, line: str) -> Row:
    try:
        found = parse_json(line)
    except json.JSONDecodeError as error:
        return Row(number, fault=f"is not JSON ({error.msg} at column {error.colno})")
    except ValueError as error:
        return Row(number, fault=f"cannot be read as JSON ({error})")
    if not isinstance(found, dict):
        return Row(number, fault="is not a JSON object")
    for name in ("key", "caption"):
        if name not in found:
            names = ", ".join(map(reprlib.repr, sorted(found)[:5])) or "nothing"
            return Row(number, fault=f"has no {name!r}, only {names}")
        if found[name] is None and name == "caption":
            found[name] = ""
        if not isinstance(found[name], str):
            return Row(number, fault=f"has a {name!r} that is not text")
    return Row(number, found["key"], 0, found["caption"])


def _fewstab_row(number: int, line: str) -> Row:
    name, *parts = line.split(",")
    if not _has_class(line):
        return Row(number, fault="is not FILE,CAPTION,CLASS")
    return Row(number, name.strip(), 0, ",".join(parts[:-1]).strip())


def _has_class(line: str) -> bool:
    """Return whether a line has three cells; in ``a.png,"a dog, with snow"`` are two."""
    return len(next(csv.reader([line]), [])) > 2


def _token_row(number: int, line: str) -> Row:
    match = _TOKEN.fullmatch(line)
    if match is None:
        lacks = "no tab" if "\t" not in line else "no #NUMBER before its tab"
        return Row(number, fault=f"has {lacks}; it must be IMAGE#NUMBER<TAB>CAPTION")
    place = match["number"]
    if len(place) > _MOST_DIGITS:
        return Row(number, fault=f"has a number of {len(place):,} digits")
    return Row(number, match["key"], int(place), match["caption"])


def _csv_rows(path: Path) -> Iterator[Row]:
    records = _csv_records(path)
    number, first = next(records, (0, None))
    if first is None:
        raise DataError(f"{path}: is empty; row 1 must name the columns key and caption")
    if isinstance(first, csv.Error):
        raise DataError(f"{path}: row {number} is not CSV ({_why(first)})")
    header = [cell.strip() for cell in first]
    _demand_columns(header, path, number)
    key_at, caption_at = header.index("key"), header.index("caption")
    for number, cells in records:
        if isinstance(cells, csv.Error):
            yield Row(number, fault=f"is not CSV ({_why(cells)})")
        elif len(cells) == len(header):
            yield Row(number, cells[key_at].strip(), 0, cells[caption_at])
        elif any(cell.strip() for cell in cells):
            yield Row(number, fault=f"has {len(cells)} cells but the header has {len(header)}")


def _csv_records(path: Path) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Yield the number of each record with its cells, or with why it is not CSV."""
    lines, taken = _lines(path), list[str]()

    def noted(coming: Iterable[str]) -> Iterator[str]:
        for line in coming:
            taken.append(line)
            yield line

    reader = csv.reader(noted(lines), strict=True)
    for number in itertools.count(1):
        taken.clear()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield number, error
            # An unclosed quote swallows the lines after it: parse those again, lose only its own.
            reader = csv.reader(noted(itertools.chain(taken[1:], lines)), strict=True)
        else:
            yield number, cells


def _why(error: csv.Error) -> str:
    return str(error).replace("unexpected end of data", "a quotation mark is not closed")


def _demand_columns(header: list[str], path: Path, number: int) -> None:
    for name in ("key", "caption"):
        if (count := header.count(name)) != 1:
            problem = "lacks" if count == 0 else "repeats"
            raise DataError(
                f"{path}: row {number} {problem} the column {name}; it must name key and caption, "
                f"not {', '.join(name[:40] for name in header[:_MOST_NAMES]) or 'nothing'}"
            )
