"""A small published data set as a plugin file, for tests of what is added and what is noted."""

from __future__ import annotations

from pathlib import Path

SOURCE = '''
"""A published toy."""
from pathlib import Path

import numpy as np

from fsframework.interfaces import About, DataError, Dataset


class ToySet(Dataset):
    """A toy."""

    name = "toy-set"
    argument = "path"
    about = About(
        title="The Toy Set",
        licence="CC0",
        source="example.org/toy",
        citation="Toy et al. 2020",
        counts={"train": (6, 120), "test": (6, 120)},
        layouts={"folders": "toy/\\n└── c00/"},
        images_from=("imagenet-1k",),
    )
    native_size = 16

    def __init__(self, *, path: Path, per_class: int = 20) -> None:
        if not (Path(path) / "toy").is_dir():
            picture = "folders:\\n  toy/\\n  └── c00/"
            raise DataError(f"{path}: no layout of toy-set fits what is there", picture=picture)
        self.class_names = tuple(f"c{i:02d}" for i in range(12))
        self.labels = np.repeat(np.arange(12), per_class)
        self.keys = tuple(map(str, range(len(self.labels))))
        self.splits = {"train": self.class_names[:6], "test": self.class_names[6:]}
        self.metadata = {}
        self.fingerprint = f"toy {per_class}"

    def image(self, index):
        noise = np.random.default_rng(index).integers(0, 15, (16, 16, 3))
        return (20 * self.labels[index] + noise).astype(np.uint8)
'''


def write_toy(folder: Path) -> tuple[Path, Path]:
    """Write the plugin and a place where its data lie; return both paths."""
    plugin = folder / "toy_plugin.py"
    plugin.write_text(SOURCE, encoding="utf-8")
    (folder / "place" / "toy").mkdir(parents=True)
    return plugin, folder / "place"
