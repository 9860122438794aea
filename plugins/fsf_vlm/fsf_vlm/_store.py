"""Answers of endpoints, kept on the disk."""

from __future__ import annotations

import json
import math
import os
import secrets
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fsframework.interfaces import DataError
from fsframework.values import atomic_write, digest_of, parse_json

__all__ = [
    "Answer",
    "AnswerStore",
    "InvalidAnswer",
    "about_of",
    "answers_folder",
    "checked_answer",
]

_ABOUT = "about.json"
_DIGITS = 24
_MOST_TOKENS = 1 << 40


@dataclass(frozen=True)
class Answer:
    """What a model answered to one request.

    Args:
        text: of the answer; empty if the model said nothing.
        prompt_tokens: number of tokens of the request, images included; 0 if the endpoint does not
            say.
        completion_tokens: number of tokens of the answer; 0 if the endpoint does not say.
        top_logprobs: for each token of the answer, the natural logarithm of the probability of the
            likeliest tokens; empty unless the request asks for it.
    """

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    top_logprobs: tuple[dict[str, float], ...] = field(default=())


class InvalidAnswer(ValueError):
    """An answer has values that no answer can have."""


def checked_answer(answer: Answer) -> Answer:
    """Return an answer if its fields are of their types and its counts can be true.

    Raises:
        InvalidAnswer: they are not; the message names the field.
    """
    for name in ("prompt_tokens", "completion_tokens"):
        count = getattr(answer, name)
        if type(count) is not int or not 0 <= count < _MOST_TOKENS:
            raise InvalidAnswer(f"{name} must be a whole number from 0, not {count!r:.40}")
    numbers = [number for token in answer.top_logprobs for number in token.values()]
    if not all(isinstance(number, (int, float)) and number < math.inf for number in numbers):
        raise InvalidAnswer("log-probabilities must be numbers below infinity")
    if not isinstance(answer.text, str):
        raise InvalidAnswer("its content must be a text")
    return answer


def answers_folder(cache_dir: str | Path | None = None) -> Path:
    """Return the folder of all answers, ``answers`` in the cache.

    Args:
        cache_dir: by default ``FSF_CACHE``, else the user's cache folder.
    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    usual = os.environ.get("FSF_CACHE") or Path(home) / "fsframework"
    return Path(cache_dir or usual) / "answers"


def about_of(folder: Path) -> tuple[str, str] | None:
    """Return address and model of the store in a folder; ``None`` if there is none."""
    try:
        about = parse_json((folder / _ABOUT).read_text("utf-8"))
        return str(about["url"]), str(about["model"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


class AnswerStore:
    """The answers of one model at one endpoint, by the digest of the request.

    Each process appends to a file of its own, one JSON object per line with a digest of the line,
    so that any number of processes may share a folder. A damaged line is counted and its request
    is asked again.

    Args:
        url: address of the endpoint.
        model: name of the model.
        folder: of all stores; by default ``answers_folder()``.
    """

    def __init__(self, url: str, model: str, folder: Path | None = None) -> None:
        home = answers_folder() if folder is None else folder
        self.url = url.rstrip("/")
        self.model = model
        self.folder = home / digest_of(self.url, model)[:_DIGITS]
        self.damaged = 0
        """Number of lines that could not be read."""
        self._answers: dict[str, Answer] = {}
        self._read: dict[Path, int] = {}
        self._file: Path | None = None

    def refreshed(self) -> AnswerStore:
        """Return itself, with the answers that any process has added since the last call."""
        for path in sorted(set(self.folder.glob("*.jsonl")) - {self._file}):
            start = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(start)
                whole = file.read()
            # A line without an end is still being written, or was cut off.
            whole = whole[: whole.rfind(b"\n") + 1]
            self._read[path] = start + len(whole)
            for line in whole.splitlines():
                if (found := _parsed(line)) is None:
                    self.damaged += 1
                else:
                    self._answers[found[0]] = found[1]
        return self

    def get(self, digest: str) -> Answer | None:
        """Return the answer to a request, or ``None`` if it is not known."""
        return self._answers.get(digest)

    def __len__(self) -> int:
        return len(self._answers)

    def __iter__(self) -> Iterator[Answer]:
        return iter(self._answers.values())

    def add(self, digest: str, answer: Answer) -> None:
        """Keep an answer, on the disk before this returns.

        Raises:
            DataError: it cannot be written.
        """
        body = json.dumps([digest, asdict(answer)])
        line = f"{_check(body)} {body}\n".encode()
        try:
            if self._file is None or not self._file.exists():
                self._file = self._begun()
            with self._file.open("ab") as file:
                file.write(line)
        except OSError as error:
            raise DataError(
                f"{self.folder}: answers cannot be written ({error.strerror})"
            ) from None
        self._answers[digest] = answer

    def _begun(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        if about_of(self.folder) is None:
            about = json.dumps({"url": self.url, "model": self.model})
            atomic_write(self.folder / _ABOUT, about)
        name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        return self.folder / name


def _check(body: str) -> str:
    return digest_of(body)[:16]


def _parsed(line: bytes) -> tuple[str, Answer] | None:
    """Return a digest and its answer; ``None`` for a damaged line."""
    try:
        check, body = line.decode().split(" ", 1)
        if check != _check(body):
            return None
        digest, raw = json.loads(body)
        fields: dict[str, Any] = {**raw, "top_logprobs": tuple(raw["top_logprobs"])}
        return str(digest), checked_answer(Answer(**fields))
    except (ValueError, TypeError, KeyError):
        return None
