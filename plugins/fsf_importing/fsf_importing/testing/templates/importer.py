"""An importer, which reads a checkpoint of other code.

Try it: fsf import my-importer FOLDER
"""

from pathlib import Path

import torch
from fsf_importing.interfaces import CheckpointImporter, ImportedModel
from fsframework.errors import DataError


class MyImporter(CheckpointImporter):
    """Read my laboratory's ProtoNets: `protonet.pt`, a state dict of a Conv64F."""

    def read(self, folder: Path) -> ImportedModel:
        """Return the names of method and backbone, and every weight by its name here."""
        path = folder / "protonet.pt"
        try:
            # No code in a file may run: keep `weights_only`.
            state = torch.load(path, weights_only=True, map_location="cpu")
            weights = {name.replace("encoder.", "backbone.blocks."): w for name, w in state.items()}
        except Exception as error:
            raise DataError(f"{path}: cannot be read as weights ({error})") from None
        return ImportedModel("my laboratory's ProtoNet", "protonet", "conv64f", weights)

    def example(self, folder: Path) -> None:
        """Write a small checkpoint for the checks."""
        torch.save({"encoder.0.conv.bias": torch.zeros(64)}, folder / "protonet.pt")
