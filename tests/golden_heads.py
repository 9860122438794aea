"""Cases of the reference heads: features and parameters in, scores and losses out.

They are found by their files' names, ``METHOD_WAYway_SHOTshot.npz`` in ``$FSF_GOLDEN/heads``, so
that further ones can be added without a change here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

GOLDEN = Path(
    os.environ.get("FSF_GOLDEN") or Path(__file__).resolve().parents[2] / "shared" / "golden"
)
_NAME = re.compile(r"(?P<method>\w+)_(?P<way>\d+)way_(?P<shot>\d+)shot\w*")

TOLERANCE = 1e-3


@dataclass(frozen=True)
class Case:
    """One file.

    Args:
        name: of the file, without its suffix.
        method: the reference's name of the method.
        way: classes of the task; ``shot`` support images per class.
        arrays: by name.
    """

    name: str
    method: str
    way: int
    shot: int
    arrays: Mapping[str, np.ndarray]

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """Return an array as a tensor."""
        found = torch.from_numpy(np.array(self.arrays[name]))
        return found if dtype is None else found.to(dtype)

    def number(self, name: str) -> float:
        """Return an array without dimensions as a number."""
        return float(self.arrays[name])

    def text(self, name: str) -> str:
        """Return an array without dimensions as a text."""
        return str(self.arrays[name])

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Parameters and buffers by the reference's names."""
        prefix = "param."
        return {
            key.removeprefix(prefix): self.tensor(key)
            for key in self.arrays
            if key.startswith(prefix)
        }


def files(*methods: str) -> list[Path]:
    """Return the files of some methods, or of all if none is named, sorted by name."""
    found = sorted((GOLDEN / "heads").glob("*.npz"))
    named = [(path, _NAME.fullmatch(path.stem)) for path in found]
    return [p for p, match in named if match and (not methods or match["method"] in methods)]


def golden_heads(*methods: str) -> pytest.MarkDecorator:
    """Parametrise a test's argument ``path`` with the files of some methods."""
    found = files(*methods)
    where = GOLDEN / "heads"
    absent = pytest.mark.skip(reason=f"no case of {', '.join(methods)} in {where}")
    chosen = [pytest.param(path, id=path.stem) for path in found]
    return pytest.mark.parametrize("path", chosen or [pytest.param(where, marks=absent)])


def read_case(path: Path) -> Case:
    """Read a file."""
    match = _NAME.fullmatch(path.stem)
    assert match is not None, path
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return Case(path.stem, match["method"], int(match["way"]), int(match["shot"]), arrays)


def load(module: nn.Module, case: Case, layers: Mapping[str, str]) -> None:
    """Give a module all parameters and buffers from a case, except those of its backbone.

    Args:
        layers: how the names of the reference start, and how those of the module do instead;
            parameters with another start are left out.
    """
    own = module.state_dict()
    # Steps are counted by BatchNorm; the cases do not have them.
    expected = (name for name in own if not name.endswith("num_batches_tracked"))
    missing = {name for name in expected if not name.startswith("backbone.")}
    for name, value in case.parameters.items():
        start = max((s for s in layers if name.startswith(s)), key=len, default=None)
        ours = None if start is None else layers[start] + name.removeprefix(start)
        if ours in own:
            own[ours] = value.reshape(own[ours].shape)
            missing.discard(ours)
    assert not missing
    module.load_state_dict(own)


def spread(scores: Tensor) -> float:
    """Return the mean over queries of largest minus smallest score; ``(n, way)``."""
    return float((scores.amax(dim=-1) - scores.amin(dim=-1)).mean())


def assert_scores(found: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> None:
    """Compare scores ``(n, way)`` within a share of their spread, and their labels."""
    assert found.shape == expected.shape
    found, expected = found.detach().double(), expected.double()
    limit = tolerance * spread(expected)
    worst = float((found - expected).abs().max())
    assert worst <= limit, f"scores differ by {worst:.2e}, allowed are {limit:.2e}"
    two = expected.topk(2, dim=-1).values
    clear = (two[..., 0] - two[..., 1]) > 2 * limit
    assert torch.equal(found.argmax(-1)[clear], expected.argmax(-1)[clear])


def assert_loss(
    found: Tensor | float, expected: Tensor | float, tolerance: float = TOLERANCE
) -> None:
    """Compare two numbers within a relative tolerance."""
    assert float(found) == pytest.approx(float(expected), rel=tolerance)


def assert_array(found: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> None:
    """Compare two arrays within a share of the largest value."""
    assert found.shape == expected.shape
    worst = float((found.detach().double() - expected.double()).abs().max())
    assert worst <= tolerance * max(float(expected.abs().max()), 1e-12), worst
