"""The kept answers of endpoints: what there is, and its removal."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsf_vlm._store import AnswerStore, about_of, answers_folder
from fsframework.interfaces import DataError

__all__ = ["Kept", "kept_answers", "remove_answers"]


@dataclass(frozen=True)
class Kept:
    """The kept answers of one model at one endpoint.

    Args:
        url: address of the endpoint.
        model: name of the model.
        answers: number of answers.
        prompt_tokens: number of tokens of their requests.
        completion_tokens: number of tokens of the answers.
        damaged: number of lines that cannot be read.
        bytes: size of the files.
        folder: that contains them.
    """

    url: str
    model: str
    answers: int
    prompt_tokens: int
    completion_tokens: int
    damaged: int
    bytes: int
    folder: Path

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**vars(self), "folder": str(self.folder)}


def kept_answers(
    url: str | None = None, model: str | None = None, *, cache_dir: str | Path | None = None
) -> list[Kept]:
    """Return what is kept of each model at each endpoint, by address and name.

    Args:
        url: address of the endpoint; by default all.
        model: name of the model; by default all.
        cache_dir: by default ``FSF_CACHE``, else the user's cache folder.
    """
    home = answers_folder(cache_dir)
    wanted = None if url is None else url.rstrip("/")
    found = []
    for folder in sorted(home.glob("*")):
        about = about_of(folder)
        if about is None or wanted not in (None, about[0]) or model not in (None, about[1]):
            continue
        store = AnswerStore(*about, home).refreshed()
        found.append(
            Kept(
                *about,
                answers=len(store),
                prompt_tokens=sum(one.prompt_tokens for one in store),
                completion_tokens=sum(one.completion_tokens for one in store),
                damaged=store.damaged,
                bytes=sum(file.stat().st_size for file in folder.iterdir()),
                folder=folder,
            )
        )
    return sorted(found, key=lambda one: (one.url, one.model))


def remove_answers(kept: Sequence[Kept]) -> None:
    """Remove kept answers; what they answered will be asked again.

    Args:
        kept: some of what ``kept_answers`` returns.

    Raises:
        DataError: the file system refuses.
    """
    for one in kept:
        try:
            shutil.rmtree(one.folder)
        except OSError as error:
            raise DataError(f"{one.folder}: cannot be removed ({error.strerror})") from None
