"""The history of a training: as CSV in the run's folder, and for TensorBoard."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from fsframework._files import atomic_write, discard
from fsframework._text import csv_text
from fsframework.errors import OptionError, install_hint
from fsframework.records import Epoch

__all__ = ["Curve", "check_tensorboard", "write_tensorboard"]

_COLUMNS = ("stage", "epoch", "learning_rate", "loss", "validation_accuracy", "seconds")
_SCALARS = {
    "loss": "loss",
    "validation_accuracy": "validation accuracy",
    "learning_rate": "learning rate",
}


class Curve:
    """Writes the training curve into a run's folder, epoch by epoch.

    ``curve.csv`` has a row per epoch; stages and epochs count from 1, accuracies are fractions in
    0..1. In the event files of ``tensorboard``, an epoch's step counts the epochs of all stages.

    Args:
        folder: of the run.
        tensorboard: whether event files are written too.
    """

    def __init__(self, folder: Path, *, tensorboard: bool) -> None:
        self._csv = folder / "curve.csv"
        self._events = folder / "tensorboard" if tensorboard else None
        # Each call rewrites them, so that a resumed run has no epoch twice.
        if self._events is not None:
            discard(self._events)
        self._written = 0

    def __call__(self, history: Sequence[Epoch]) -> None:
        """Update the files."""
        rows = [{**vars(e), "stage": e.stage + 1, "epoch": e.epoch + 1} for e in history]
        atomic_write(self._csv, csv_text(_COLUMNS, rows))
        if self._events is not None:
            write_tensorboard(self._events, history, self._written)
            self._written = len(history)


def write_tensorboard(folder: Path, history: Sequence[Epoch], already: int = 0) -> None:
    """Add the epochs after the first ``already`` to the event files in ``folder``.

    Raises:
        OptionError: TensorBoard is not installed.
    """
    check_tensorboard()
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for step, row in list(enumerate(history, start=1))[already:]:
            for column, name in _SCALARS.items():
                if (value := vars(row)[column]) is not None:
                    writer.add_scalar(name, value, step)


def check_tensorboard() -> None:
    """Check that TensorBoard is installed.

    Raises:
        OptionError: TensorBoard is not installed.
    """
    if find_spec("tensorboard") is None:
        raise OptionError(f"TensorBoard is not installed: {install_hint('tensorboard')}")
