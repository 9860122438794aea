"""A detector, which finds words in images.

Try it: fsf run --detector my-detector
"""

from collections.abc import Sequence

from fsframework.interfaces import AttributeDetector
from fsframework.values import UInt8Array


class MyDetector(AttributeDetector):
    """Label an image as dark or bright."""

    # An option that changes words goes into `provenance`. Load a model in `prepare`, not before.

    def detect(self, images: Sequence[UInt8Array]) -> list[frozenset[str]]:
        """Return the words of each image, RGB ``(H, W, 3)``; sizes differ."""
        return [frozenset(["bright" if image.mean() > 127 else "dark"]) for image in images]
