"""A renderer, which draws figures into files with an ending of its own.

Try it: fsf figure arms runs --output arms.json
"""

import json
from pathlib import Path
from typing import Literal

from fsf_reports.interfaces import Renderer
from fsf_reports.values import FigureDeclaration
from fsframework.errors import DataError


class MyRenderer(Renderer):
    """The declared values as JSON, for drawing with another program."""

    formats = ("json",)  # change these: no other renderer may have them

    def draw(self, figure: FigureDeclaration, path: Path, *, columns: Literal[1, 2] = 1) -> None:
        """Draw everything that the figure declares into a new file; a missing value is a gap."""
        if not any(point.y for point in figure.points):
            raise DataError(f"{figure.name}: no value was measured")
        declared = {**figure.to_json(), "columns": columns}
        path.write_text(json.dumps(declared), encoding="utf-8")
