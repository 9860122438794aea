"""A server that speaks the protocol of OpenAI's chat completions, and fails as real ones do.

``python tests/chat_server.py PORT LOG`` runs it as a process; it needs the standard library only.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

__all__ = ["ChatServer", "content", "image_of", "say"]

WORDS = ("red", "blue", "green", "grass", "snow", "sand", "ball", "dog", "tree", "boat")
FAULTS = ("500", "429", "dropped")


def digest(body: dict[str, Any]) -> str:
    """Return what identifies a request."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def content(body: dict[str, Any]) -> list[str]:
    """Return texts and data URLs of images of all messages, in order."""
    parts = [part for message in body["messages"] for part in message["content"]]
    return [part["text"] if part["type"] == "text" else part["image_url"]["url"] for part in parts]


def image_of(body: dict[str, Any]) -> Any:
    """Return the last image of a request, uint8 RGB ``(H, W, 3)``."""
    import numpy as np
    from PIL import Image

    found = [part for part in content(body) if part.startswith("data:image/png;base64,")]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(found[-1].partition(",")[2]))))


def say(body: dict[str, Any]) -> str:
    """Return a sentence that only the request decides."""
    number = int(digest(body)[:12], 16)
    return f"a {WORDS[number % 10]} thing and a {WORDS[number // 10 % 10]} one"


class ChatServer:
    """A server in threads of this process.

    Args:
        answer: returns the text for the body of a request; or the whole choice, with a
            ``message``; or another body, with its ``status`` and ``headers``; or any value or
            bytes, as ``raw``.
        failing: share of requests whose first attempt fails: 500, 429 with ``Retry-After``, or a
            dropped connection.
        delay: seconds that every answer takes.
        port: 0 for a free one.
        log: a file that lists the digests of answered requests, kept when the process is killed.
        key: refuse every other key with 401, repeating the one that was sent.
    """

    def __init__(
        self,
        answer: Callable[[dict[str, Any]], str | dict[str, Any]] = say,
        *,
        failing: float = 0.0,
        delay: float = 0.0,
        port: int = 0,
        log: Path | None = None,
        key: str | None = None,
    ) -> None:
        self.answer, self.failing, self.delay, self.key = answer, failing, delay, key
        self.log = log
        self.attempts: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.busy = self.most_busy = 0
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"chat": self})
        self._http = _Http(("127.0.0.1", port), handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> ChatServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Say nothing where a client has gone."""


class _Handler(BaseHTTPRequestHandler):
    chat: ChatServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:
        chat = self.chat
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = digest(body)
        sent = self.headers["Authorization"].removeprefix("Bearer ")
        if chat.key is not None and sent != chat.key:
            self._send(401, {"error": {"message": f"no such key: {sent}"}})
            return
        with chat.lock:
            chat.attempts[known] += 1
            chat.bodies.append(body)
            chat.headers.append({name.lower(): value for name, value in self.headers.items()})
            first = chat.attempts[known] == 1
            chat.busy += 1
            chat.most_busy = max(chat.most_busy, chat.busy)
        try:
            time.sleep(chat.delay)
            if first and int(known[:8], 16) % 1000 < chat.failing * 1000:
                self._fail(FAULTS[int(known[8:16], 16) % 3])
                return
            reply = self._reply(body)
            with chat.lock:
                chat.answered[known] += reply[0] == 200
                if chat.log is not None:
                    with chat.log.open("a") as file:
                        file.write(f"{known}\n")
        finally:
            with chat.lock:
                chat.busy -= 1
        self._send(*reply)

    def _reply(self, body: dict[str, Any]) -> tuple[Any, ...]:
        answer = self.chat.answer(body)
        if isinstance(answer, str):
            message = {"role": "assistant", "content": answer}
            answer = {"index": 0, "finish_reason": "stop", "message": message}
        elif "message" not in answer:
            return answer.get("status", 200), answer.get("raw", answer), answer.get("headers")
        said = str(answer["message"]["content"])
        texts = [part for part in content(body) if not part.startswith("data:")]
        tokens = sum(len(text.split()) for text in texts) + 100 * (len(content(body)) - len(texts))
        usage = {"prompt_tokens": tokens, "completion_tokens": len(said.split())}
        usage["total_tokens"] = sum(usage.values())
        head = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"]}
        return 200, {**head, "choices": [answer], "usage": usage}

    def _fail(self, fault: str) -> None:
        if fault == "dropped":
            self.close_connection = True
            self.connection.close()
        else:
            self._send(int(fault), {"error": {"message": "busy"}}, {"retry-after-ms": "5"})

    def _send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(raw)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("log", type=Path)
    parser.add_argument("--failing", type=float, default=0.0)
    parser.add_argument("--delay", type=float, default=0.0)
    given = vars(parser.parse_args())
    with ChatServer(**given) as server:
        print(server.url, flush=True)
        threading.Event().wait()
