"""What models are asked about an image."""

from __future__ import annotations

from fsframework.interfaces import OptionError, WordSelector

__all__ = ["default_selector", "prompt_text"]

_PROMPTS = {
    "captions": (
        "Describe this image in one sentence that names the objects, their colours and materials, "
        "and the surroundings."
    ),
    "tags": (
        "List up to twelve tags for what is visible in this image: objects, colours, materials, "
        "surroundings. Answer with the tags only, separated by commas."
    ),
}


def prompt_text(prompt: str) -> str:
    """Return the text of a prompt: ``captions`` and ``tags`` are names of texts.

    Raises:
        OptionError: it is empty.
    """
    if not prompt.strip():
        raise OptionError("prompt must be captions, tags or a question about the image, not empty")
    return _PROMPTS.get(prompt, prompt)


def default_selector() -> WordSelector:
    """Return the selector of captions that is used unless another is chosen."""
    from fsf_detectors.selection import SpacySelector

    return SpacySelector()
