"""What models are asked about an image."""

from __future__ import annotations

from fsframework.interfaces import WordSelector

__all__ = ["CAPTION", "default_selector"]

CAPTION = (
    "Describe the image in one sentence. Name the objects, their colours and the surroundings."
)


def default_selector() -> WordSelector:
    """Return the selector of captions that is used unless another is chosen."""
    from fsf_detectors.selection import SpacySelector

    return SpacySelector()
