"""What a file of weights says of itself: those that ``fsf pretrain`` writes name their training."""

from __future__ import annotations

from pathlib import Path

import msgspec

from fsframework._reading import check_file
from fsframework.records import RECORD_NAME, DataRecord, RunRecord

__all__ = ["WeightsFacts", "facts_of", "size_of"]


class _Name(msgspec.Struct):
    name: str = ""


class WeightsFacts(msgspec.Struct):
    """What is known of weights in a file.

    Args:
        what: ``weights``.
        backbone: that they are for.
        data: what they have seen, and at which size; ``None`` if the file does not say.
    """

    what: str = ""
    backbone: _Name = msgspec.field(default_factory=_Name)
    data: DataRecord | None = None


def facts_of(file: Path) -> WeightsFacts | None:
    """Return what a file of weights says of itself, ``None`` if it says nothing.

    A file that cannot be read says nothing here: whoever loads its weights reports that.
    """
    from safetensors import SafetensorError, safe_open

    try:
        check_file(file)
        with safe_open(file, framework="numpy") as opened:
            raw = (opened.metadata() or {}).get("fsframework", "")
        found = msgspec.json.decode(raw, type=WeightsFacts)
    except (OSError, SafetensorError, ValueError, RecursionError, msgspec.MsgspecError):
        return None
    return found if found.what == "weights" else None


def size_of(source: Path) -> int | None:
    """Return the size of the images that weights were trained on, ``None`` if it is not known.

    Args:
        source: a run folder, or a file of weights.
    """
    if source.is_dir():
        if not (source / RECORD_NAME).is_file():
            return None
        return RunRecord.load(source).seen_size
    facts = facts_of(source)
    return None if facts is None or facts.data is None else facts.data.image_size
