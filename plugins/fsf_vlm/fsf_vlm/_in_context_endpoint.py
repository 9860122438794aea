"""In-context learning by the answers of a model behind an endpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fsf_vlm._client import Client, Message, Request
from fsf_vlm._few_shot import INSTRUCTION, InContextMethod, Labels, Task
from fsf_vlm._store import AnswerStore
from fsframework.interfaces import Backbone, check_at_least

__all__ = ["InContextEndpoint"]


class InContextEndpoint(InContextMethod):
    """The support is a prompt of a model behind an OpenAI-compatible endpoint; its text is read.

    Source: Tsimpoukelli, Menick, Cabi, Eslami, Vinyals and Hill 2021, "Multimodal Few-Shot Learning
    with Frozen Language Models" (NeurIPS). They let a local model answer freely; here each image is
    a turn of the user, its label the answer, and the labels are listed before.

    An answer must contain exactly one of the labels, as whole words in any case; its way then
    scores 1 and the others 0. Any other answer scores 0 for all ways and is counted as
    ``unreadable``. Each query is one request; all queries of a call are asked concurrently, and
    answers are kept, so that a run that was interrupted asks nothing twice.

    Args:
        url: address of the endpoint, such as ``http://localhost:8000/v1``.
        model: name of the model at the endpoint.
        labels: ``names`` of the classes; ``letters``, which tell nothing about them; or
            ``permuted`` names: each way is shown, and scored, with the name of another way. A
            model that reads the support does as well as with ``names``, one that goes by the
            names does worse (after Min et al. 2022, who draw labels at random and keep the scores).
        instruction: begins the conversation; ``{labels}`` stands for the labels of the task.
        seed: of the orders of shots and labels, of letters and permutations. They are drawn from it
            and the content of the support.
        max_tokens: maximum number of tokens of an answer.
        temperature: of sampling; ``None`` sends none, as some models demand.
        key_from: name of the environment variable with the key; the key is never written.
        concurrent: number of requests at a time.
        attempts: how often a request is sent before the work stops.
        timeout: seconds to wait for an answer.
        prompt_price: price of a million tokens of requests in USD.
        completion_price: price of a million tokens of answers in USD.

    Raises:
        OptionError: an option is outside its range, or the package openai is not installed.
    """

    argument: ClassVar[str] = "url"
    reads_values = "it sends images to an endpoint"

    def __init__(  # noqa: PLR0913 - its parameters are the options
        self,
        *,
        url: str,
        model: str,
        labels: Labels = "names",
        instruction: str = INSTRUCTION,
        seed: int = 0,
        max_tokens: int = 16,
        temperature: float | None = 0.0,
        key_from: str = "OPENAI_API_KEY",
        concurrent: int = 8,
        attempts: int = 6,
        timeout: float = 60.0,
        prompt_price: float = 0.0,
        completion_price: float = 0.0,
    ) -> None:
        super().__init__(labels=labels, instruction=instruction, seed=seed)
        check_at_least(1, max_tokens=max_tokens)
        self.url = url
        self.model = model
        self.max_tokens = max_tokens
        self.temperature = temperature
        self.key_from = key_from
        self.concurrent = concurrent
        self.attempts = attempts
        self.timeout = timeout
        self.prompt_price = prompt_price
        self.completion_price = completion_price
        self._client = Client(
            url,
            model=model,
            key_from=key_from,
            concurrent=concurrent,
            attempts=attempts,
            timeout=timeout,
            store=AnswerStore(url, model),
            prompt_price=prompt_price,
            completion_price=completion_price,
        )
        self._unreadable: set[str] = set()

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Note how images are normalised, and whether only kept answers may be used."""
        super().build(item_shape, n_base_classes, backbone)
        self._client.offline = self.offline and not self._client.on_this_machine

    @property
    def usage(self) -> Mapping[str, float]:
        """What the client used, and how many queries got an answer that is no label."""
        return {**self._client.usage, "unreadable": len(self._unreadable)}

    def _answered(self, tasks: Sequence[Task], device: torch.device) -> list[Tensor]:
        requests = [
            Request(
                [Message(*turn) for turn in (*task.support, ("user", [query]))],
                max_tokens=self.max_tokens,
                temperature=self.temperature,
            )
            for task in tasks
            for query in task.query
        ]
        answers = iter(zip(requests, self._client.ask(requests), strict=True))
        found = []
        for task in tasks:
            scores = torch.zeros(len(task.query), len(task.labels), device=device)
            for row, (request, answer) in zip(scores, answers, strict=False):
                label = _label_in(answer.text, task.labels)
                if label is None:
                    self._unreadable.add(request.digest())
                row += torch.tensor([float(one == label) for one in task.labels], device=device)
            found.append(scores)
        return found


def _label_in(text: str, labels: Sequence[str]) -> str | None:
    """Return the only label in a text; ``None`` if there is none, or several.

    >>> _label_in("It is a Hot Dog.", ["dog", "hot dog"]), _label_in("cat or dog", ["cat", "dog"])
    ('hot dog', None)
    """
    by_text = {label.casefold(): label for label in labels}
    whole = text.strip().strip(".").casefold()
    if whole in by_text:
        return by_text[whole]
    # A label may be part of a longer one, which is tried first.
    longest = sorted(by_text, key=len, reverse=True)
    pattern = rf"(?<!\w)(?:{'|'.join(map(re.escape, longest))})(?!\w)"
    found = set(re.findall(pattern, text.casefold()))
    return by_text[found.pop()] if len(found) == 1 else None
