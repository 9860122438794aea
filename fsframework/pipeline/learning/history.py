"""The history of a training: as CSV in the run's folder, and for TensorBoard."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from fsframework._files import atomic_write
from fsframework.errors import OptionError
from fsframework.records import Epoch

__all__ = [
    "COLUMNS",
    "CSV_NAME",
    "TENSORBOARD_NAME",
    "History",
    "check_tensorboard",
    "write_csv",
    "write_tensorboard",
]

COLUMNS = ("stage", "epoch", "learning_rate", "loss", "validation_accuracy", "seconds")
CSV_NAME, TENSORBOARD_NAME = "curve.csv", "tensorboard"
_SCALARS = {
    "loss": "loss",
    "validation_accuracy": "validation accuracy",
    "learning_rate": "learning rate",
}

History = Sequence[Epoch]


def write_csv(path: Path, history: History) -> None:
    """Write a row per epoch; stages and epochs count from 1, accuracies are fractions in 0..1."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in history:
        counted = {**vars(row), "stage": row.stage + 1, "epoch": row.epoch + 1}
        writer.writerow(["" if (v := counted.get(c)) is None else v for c in COLUMNS])
    atomic_write(path, text.getvalue())


def check_tensorboard() -> None:
    """Check that TensorBoard is installed.

    Raises:
        OptionError: TensorBoard is not installed.
    """
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise OptionError(
            f"TensorBoard is not installed ({error}); install it with: pip install tensorboard"
        ) from None


def write_tensorboard(folder: Path, history: History, already: int = 0) -> None:
    """Add the epochs after the first ``already`` to the event files in ``folder``.

    An epoch's step counts the epochs of all stages, from 1.

    Raises:
        OptionError: TensorBoard is not installed.
    """
    check_tensorboard()
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for step, row in enumerate(history, start=1):
            for column, name in _SCALARS.items():
                if step > already and vars(row)[column] is not None:
                    writer.add_scalar(name, vars(row)[column], step)
