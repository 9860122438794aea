"""Run the tutorials and keep what they show: ``python docs/make_tutorials.py [NAME...]``."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from sitepages.tutorials import FOLDER, NEEDED, outputs


def main(names: list[str]) -> None:
    """Keep what the cells of the tutorials print, and the figures that they draw."""
    os.environ["COLUMNS"] = "88"
    for path in sorted(FOLDER.glob("*.py")):
        needed = NEEDED.get(path.stem, {})
        if (names and path.stem not in names) or not all(f.exists() for f in needed.values()):
            continue
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            os.environ.update(FSF_RUNS="runs", FSF_CACHE="cache")
            for name, file in needed.items():
                Path(name).symlink_to(file)
            kept = {cell.key: printed for cell, printed in outputs(path)}
            for picture in Path().glob("*.svg"):
                shutil.copy(picture, FOLDER)
            for picture in Path().glob("*.png"):
                Image.open(picture).quantize(128).save(FOLDER / picture, optimize=True)
        text = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
        (FOLDER / "shown" / f"{path.stem}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
