"""The files of a run, checked against its record before they are used."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from fsframework.errors import DataError, RecordError
from fsframework.pipeline.learning.model import load_tensors, weights_digest
from fsframework.records import RunRecord, checked_outcomes
from fsframework.values import ArmOutcomes

__all__ = ["WEIGHTS_NAME", "finished_outcomes", "weights_from", "weights_of_run"]

WEIGHTS_NAME = "weights.safetensors"


def finished_outcomes(folder: Path, record: RunRecord) -> ArmOutcomes:
    """Return the outcomes of a finished run whose tasks, outcomes and weights are as written.

    Raises:
        DataError: a file is missing or damaged; the message says which.
    """
    outcomes = checked_outcomes(folder, record)
    weights_of_run(folder / WEIGHTS_NAME, record)
    return outcomes


def weights_of_run(file: Path, record: RunRecord) -> dict[str, Tensor]:
    """Return the weights of a run by their names.

    Raises:
        DataError: they are missing or damaged, or are not those that the run wrote.
    """
    tensors = load_tensors(file)[0]
    written = record.digests.get("weights")
    if written is not None and written != weights_digest(tensors):
        raise DataError(f"{file}: its weights are not those that the run wrote")
    return tensors


def weights_from(source: Path) -> dict[str, Tensor]:
    """Return the weights of a run folder, or of a safetensors file, by their names.

    Raises:
        DataError: they are missing or damaged, or are not those that the run wrote.
    """
    if not source.is_dir():
        return load_tensors(source)[0]
    try:
        return weights_of_run(source / WEIGHTS_NAME, RunRecord.load(source))
    except RecordError:
        return load_tensors(source / WEIGHTS_NAME)[0]  # nothing is known about them
    except DataError as error:
        raise DataError(f"{error}; run the command that made it again") from None
