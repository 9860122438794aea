"""Captions and tags by a model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from fsf_vlm._client import Client, Message, Request
from fsf_vlm._prompts import CAPTION, default_selector
from fsf_vlm._store import AnswerStore
from fsframework.interfaces import Captioner, OptionError, WordSelector
from fsframework.values import UInt8Array

__all__ = ["Endpoint"]


class Endpoint(Captioner):
    """Captions or tags by a vision-language model behind an OpenAI-compatible endpoint.

    Each image is one request with the prompt, at temperature 0; answers are kept, so that no
    image is sent twice to the same model with the same prompt. See ``Client``.

    Args:
        url: address of the endpoint, such as ``http://localhost:8000/v1``.
        model: name of the model at the endpoint.
        prompt: what is asked about each image; its answer is the caption.
        max_tokens: maximum number of tokens in a caption.
        temperature: of sampling; ``None`` sends none, as some models demand.
        key_from: name of the environment variable with the key; the key is never written.
        concurrent: number of requests at a time; there are never more than ``--batch-size``.
        attempts: how often a request is sent before the work stops.
        timeout: seconds to wait for an answer.
        selector: selects words from captions; by default ``SpacySelector()``.

    Raises:
        OptionError: an option is outside its range, or the package openai is not installed.
    """

    argument: ClassVar[str] = "url"
    usual_components: ClassVar[Mapping[str, str]] = {"selector": "spacy"}

    def __init__(  # noqa: PLR0913 - its parameters are the options
        self,
        *,
        url: str,
        model: str,
        prompt: str = CAPTION,
        max_tokens: int = 64,
        temperature: float | None = 0.0,
        key_from: str = "OPENAI_API_KEY",
        concurrent: int = 8,
        attempts: int = 6,
        timeout: float = 60.0,
        selector: WordSelector | None = None,
    ) -> None:
        if not prompt.strip():
            raise OptionError("prompt must say what is asked about each image, not be empty")
        self.url = url
        self.model = model
        self.prompt = prompt
        self.max_tokens = max_tokens
        self.temperature = temperature
        self.selector = selector if selector is not None else default_selector()
        self._client = Client(
            url,
            model=model,
            key_from=key_from,
            concurrent=concurrent,
            attempts=attempts,
            timeout=timeout,
            store=AnswerStore(url, model),
        )

    def describe(self, images: Sequence[UInt8Array]) -> list[str]:
        """Return a caption for each uint8 RGB image ``(H, W, 3)``, of any size."""
        asked = [
            Request(
                [Message("user", [image, self.prompt])],
                max_tokens=self.max_tokens,
                temperature=self.temperature,
            )
            for image in images
        ]
        return [" ".join(answer.text.split()) for answer in self._client.ask(asked)]
