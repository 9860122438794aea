"""Captions and tags by a model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

from fsf_vlm._client import EXTERNAL, Client, Message, Request
from fsf_vlm._prompts import default_selector, prompt_text
from fsf_vlm._store import AnswerStore
from fsframework.interfaces import Captioner, WordSelector, check_at_least
from fsframework.values import UInt8Array

__all__ = ["Endpoint"]


class Endpoint(Captioner):
    """Captions or tags by a vision-language model behind an OpenAI-compatible endpoint.

    Each image is one request with the prompt, at temperature 0; answers are kept, so that no
    image is sent twice to the same model with the same prompt. See ``Client``.

    Args:
        url: address of the endpoint, such as ``http://localhost:8000/v1``.
        model: name of the model at the endpoint.
        prompt: what is asked about each image; ``captions`` and ``tags`` are names of questions
            for one sentence and for a list, the latter for the selector ``tags``.
        max_tokens: maximum number of tokens in a caption.
        temperature: of sampling; ``None`` sends none, as some models demand.
        key_from: name of the environment variable with the key, which is never written; by default
            ``OPENAI_API_KEY`` if the address is its vendor's or this machine's, else none.
        concurrent: number of requests at a time; there are never more than ``--batch-size``.
        attempts: how often a request is sent before the work stops.
        timeout: seconds to wait for an answer.
        selector: selects words from captions; by default ``SpacySelector()``.

    Raises:
        OptionError: an option is outside its range, or the package openai is not installed.
    """

    argument: ClassVar[str] = "url"
    external: ClassVar[Mapping[str, str]] = EXTERNAL
    usual_components: ClassVar[Mapping[str, str]] = {"selector": "spacy"}

    def __init__(  # noqa: PLR0913 - its parameters are the options
        self,
        *,
        url: str,
        model: str,
        prompt: str = "captions",
        max_tokens: int = 64,
        temperature: float | None = 0.0,
        key_from: str | None = None,
        concurrent: int = 8,
        attempts: int = 6,
        timeout: float = 60.0,
        selector: WordSelector | None = None,
    ) -> None:
        self.url = url
        self.model = model
        check_at_least(1, max_tokens=max_tokens)
        self.prompt = prompt_text(prompt)
        self.max_tokens = max_tokens
        self.temperature = temperature
        self.key_from = key_from
        self.concurrent = concurrent
        self.attempts = attempts
        self.timeout = timeout
        self.selector = selector if selector is not None else default_selector()
        self._store = AnswerStore(url, model)
        self._client = Client(
            url,
            model=model,
            key_from=key_from,
            concurrent=concurrent,
            attempts=attempts,
            timeout=timeout,
            store=self._store,
        )

    def prepare(self, *, device: str = "cpu", offline: bool = False) -> None:
        """Read the answers that are kept; with ``offline``, no other machine is asked.

        Raises:
            DataError: no other machine may be asked, and no answer is kept.
        """
        del device
        self._store.refreshed()
        self._client.work_offline(offline=offline)

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
        return [answer.text.strip() for answer in self._client.ask(asked)]

    def provenance(self) -> Mapping[str, str]:
        """Return endpoint, model, prompt, generation settings and selector."""
        settings = {"max_tokens": self.max_tokens, "temperature": self.temperature}
        return {
            "endpoint": self._client.url,
            "model": self.model,
            "prompt": self.prompt,
            "generation": json.dumps(settings, sort_keys=True),
            **{f"selector.{name}": text for name, text in self.selector.provenance().items()},
        }

    def notes(self, keys: Sequence[str], others: Sequence[str] = ()) -> list[str]:
        """Return how many kept answers are damaged, if any."""
        del keys, others
        if not (damaged := self._store.damaged):
            return []
        return [
            f"{self._store.folder}: {damaged:,} of the kept answers are damaged; "
            "what they answered is asked again"
        ]
