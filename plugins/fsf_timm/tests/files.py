"""Files of weights for the tests of this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from fsf_timm import Timm
from fsframework.interfaces import DataError


class Opens:
    """Prints when it is unpickled."""

    def __reduce__(self) -> Any:
        return print, ("run on loading",)


def put_in_hub(cache: Path, model: str, tensors: dict[str, Any]) -> None:
    """Write weights as the hub's cache has them."""
    repository = cache / f"models--timm--{model}"
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    save_file(tensors, snapshot / "model.safetensors")


def refusal(model: str, *, offline: bool = True, **options: Any) -> str:
    """Return why weights are refused: one line, which starts with the model."""
    with pytest.raises(DataError) as caught:
        Timm(model=model, **options).load_pretrained(offline=offline)
    message = str(caught.value)
    assert message.startswith(f"timm:{model}: ")
    assert "\n" not in message
    return message
