"""A client of OpenAI-compatible endpoints that keeps every answer."""

from __future__ import annotations

import asyncio
import base64
import functools
import importlib.util
import io
import ipaddress
import json
import os
import re
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from fsf_vlm._store import Answer, AnswerStore, InvalidAnswer, checked_answer
from fsframework.errors import install_hint
from fsframework.interfaces import DataError, OptionError, check_above, check_at_least
from fsframework.values import UInt8Array, digest_of

__all__ = ["EXTERNAL", "Answer", "AnswerStore", "Client", "Message", "Request"]

EXTERNAL = {
    "url": "images and the key are sent to that address",
    "key_from": "that variable of the environment is sent as the key",
}
"""What the options of an endpoint do outside of the machine; see ``Configurable.external``."""

_USUAL_KEY = "OPENAI_API_KEY"
_VENDOR = "api.openai.com"
"""The host that ``OPENAI_API_KEY`` and the other variables of the library are meant for."""
_HEADERS = {
    *("accept", "accept-encoding", "authorization", "connection"),
    *("content-length", "content-type", "host", "user-agent"),
    "x-stainless-raw-response",  # the library's own: it asks for the response with its headers
}
"""Headers that any other host gets: none that the library takes from the environment."""
_MOST_ADDRESS = 2048
_MOST_BYTES = 1 << 24
"""Size of a response."""
_PLACEHOLDER = "none"
"""Sent as the key where there is none: servers of one's own do not check it."""
_SHORTEST_KEY = 8
_MOST_REASON = 300
_SMALL = 1 << 16
"""Bytes of an image whose PNG is kept."""
_SERVER_ERROR = 500
_PASSING = (408, 409, 429)
"""Statuses below 500 after which a request is sent again."""


@dataclass(frozen=True)
class Message:
    """One turn of a conversation.

    Args:
        role: ``system``, ``user`` or ``assistant``.
        content: texts and uint8 RGB images ``(H, W, 3)``, in the order in which they are shown.
    """

    role: str
    content: Sequence[str | UInt8Array]


@dataclass(frozen=True)
class Request:
    """A question to a model.

    Args:
        messages: the conversation so far.
        max_tokens: maximum number of tokens of the answer; ``None`` sends no limit.
        temperature: of sampling; 0 takes the likeliest token, ``None`` sends none.
        seed: of sampling; ``None`` sends none.
        top_logprobs: number of likeliest tokens whose log-probabilities are returned for each
            token of the answer; 0 asks for none.
        extra: further fields of the request, such as ``{"guided_choice": ["cat", "dog"]}`` of vLLM;
            JSON values.
    """

    messages: Sequence[Message]
    max_tokens: int | None = 64
    temperature: float | None = 0.0
    seed: int | None = None
    top_logprobs: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def digest(self) -> str:
        """Return a digest of everything in the request that decides its answer."""
        options = [self.max_tokens, self.temperature, self.seed, self.top_logprobs, self.extra]
        parts: list[str | UInt8Array] = [json.dumps(options, sort_keys=True)]
        for message in self.messages:
            parts += [message.role, str(len(message.content)), *message.content]
        return digest_of(*parts)


class Client:
    """Asks one model at one OpenAI-compatible endpoint, many requests at a time.

    A request that fails for a reason that may go away (429, 5xx, a lost connection, no answer
    within ``timeout``) is sent again after an exponentially growing delay with jitter, or after
    the time that the server asks for. Every answer is stored as soon as it arrives; what the store
    has is never asked again.

    Args:
        url: address of the endpoint, such as ``http://localhost:8000/v1``.
        model: name of the model at the endpoint.
        key_from: name of the environment variable with the key, which must be set. By default it is
            ``OPENAI_API_KEY`` if the address is its vendor's or a loopback address; any other
            address gets no key. The key is never written anywhere.
        concurrent: number of requests at a time.
        attempts: how often a request is sent before the work stops.
        timeout: seconds to wait for a whole answer.
        store: keeps the answers; ``None`` keeps none.
        prompt_price: price of a million tokens of requests in USD.
        completion_price: price of a million tokens of answers in USD.

    Raises:
        OptionError: an option is outside its range, or the package openai is not installed.
    """

    def __init__(  # noqa: PLR0913 - its parameters are the options
        self,
        url: str,
        *,
        model: str,
        key_from: str | None = None,
        concurrent: int = 8,
        attempts: int = 6,
        timeout: float = 60.0,
        store: AnswerStore | None,
        prompt_price: float = 0.0,
        completion_price: float = 0.0,
    ) -> None:
        self.url = _checked_url(url)
        if not model.strip():
            raise OptionError("model must be the name of a model at the endpoint, not empty")
        if key_from is not None and not key_from.isidentifier():
            raise OptionError(
                "key_from must be the name of the environment variable that contains the key, "
                "not the key itself"
            )
        if key_from is not None and not os.environ.get(key_from, "").strip():
            raise OptionError(f"key_from: the environment variable {key_from} is not set")
        check_at_least(1, concurrent=concurrent, attempts=attempts)
        check_above(0, timeout=timeout)
        check_at_least(0, prompt_price=prompt_price, completion_price=completion_price)
        if importlib.util.find_spec("openai") is None:
            raise OptionError(
                "an endpoint needs the package openai, which is not installed; "
                + install_hint("fsf-vlm[endpoint]")
            )
        self.model = model
        self.key_from = key_from
        self.concurrent = concurrent
        self.attempts = attempts
        self.timeout = timeout
        self.store = store
        self.offline = False
        """Whether a request whose answer is not kept is an error."""
        self._prices = prompt_price, completion_price
        self._used = dict.fromkeys(("requests", "retries", "prompt_tokens", "completion_tokens"), 0)

    @property
    def of_vendor(self) -> bool:
        """Whether the endpoint is that of the vendor of ``OPENAI_API_KEY``."""
        parts = urlsplit(self.url)
        return parts.scheme == "https" and f".{parts.hostname}".endswith(f".{_VENDOR}")

    @property
    def on_this_machine(self) -> bool:
        """Whether the endpoint is at a loopback address, which needs no network."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    @property
    def usage(self) -> Mapping[str, float]:
        """Requests answered, retries, tokens, and their cost in USD where there are prices.

        Answers from the store are not counted.
        """
        used = self._used
        return {**used, **self.cost_of(used["prompt_tokens"], used["completion_tokens"])}

    def cost_of(self, prompt_tokens: int, completion_tokens: int) -> dict[str, float]:
        """Return numbers of tokens with their cost in USD, if there are prices."""
        found: dict[str, float] = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
        }
        prompt, completion = self._prices
        if prompt or completion:
            found["cost"] = (prompt_tokens * prompt + completion_tokens * completion) / 1e6
        return found

    def work_offline(self, *, offline: bool) -> None:
        """Ask no other machine from now on, if ``offline``: only kept answers are given.

        Raises:
            DataError: there are none, so that every request would be an error.
        """
        self.offline = offline and not self.on_this_machine
        if self.offline and not (self.store is not None and len(self.store.refreshed())):
            raise DataError(
                f"{self.url}: no answer of {self.model} is kept, and network access is turned off"
            )

    def ask(self, requests: Sequence[Request]) -> list[Answer]:
        """Return the answers to some requests, in their order.

        Raises:
            DataError: the endpoint refuses a request, or one failed ``attempts`` times. All answers
                that arrived are kept.
        """
        digests = [request.digest() for request in requests]
        known: dict[str, Answer] = {}
        if self.store is not None:
            self.store.refreshed()
            known = {d: found for d in digests if (found := self.store.get(d)) is not None}
        # A request that occurs twice is asked once.
        left = {d: r for d, r in zip(digests, requests, strict=True) if d not in known}
        if left and self.offline:
            raise DataError(
                f"{self.url}: {len(left):,} of {len(requests):,} requests have no kept answer, and "
                "network access is turned off"
            )
        if left:
            _run(self._ask(left, known))
        return [known[digest] for digest in digests]

    async def _ask(self, left: Mapping[str, Request], known: dict[str, Answer]) -> None:
        """Add the answers to all requests to ``known``."""
        import openai

        key = self._key()
        before, failed = len(known), list[Exception]()
        waiting = iter(left.items())

        async def work(connection: openai.AsyncOpenAI) -> None:
            for digest, request in waiting:
                try:
                    answer = await self._one(connection, request, key)
                except (openai.OpenAIError, _NotTheProtocol) as error:
                    cause = error.__cause__
                    failed.append(cause if isinstance(cause, _NotTheProtocol) else error)
                else:
                    if self.store is not None:
                        self.store.add(digest, answer)
                    known[digest] = answer
                # The others finish what they have asked, which may have been paid for.
                if failed:
                    return

        async with openai.AsyncOpenAI(
            api_key=key or _PLACEHOLDER,
            base_url=self.url,
            max_retries=self.attempts - 1,
            timeout=self.timeout,
            http_client=self._transport(key or _PLACEHOLDER),
        ) as connection:
            await asyncio.gather(
                *(work(connection) for _ in range(min(self.concurrent, len(left))))
            )
        if failed:
            told = f"{len(known) - before:,} of {len(left):,} requests are answered"
            if self.store is not None:
                told = f"{len(self.store):,} answers of {self.model} there are kept"
                told += "; the same command continues there" if _may_pass(failed[0]) else ""
            # From None: the error of the library refers to the request and its headers.
            raise DataError(f"{self._reason(failed[0], key)}; {told}") from None

    @property
    def _key_name(self) -> str:
        """The environment variable with the key, empty if the endpoint gets none."""
        usual = _USUAL_KEY if self.of_vendor or self.on_this_machine else ""
        return usual if self.key_from is None else self.key_from

    def _key(self) -> str:
        name = self._key_name
        key = os.environ.get(name, "").strip() if name else ""
        if not (key.isascii() and key.isprintable()):
            raise DataError(
                f"the environment variable {name} must contain a key, without line ends "
                "and special characters"
            )
        return key

    def _transport(self, key: str) -> Any:
        """Return what sends requests: it follows no redirect and bounds time and size.

        The library alone follows redirects to any host, sends headers from the environment to
        every host, a key among them, and lets an answer that trickles in take any time and memory.
        """
        import httpx2
        import openai

        seconds, known_host = self.timeout, self.of_vendor or self.on_this_machine

        class BoundedClient(openai.DefaultAsyncHttpxClient):
            async def send(self, request: Any, **_: Any) -> Any:
                if not known_host:
                    for name in {*request.headers} - _HEADERS:
                        del request.headers[name]
                request.headers["authorization"] = f"Bearer {key}"
                request.headers["accept-encoding"] = "identity"
                try:
                    async with asyncio.timeout(seconds):
                        return await self._read(request)
                except TimeoutError:
                    raise httpx2.ReadTimeout("", request=request) from None

            async def _read(self, request: Any) -> Any:
                response = await super().send(request, stream=True, follow_redirects=False)
                body, headers = bytearray(), response.headers
                try:
                    async for part in response.aiter_raw():
                        body += part
                        if len(body) > _MOST_BYTES:
                            raise _NotTheProtocol(f"it is larger than {_MOST_BYTES:,} bytes")
                finally:
                    await response.aclose()
                if headers.get("content-encoding", "identity").lower() != "identity":
                    raise _NotTheProtocol("it is compressed, which was not asked for")
                headers.pop("transfer-encoding", None)
                return httpx2.Response(
                    response.status_code, headers=headers, content=bytes(body), request=request
                )

        # A proxy of the environment must not get what is meant for this machine.
        return BoundedClient(timeout=seconds, trust_env=not self.on_this_machine)

    async def _one(self, connection: Any, request: Request, key: str) -> Answer:
        # Images are encoded while others are on their way.
        body = await asyncio.to_thread(_body, request)
        raw = await connection.chat.completions.with_raw_response.create(model=self.model, **body)
        try:
            reply = raw.parse()
            choice, usage = reply.choices[0], reply.usage
            content = choice.message.content or ""
            tokens = (usage.prompt_tokens, usage.completion_tokens) if usage else (0, 0)
            logprobs = (choice.logprobs and choice.logprobs.content) or ()
            top = tuple({t.token: t.logprob for t in token.top_logprobs} for token in logprobs)
            answer = checked_answer(Answer(content, *tokens, top))
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise _NotTheProtocol(error if isinstance(error, InvalidAnswer) else "") from None
        self._used["requests"] += 1
        self._used["retries"] += raw.retries_taken
        self._used["prompt_tokens"] += tokens[0]
        self._used["completion_tokens"] += tokens[1]
        # A server that repeats a key is no reason to keep it.
        said = content.replace(key, "***") if len(key) >= _SHORTEST_KEY else content
        return replace(answer, text=said)

    def _reason(self, error: Exception, key: str) -> str:
        """Return why the endpoint cannot be used, in one line that never contains the key."""
        import openai

        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        lasting = f"{self.url}: a request failed {times}; at last "
        if isinstance(error, _NotTheProtocol):
            why = f": {_line(str(error), key)}" if str(error) else ""
            return f"{self.url}: the answer is not one of an OpenAI-compatible endpoint{why}"
        if isinstance(error, openai.APITimeoutError):
            return f"{lasting}there was no answer within {self.timeout:g} seconds"
        if isinstance(error, openai.APIConnectionError):
            return f"{lasting}there was no connection ({_line(str(error.__cause__ or error), key)})"
        if not isinstance(error, openai.APIStatusError):
            return f"{self.url}: {_line(str(error), key)}"
        said, status = _line(_said(error), key), error.status_code
        if _may_pass(error):
            return f"{lasting}the endpoint answered {status} ({said})"
        if 300 <= status < 400:
            place = _line(error.response.headers.get("location", "nowhere"), key)
            return (
                f"{self.url}: the endpoint redirects to {place}, and redirects are not followed; "
                "give the address that answers as url"
            )
        if status in (401, 403):
            why = f"the endpoint refused the key in {self._key_name}"
            if not self._key_name:
                why = (
                    "the endpoint needs a key: name the variable that contains it with key_from "
                    f"({_USUAL_KEY} is sent to its vendor and to this machine only)"
                )
            elif not key:
                why = f"the endpoint needs a key: set {self._key_name}"
            return f"{self.url}: {why} ({status}: {said})"
        return f"{self.url}: the endpoint refused a request to {self.model} ({status}: {said})"


def _checked_url(url: str) -> str:
    host = r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?"
    # What two readers could take for two hosts is the address of none.
    sound = re.fullmatch(rf"https?://([^\s/@?#\\]*@)?{host}(/[!-~]*)?([?#][!-~]*)?", url)
    if not sound or len(url) > _MOST_ADDRESS or not _has_port(url):
        raise OptionError(
            f"url must be the address of an endpoint, such as http://localhost:8000/v1, not {url!r}"
        )
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise OptionError(
            "url must contain neither a password nor a query, because it is written into records; "
            "put the key into the environment variable that key_from names"
        )
    return url.rstrip("/")


def _has_port(url: str) -> bool:
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


class _NotTheProtocol(Exception):
    """The server sent something else than an answer."""


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, also where an event loop runs, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()


def _body(request: Request) -> dict[str, Any]:
    """Return the arguments of the library's call; options that are ``None`` are not sent."""
    messages = [
        {"role": message.role, "content": [_part(one) for one in message.content]}
        for message in request.messages
    ]
    options = {
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
        "logprobs": True if request.top_logprobs else None,
        "top_logprobs": request.top_logprobs or None,
        "extra_body": dict(request.extra) or None,
    }
    return {"messages": messages, **{k: v for k, v in options.items() if v is not None}}


def _part(content: str | UInt8Array) -> dict[str, Any]:
    if isinstance(content, str):
        return {"type": "text", "text": content}
    # Photographs in full size are shown once, and would fill the memory.
    make = _data_url if content.nbytes <= _SMALL else _data_url.__wrapped__
    url = make(content.tobytes(), content.shape)
    return {"type": "image_url", "image_url": {"url": url}}


@functools.lru_cache(256)
def _data_url(pixels: bytes, shape: tuple[int, ...]) -> str:
    """Return an image as a PNG in a URL; in-context prompts show the same images many times."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.frombuffer(pixels, np.uint8).reshape(shape)).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _may_pass(error: Exception) -> bool:
    """Return whether a request that failed like this may succeed if it is sent again."""
    import openai

    if isinstance(error, openai.APIStatusError):
        return error.status_code in _PASSING or error.status_code >= _SERVER_ERROR
    return isinstance(error, openai.APIConnectionError)


def _said(error: Any) -> str:
    """Return what the server said about an error."""
    body = error.body
    if isinstance(body, dict):
        body = body.get("message") or body.get("detail") or body.get("error") or body
    return str(body or error.response.reason_phrase)


def _line(text: str, key: str) -> str:
    shown = text.replace(key, "***") if key else text
    return " ".join(shown.split())[:_MOST_REASON] or "no reason given"
