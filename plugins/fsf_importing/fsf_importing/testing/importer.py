"""Checks of importers of checkpoints.

Checks of the model need a checkpoint, which an importer's ``example`` writes; without one they are
skipped.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsf_importing.interfaces import CheckpointImporter, ImportedModel
from fsframework.errors import DataError
from fsframework.testing import Make, NotApplicable, Suite, require
from fsframework.values import digest_of

suite = Suite(CheckpointImporter)

_USUAL = ("config.yaml", "config.json", "model.pth", "model.pt", "model_best.pth", "weights.npz")


@contextmanager
def _empty() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name) / "checkpoint"


@contextmanager
def _checkpoint(make: Make) -> Iterator[Path]:
    """Yield a folder with the importer's own example."""
    with _empty() as folder:
        folder.mkdir()
        try:
            make().example(folder)
        except NotImplementedError:
            raise NotApplicable("it has no example to read") from None
        yield folder


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _refused(make: Make, folder: Path, what: str) -> None:
    """Require that reading raises a ``DataError``."""
    try:
        make().read(folder)
    except DataError:
        return
    except Exception as error:
        require(False, f"{what} must be a DataError, not {type(error).__name__}: {error}")
    require(False, f"{what} must be a DataError, but it was read")


def _read_or_refused(make: Make, folder: Path, what: str) -> None:
    """Require that reading gives a model or a ``DataError``."""
    try:
        make().read(folder)
    except DataError:
        return
    except Exception as error:
        require(False, f"{what} must be a DataError, not {type(error).__name__}: {error}")


@suite.check()
def check_no_folder(make: Make) -> None:
    """A folder that does not exist, or is a file, is a ``DataError``."""
    with _empty() as folder:
        _refused(make, folder, "a folder that does not exist")
        folder.write_text("a file")
        _refused(make, folder, "a file instead of a folder")


@suite.check()
def check_no_checkpoint(make: Make) -> None:
    """A folder that is empty or has only files of other kinds is a ``DataError``."""
    with _empty() as folder:
        folder.mkdir()
        _refused(make, folder, "an empty folder")
        for name in _USUAL:
            (folder / name).write_bytes(b"\x00\xff neither text nor weights")
        _refused(make, folder, "a folder of files of other kinds")


@suite.check()
def check_example(make: Make) -> None:
    """The example is read: plugins named by strings, tensors by names of the two parts."""
    import torch

    with _checkpoint(make) as folder:
        model = make().read(folder)
    require(
        isinstance(model, ImportedModel), f"it must be an ImportedModel, not {type(model).__name__}"
    )
    for name in ("source", "method", "backbone"):
        value = getattr(model, name)
        require(
            isinstance(value, str) and value, f"{name} must be a non-empty string, not {value!r}"
        )
    for name in ("image_size", "n_way", "n_shot", "n_query"):
        value = getattr(model, name)
        require(isinstance(value, int) and value >= 1, f"{name} must be at least 1, not {value!r}")
    for name, tensor in model.weights.items():
        require(
            name.startswith(("backbone.", "method.")),
            f"the name of a weight must begin with backbone. or method., not {name!r}",
        )
        require(
            isinstance(tensor, torch.Tensor),
            f"{name} must be a tensor, not {type(tensor).__name__}",
        )


@suite.check(after=[check_example])
def check_same_again(make: Make) -> None:
    """The same folder gives the same model again."""
    with _checkpoint(make) as folder:
        first, second = (_described(make().read(folder)) for _ in range(2))
    differing = sorted(name for name in first if first[name] != second[name])
    require(not differing, f"a second reading differs in {', '.join(differing)}")


def _described(model: ImportedModel) -> dict[str, Any]:
    weights = {
        name: digest_of(name, str(tensor.shape), tensor.numpy().tobytes())
        for name, tensor in model.weights.items()
    }
    return {**vars(model), "weights": weights}


@suite.check(after=[check_example])
def check_folder_untouched(make: Make) -> None:
    """Reading changes nothing in the folder."""
    with _checkpoint(make) as folder:
        before = {path: path.read_bytes() for path in _files(folder)}
        make().read(folder)
        after = {path: path.read_bytes() for path in _files(folder)}
    changed = sorted(str(p.name) for p in before.keys() | after if before.get(p) != after.get(p))
    require(not changed, f"reading must not change the folder, but it changed {', '.join(changed)}")


@suite.check(after=[check_example])
def check_damage(make: Make) -> None:
    """A file that is missing, cut short or of another kind is a ``DataError`` if it matters."""
    with _checkpoint(make) as folder:
        for path in _files(folder):
            sound = path.read_bytes()
            path.unlink()
            _read_or_refused(make, folder, f"{path.name} missing")
            for what, damaged in (
                ("empty", b""),
                ("cut short", sound[: len(sound) // 2]),
                ("of another kind", b"\x00\xff neither text nor weights"),
            ):
                path.write_bytes(damaged)
                _read_or_refused(make, folder, f"{path.name} {what}")
            path.write_bytes(sound)


@suite.check(after=[check_example])
def check_none_left_over(make: Make) -> None:
    """A weight that the importer does not know is refused, or kept for whoever builds the model."""
    import torch

    with _checkpoint(make) as folder:
        files = _files(folder)
        weights = len(make().read(folder).weights)
        for path, content in _contents(files):
            sound = path.read_bytes()
            for state in _states(content):
                state["unknown_to_the_importer.weight"] = torch.zeros(3)
                torch.save(content, path)
                del state["unknown_to_the_importer.weight"]
                try:
                    found = len(make().read(folder).weights)
                except DataError:
                    continue
                require(found > weights, f"{path.name}: a weight that it does not know is lost")
            path.write_bytes(sound)


@suite.check(after=[check_none_left_over])
def check_values_exact(make: Make) -> None:
    """Weights keep every digit of the file."""
    import torch

    with _checkpoint(make) as folder:
        for path, content in _contents(_files(folder)):
            read = []
            for value in (1.0, 1.0001):
                for state in _states(content):
                    floats = {n: t for n, t in state.items() if t.dtype == torch.float32}
                    state.update({name: t.fill_(value) for name, t in floats.items()})
                torch.save(content, path)
                try:
                    read.append(_described(make().read(folder))["weights"])
                except DataError:
                    break  # it knows what it reads
            if len(read) == 2 and list(_states(content)):
                require(read[0] != read[1], f"{path.name}: 1 and 1.0001 are read as one weight")


def _contents(files: list[Path]) -> Iterator[tuple[Path, Any]]:
    """Yield those files that PyTorch wrote, and what they contain."""
    import torch

    for path in files:
        try:
            content = torch.load(path, weights_only=True, map_location="cpu")
        except (pickle.UnpicklingError, RuntimeError, ValueError, LookupError, EOFError):
            continue  # it is no file of PyTorch
        yield path, content


def _states(content: object) -> Iterator[dict[str, Any]]:
    """Yield the mappings of a checkpoint that hold tensors only."""
    import torch

    if isinstance(content, dict) and content:
        if all(isinstance(value, torch.Tensor) for value in content.values()):
            yield content
        for value in content.values():
            yield from _states(value)


class _Touch:
    """An object whose pickle creates a file when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._mark,)


@suite.check(after=[check_example])
def check_no_code_is_run(make: Make) -> None:
    """A pickle that contains code is refused, and the code is not run."""
    import torch

    with _checkpoint(make) as folder:
        mark = folder.parent / "code was run"
        for path in _files(folder):
            sound = path.read_bytes()
            # PyTorch warns of newer protocols, which is not a fault of the importer.
            path.write_bytes(pickle.dumps({"weight": _Touch(mark)}, protocol=2))
            _read_or_refused(make, folder, f"{path.name} as a pickle with code")
            torch.save({"weight": _Touch(mark)}, path)
            _read_or_refused(make, folder, f"{path.name} as a checkpoint with code")
            require(not mark.exists(), f"reading {path.name} ran the code in it")
            path.write_bytes(sound)


@suite.answers(after=[check_same_again])
def _answers(make: Make) -> dict[str, Any]:
    with _checkpoint(make) as folder:
        return _described(make().read(folder))
