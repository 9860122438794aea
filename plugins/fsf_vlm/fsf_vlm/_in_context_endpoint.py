"""In-context learning by the answers of a model behind an endpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fsf_vlm._client import EXTERNAL, Client, Message, Request
from fsf_vlm._few_shot import INSTRUCTION, InContextMethod, Labels, Task
from fsf_vlm._store import Answer, AnswerStore
from fsframework.interfaces import Backbone, DataError, check_at_least

__all__ = ["InContextEndpoint"]

_TRIAL = 50
"""Answers of which at least one must name a label."""
_MOST_TEXT = 80


class InContextEndpoint(InContextMethod):
    """The support is a prompt of a model behind an OpenAI-compatible endpoint; its text is read.

    Source: Tsimpoukelli, Menick, Cabi, Eslami, Vinyals and Hill 2021, "Multimodal Few-Shot Learning
    with Frozen Language Models" (NeurIPS). They let a local model answer freely; here each image is
    a turn of the user, its label the answer, and the labels are listed before.

    An answer must contain exactly one of the labels, as whole words in any case; its way then
    scores 1 and the others 0. Any other answer scores 0 for all ways and is counted as
    ``unreadable``; where the first 50 or more answers all are, the work stops. Each query is one
    request; all queries of a call are asked concurrently, and answers are kept, so that a run that
    was interrupted asks nothing twice.

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
        key_from: name of the environment variable with the key, which is never written; by default
            ``OPENAI_API_KEY`` if the address is its vendor's or this machine's, else none.
        concurrent: number of requests at a time.
        attempts: how often a request is sent before the work stops.
        timeout: seconds to wait for an answer.
        prompt_price: price of a million tokens of requests in USD.
        completion_price: price of a million tokens of answers in USD.

    Raises:
        OptionError: an option is outside its range, or the package openai is not installed.
    """

    argument: ClassVar[str] = "url"
    external: ClassVar[Mapping[str, str]] = EXTERNAL
    reads_values = "it sends images to an endpoint"
    keeps_answers = True

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
        key_from: str | None = None,
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
        self._answers: dict[str, Answer] = {}
        self._unreadable: dict[str, str] = {}

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Note how images are normalised, and whether only kept answers may be used.

        Raises:
            DataError: only these may be used, and there are none.
        """
        super().build(item_shape, n_base_classes, backbone)
        self._client.work_offline(offline=self.offline)

    @property
    def usage(self) -> Mapping[str, float]:
        """What its scores rest on, and what was sent for them now.

        ``requests``, tokens and ``cost`` count each answer once, kept ones included; ``unreadable``
        how many of these are no label. Only ``requests_now`` and ``retries`` count what was sent.
        """
        prompt = sum(one.prompt_tokens for one in self._answers.values())
        completion = sum(one.completion_tokens for one in self._answers.values())
        sent = self._client.usage
        return {
            "requests": len(self._answers),
            "requests_now": sent["requests"],
            "retries": sent["retries"],
            **self._client.cost_of(prompt, completion),
            "unreadable": len(self._unreadable),
        }

    @property
    def remarks(self) -> Sequence[str]:
        """Which model answered, whether labels were permuted, and how many answers are no label."""
        found = [f"the answers are those of {self.model} at {self._client.url}", *super().remarks]
        if self._unreadable:
            found.append(
                f"{len(self._unreadable):,} of {len(self._answers):,} answers name no label, or "
                f"several, such as {self._example()!r}; they score all classes equally"
            )
        return found

    def _example(self) -> str:
        return next(iter(self._unreadable.values()))[:_MOST_TEXT]

    def _check_some_read(self) -> None:
        """Check that not all answers are unreadable, before more are paid for.

        Raises:
            DataError: they are, and they are at least 50.
        """
        if len(self._unreadable) == len(self._answers) >= _TRIAL:
            raise DataError(
                f"{self._client.url}: none of the first {len(self._answers):,} answers of "
                f"{self.model} names exactly one label, such as {self._example()!r}, so nothing "
                "more is asked; change the instruction or max_tokens of the method, or the model"
            )

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
                digest = request.digest()
                self._answers[digest] = answer
                if label is None:
                    self._unreadable[digest] = answer.text
                row += torch.tensor([float(one == label) for one in task.labels], device=device)
            found.append(scores)
        self._check_some_read()
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
