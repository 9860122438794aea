"""Each check of importers rejects the one broken component made for it, and nothing else does."""

import pickle

import pytest
import torch

from fsf_importing.interfaces import CheckpointImporter, ImportedModel
from fsframework.errors import DataError
from fsframework.testing import check_component, checks_for, parametrize_with_checks
from tests.misdeclared import changed, hashed, misdeclared


class Single(CheckpointImporter):
    """A state dict in one file."""

    file = "single.pt"

    def example(self, folder):
        torch.save({"conv.weight": torch.arange(6.0)}, folder / self.file)

    def load(self, path):
        try:
            return torch.load(path, weights_only=True, map_location="cpu")
        except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
            raise DataError(f"{path}: {error}") from None

    def read(self, folder):
        state = self.load(folder / self.file)
        weights = {f"backbone.{name}": tensor for name, tensor in state.items()}
        return ImportedModel("a test", "protonet", "conv64f", weights)


class WithoutExample(Single):
    """It is tested only on folders without a checkpoint."""

    def example(self, folder):
        raise NotImplementedError


class Positional(Single):
    """A positional option."""

    def __init__(self, file: str = "single.pt"):
        self.file = file


class Doubled(Single):
    """An option that is stored as another value."""

    def __init__(self, *, file: str = "single"):
        self.file = file + ".pt"


class Crashing(Single):
    """A missing file raises an error of the operating system."""

    def read(self, folder):
        if not folder.is_dir():
            raise NotADirectoryError(folder)
        return super().read(folder)


class Undemanding(Single):
    """An empty folder gives a model without weights."""

    def read(self, folder):
        if folder.is_dir() and not (folder / self.file).exists():
            return ImportedModel("nothing", "protonet", "conv64f", {})
        return super().read(folder)


class Converting(Single):
    """It writes a file into the folder."""

    def read(self, folder):
        model = super().read(folder)
        torch.save(dict(model.weights), folder / "converted.pt")
        return model


class Confident(Single):
    """An empty file raises another error."""

    def load(self, path):
        if path.exists() and not path.stat().st_size:
            raise EOFError(path)
        return super().load(path)


class Trusting(Single):
    """It runs the code in a file."""

    def load(self, path):
        try:
            return torch.load(path, weights_only=False)
        except Exception as error:
            raise DataError(f"{path}: {error}") from None


class Filtering(Single):
    """It leaves out what it does not know."""

    def load(self, path):
        state = super().load(path)
        return {name: tensor for name, tensor in state.items() if name == "conv.weight"}


class HalfPrecise(Single):
    """Weights are rounded."""

    def load(self, path):
        return {name: tensor.half().float() for name, tensor in super().load(path).items()}


class Hashed(Single):
    """What it reads depends on the hashes of the process."""

    def load(self, path):
        return {name: tensor + hashed() for name, tensor in super().load(path).items()}


BROKEN = {
    "check_construction": object,
    "check_options_typed": Positional,
    "check_options_stored": Doubled,
    "check_summary": changed(Single, __doc__=None),
    **misdeclared(Single),
    "check_no_folder": Crashing,
    "check_no_checkpoint": Undemanding,
    "check_example": changed(
        Single,
        read=lambda self, folder: ImportedModel(
            "a test", "protonet", "conv64f", self.load(folder / self.file)
        ),
    ),
    "check_same_again": changed(
        Single,
        load=lambda self, path: {k: v + torch.rand(()) for k, v in Single.load(self, path).items()},
    ),
    "check_folder_untouched": Converting,
    "check_damage": Confident,
    "check_none_left_over": Filtering,
    "check_values_exact": HalfPrecise,
    "check_no_code_is_run": Trusting,
    "check_fresh_process": Hashed,
}


@parametrize_with_checks([Single, WithoutExample])
def test_a_sound_importer_passes(make, check):
    check(make)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", BROKEN)
def test_only_its_check_rejects(name):
    results = check_component(BROKEN[name], "importer")
    assert [result.name for result in results if not result.passed] == [name]


def test_every_check_has_its_broken_importer():
    assert list(BROKEN) == [check.__name__ for check in checks_for("importer")]
