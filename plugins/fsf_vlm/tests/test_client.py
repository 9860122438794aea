from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsf_vlm import Answer, AnswerStore, Client, Message, Request
from fsframework.interfaces import DataError, OptionError
from fsframework.testing import toy_images
from fsframework.values import UInt8Array
from tests.chat_server import ChatServer, image_of, say

KEY = "sk-a-key-that-nobody-may-see"


@pytest.fixture
def images() -> Sequence[UInt8Array]:
    return toy_images(40, 8, 9)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def questions(images: Sequence[UInt8Array], **options: Any) -> list[Request]:
    return [Request([Message("user", [image, "What is it?"])], **options) for image in images]


def client(server: ChatServer | str, folder: Path | None = None, **options: Any) -> Client:
    url = server if isinstance(server, str) else server.url
    store = None if folder is None else AnswerStore(url, "tiny", folder)
    return Client(url, model="tiny", store=store, **options)


def texts(answers: Sequence[Answer]) -> list[str]:
    return [answer.text for answer in answers]


class TestAnswers:
    def test_are_in_order_and_asked_once_though_requests_fail(
        self, images: Sequence[UInt8Array], tmp_path: Path
    ) -> None:
        with ChatServer(failing=0.3, delay=0.01) as server:
            asked = questions(images)
            one = client(server, tmp_path, concurrent=6)
            found = one.ask([*asked, asked[0]])
            assert texts(found[:-1]) == [say(body) for body in in_order(server, images)]
            assert found[-1] == found[0]
            assert set(server.answered.values()) == {1}
            assert len(server.answered) == 40
            failures = sum(server.attempts.values()) - 40
            assert 4 <= failures == one.usage["retries"]
            assert 1 < server.most_busy <= 6
            assert one.usage["requests"] == 40
            assert one.usage["prompt_tokens"] == 40 * 103
            again = client(server, tmp_path)
            assert again.ask(asked[::-1]) == found[-2::-1]
            assert again.usage == dict.fromkeys(one.usage, 0)
            assert one.ask(asked) == found[:-1]
            assert set(server.answered.values()) == {1}

    def test_without_a_store_are_asked_again(self, images: Sequence[UInt8Array]) -> None:
        with ChatServer() as server:
            one = client(server)
            assert one.ask(questions(images[:2])) == one.ask(questions(images[:2]))
            assert set(server.answered.values()) == {2}
            assert one.ask([]) == []

    def test_belong_to_everything_that_decides_them(
        self, images: Sequence[UInt8Array], tmp_path: Path
    ) -> None:
        first = [images[0], "What is it?"]
        other = np.ascontiguousarray(images[0].transpose(1, 0, 2))
        variants = [
            Request([Message("user", first)]),
            Request([Message("user", first[::-1])]),
            Request([Message("system", first)]),
            Request([Message("user", first), Message("user", [])]),
            Request([Message("user", [images[0], "What", " is it?"])]),
            Request([Message("user", [other, "What is it?"])]),
            Request([Message("user", first)], max_tokens=3),
            Request([Message("user", first)], max_tokens=None),
            Request([Message("user", first)], temperature=0.5),
            Request([Message("user", first)], seed=1),
            Request([Message("user", first)], top_logprobs=2),
            Request([Message("user", first)], extra={"guided_choice": ["a", "b"]}),
        ]
        with ChatServer() as server:
            client(server, tmp_path, concurrent=1).ask(variants)
            assert len(server.bodies) == len(server.answered) == len(variants)
            sent = [{k: v for k, v in b.items() if k != "messages"} for b in server.bodies]
            plain = {"model": "tiny", "max_tokens": 64, "temperature": 0.0}
            assert sent[0] == plain
            assert sent[6] == {**plain, "max_tokens": 3}
            assert sent[7] == {"model": "tiny", "temperature": 0.0}
            assert sent[9] == {**plain, "seed": 1}
            assert sent[10] == {**plain, "logprobs": True, "top_logprobs": 2}
            assert sent[11] == {**plain, "guided_choice": ["a", "b"]}
            another = Client(
                server.url, model="big", store=AnswerStore(server.url, "big", tmp_path)
            )
            another.ask(variants[:1])
            assert len(server.answered) == len(variants) + 1

    def test_tell_the_probabilities_of_tokens(self, tmp_path: Path) -> None:
        def choice(body: dict[str, Any]) -> dict[str, Any]:
            top = [
                {"token": "cat", "logprob": -0.1, "bytes": None},
                {"token": "dog", "logprob": -2.5, "bytes": None},
            ]
            message = {"role": "assistant", "content": "cat"}
            logprobs = {"content": [{**top[0], "top_logprobs": top}], "refusal": None}
            return {
                "index": 0, "finish_reason": "stop", "message": message, "logprobs": logprobs
            }  # fmt: skip

        with ChatServer(choice) as server:
            for _ in range(2):
                (found,) = client(server, tmp_path).ask(
                    [Request([Message("user", ["?"])], top_logprobs=2)]
                )
                assert found == Answer("cat", 1, 1, ({"cat": -0.1, "dog": -2.5},))
            assert len(server.bodies) == 1

    def test_can_be_had_where_an_event_loop_runs(self) -> None:
        async def notebook() -> list[Answer]:
            return client(server).ask([Request([Message("user", ["?"])])])

        with ChatServer() as server:
            assert texts(asyncio.run(notebook())) == [say(server.bodies[0])]

    def test_cost_what_the_prices_say(self, images: Sequence[UInt8Array]) -> None:
        with ChatServer() as server:
            one = client(server, prompt_price=2.0, completion_price=10.0)
            one.ask(questions(images[:3]))
            assert one.usage["cost"] == pytest.approx((3 * 103 * 2 + 3 * 7 * 10) / 1e6)


def in_order(server: ChatServer, images: Sequence[UInt8Array]) -> Iterator[dict[str, Any]]:
    """Yield the body of each image's request, found by the pixels of its PNG."""
    bodies = {image_of(body).tobytes(): body for body in server.bodies}
    for image in images:
        yield bodies[image.tobytes()]


class TestFailures:
    @pytest.mark.parametrize("status", [400, 401, 403, 404])
    def test_that_stay_stop_at_once_and_name_the_reason(
        self, images: Sequence[UInt8Array], tmp_path: Path, status: int
    ) -> None:
        def refuse(body: dict[str, Any]) -> dict[str, Any]:
            return {"status": status, "error": {"message": f"wrong:\n {KEY}"}}

        with ChatServer(refuse) as server:
            with pytest.raises(DataError) as caught:
                client(server, tmp_path, concurrent=3).ask(questions(images))
            assert len(server.bodies) <= 3
        said = "".join(traceback.format_exception(caught.value))
        assert str(caught.value).startswith(f"{server.url}: the endpoint refused")
        assert f"({status}: wrong: ***)" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert KEY not in said
        if status == 401:
            assert "the key in OPENAI_API_KEY" in str(caught.value)

    def test_a_missing_key_is_named(
        self, images: Sequence[UInt8Array], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("OPENAI_API_KEY")
        with ChatServer(key=KEY) as server:
            with pytest.raises(DataError, match="needs a key: set OPENAI_API_KEY") as caught:
                client(server).ask(questions(images[:1]))
            assert "continues" not in str(caught.value)
            with pytest.raises(OptionError, match="MY_KEY is not set"):
                client(server, key_from="MY_KEY")
            monkeypatch.setenv("MY_KEY", KEY)
            assert client(server, key_from="MY_KEY").ask(questions(images[:1]))

    @pytest.mark.parametrize("key", ["sk-one\nsk-two", "sk-\u00e9t\u00e9", "sk-\x7f"])
    def test_a_key_that_cannot_be_sent_is_not_shown(
        self, images: Sequence[UInt8Array], monkeypatch: pytest.MonkeyPatch, key: str
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", key)
        with pytest.raises(DataError, match="OPENAI_API_KEY must contain a key") as caught:
            client("http://localhost:8000/v1").ask(questions(images[:1]))
        assert "sk-" not in "".join(traceback.format_exception(caught.value))

    def test_that_last_stop_the_work_and_the_same_call_continues(
        self, images: Sequence[UInt8Array], tmp_path: Path
    ) -> None:
        broken = threading.Event()
        broken.set()

        def sometimes(body: dict[str, Any]) -> str | dict[str, Any]:
            if broken.is_set() and len(server.answered) >= 11:
                return {"status": 503, "error": {"message": "too many"}}
            return say(body)

        with ChatServer(sometimes) as server:
            with pytest.raises(DataError) as caught:
                client(server, tmp_path, attempts=1, concurrent=4).ask(questions(images))
            kept = len(AnswerStore(server.url, "tiny", tmp_path).refreshed())
            assert 11 <= kept <= 14
            assert "answered 503 (too many); " in str(caught.value)
            assert f"{kept} answers of tiny there are kept" in str(caught.value)
            broken.clear()
            one = client(server, tmp_path)
            assert texts(one.ask(questions(images))) == [
                say(body) for body in in_order(server, images)
            ]
            assert one.usage["requests"] == 40 - kept
            assert len(server.answered) == 40

    def test_of_a_server_that_is_not_there(self, images: Sequence[UInt8Array]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(DataError, match=f"{url}: .*there was no connection .*0 of 1 requests"):
            client(url, attempts=1).ask(questions(images[:1]))

    def test_of_a_server_that_does_not_answer(self, images: Sequence[UInt8Array]) -> None:
        with (
            ChatServer(delay=0.3) as server,
            pytest.raises(DataError, match=r"no answer within 0\.05 seconds"),
        ):
            client(server, attempts=1, timeout=0.05).ask(questions(images[:1]))

    @pytest.mark.parametrize(
        "reply",
        [
            *({"hello": 1}, {"choices": []}, {"choices": {}}, {"choices": {"0": {}}}, ["a"]),
            *("page", b"<html>", b"", b"[" * 100_000),
        ],
    )
    def test_of_a_server_with_another_protocol(
        self, images: Sequence[UInt8Array], reply: Any
    ) -> None:
        with ChatServer(lambda body: {"raw": reply}) as server:
            with pytest.raises(DataError, match="is not one of an OpenAI-compatible endpoint"):
                client(server).ask(questions(images[:1]))
            assert len(server.bodies) == 1

    def test_without_a_network_only_kept_answers_are_given(
        self, images: Sequence[UInt8Array], tmp_path: Path
    ) -> None:
        with ChatServer() as server:
            one = client(server, tmp_path)
            found = one.ask(questions(images[:3]))
            one.offline = True
            assert one.ask(questions(images[:3])) == found
            with pytest.raises(DataError, match="1 of 4 requests have no kept answer"):
                one.ask(questions(images[:4]))
            assert len(server.bodies) == 3


ENVIRONMENT = {
    "OPENAI_ORG_ID": "org-of-mine",
    "OPENAI_PROJECT_ID": "project-of-mine",
    "OPENAI_CUSTOM_HEADERS": "X-Mine: header-of-mine\nAuthorization: Bearer header-of-mine",
    "OPENAI_ADMIN_KEY": "admin-of-mine",
    "MY_KEY": "sk-another-of-mine",
}
QUESTION = [Request([Message("user", ["?"])])]


class TestSecrets:
    """What leaves the machine, seen by a server in the place of the one that is named."""

    @pytest.fixture(autouse=True)
    def _environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in ENVIRONMENT.items():
            monkeypatch.setenv(name, value)

    @pytest.mark.parametrize(
        "url",
        [
            "http://elsewhere.invalid/v1",
            "http://api.openai.com.elsewhere.invalid/v1",
            "http://xapi.openai.com/v1",
            "http://api.openai.com/v1",  # anyone on the way could read it
            "http://192.0.2.1/v1",
        ],
    )
    @pytest.mark.parametrize("key_from", [None, "MY_KEY"])
    def test_another_host_gets_only_what_is_named(
        self, monkeypatch: pytest.MonkeyPatch, url: str, key_from: str | None
    ) -> None:
        with ChatServer() as server:
            monkeypatch.setenv("http_proxy", server.url.removesuffix("/v1"))
            monkeypatch.delenv("no_proxy", raising=False)
            client(url, key_from=key_from, attempts=1).ask(QUESTION)
            [headers] = server.headers
        sent = " ".join(headers.values())
        assert "of-mine" not in sent.replace("sk-another-of-mine", "")
        assert ("sk-another-of-mine" in sent) == (key_from is not None)
        assert KEY not in sent

    def test_this_machine_gets_the_usual_key_and_no_proxy_does(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with ChatServer() as proxy, ChatServer() as server:
            monkeypatch.setenv("http_proxy", proxy.url)
            monkeypatch.delenv("no_proxy", raising=False)
            client(server).ask(QUESTION)
            assert server.headers[0]["authorization"] == f"Bearer {KEY}"
            assert not proxy.bodies

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_a_redirect_is_not_followed(self, tmp_path: Path, status: int) -> None:
        with ChatServer() as other:
            away = {"status": status, "raw": b"", "headers": {"Location": f"{other.url}/x"}}
            with (
                ChatServer(lambda body: away) as server,
                pytest.raises(DataError, match="redirects are not followed"),
            ):
                client(server, tmp_path).ask(QUESTION)
            assert len(server.bodies) == 1
            assert not other.bodies
        assert not len(AnswerStore(server.url, "tiny", tmp_path).refreshed())

    @pytest.mark.parametrize(
        "url",
        [
            *("http://evil.invalid\\.api.openai.com/v1", "http://a b/v1", "https://ä.invalid/"),
            *("http://localhost:99999/v1", "http://localhost:abc/v1", "http://[::1", " http://a/"),
            *("http://127.0.0.1:80\\.far.invalid/v1", f"http://a/{'x' * 3000}"),
        ],
    )
    def test_an_address_that_two_readers_may_read_differently_is_refused(self, url: str) -> None:
        with pytest.raises(OptionError, match="url must be the address"):
            client(url)


def counted(**usage: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": "cat"}}
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
    return {"raw": {**body, "choices": [choice], "usage": usage}}


class TestBounds:
    @pytest.mark.parametrize("count", [-1, 1e400, 2**60, 1.5])
    def test_counts_that_cannot_be_are_refused(self, tmp_path: Path, count: Any) -> None:
        reply = counted(prompt_tokens=count, completion_tokens=1, total_tokens=1)
        with (
            ChatServer(lambda body: reply) as server,
            pytest.raises(DataError, match="prompt_tokens must be a whole number"),
        ):
            client(server, tmp_path).ask(QUESTION)
        assert not len(AnswerStore(server.url, "tiny", tmp_path).refreshed())

    def test_a_response_that_trickles_in_ends_at_the_timeout(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            thread = threading.Thread(target=trickle, args=(listening,), daemon=True)
            thread.start()
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
            with pytest.raises(DataError, match=r"no answer within 0\.3 seconds"):
                client(url, attempts=1, timeout=0.3).ask(QUESTION)
            thread.join()

    def test_a_response_of_any_size_is_refused(self) -> None:
        with (
            ChatServer(lambda body: {"raw": b" " * (1 << 24) + b"{}"}) as server,
            pytest.raises(DataError, match="larger than 16,777,216 bytes"),
        ):
            client(server, attempts=1).ask(QUESTION)


def trickle(listening: socket.socket) -> None:
    """Send a byte of an answer without end every 50 ms, until the client goes."""
    connection, _ = listening.accept()
    with connection:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        try:
            while True:
                connection.sendall(b" ")
                time.sleep(0.05)
        except OSError:
            return


class TestInterruptions:
    def test_ctrl_c_keeps_what_is_done(self, images: Sequence[UInt8Array], tmp_path: Path) -> None:
        def interrupt(body: dict[str, Any]) -> str:
            if len(server.answered) == 20 and len(server.bodies) < 40:
                os.kill(os.getpid(), signal.SIGINT)
            return say(body)

        with ChatServer(interrupt) as server:
            with pytest.raises(KeyboardInterrupt):
                client(server, tmp_path, concurrent=2).ask(questions(images))
            kept = len(AnswerStore(server.url, "tiny", tmp_path).refreshed())
            assert 17 <= kept < 40
            one = client(server, tmp_path)
            assert len(one.ask(questions(images))) == 40
            assert one.usage["requests"] == 40 - kept

    def test_a_server_that_is_killed_and_started_again_loses_nothing(
        self, images: Sequence[UInt8Array], tmp_path: Path
    ) -> None:
        log, folder = tmp_path / "log", tmp_path / "answers"
        first = started(0, log)
        url = first.stdout.readline().decode().strip()
        port = int(url.split(":")[2].split("/")[0])
        found: list[Answer] = []
        one = client(url, folder, concurrent=4)
        work = threading.Thread(target=lambda: found.extend(one.ask(questions(images))))
        work.start()
        while not log.exists() or len(log.read_text().split()) < 10:
            assert work.is_alive()
        stop(first)
        second = started(port, log)
        work.join()
        stop(second)
        asked = Counter(log.read_text().split())
        assert len(found) == one.usage["requests"] == len(asked) == 40
        # At most the requests that were on their way when it was killed.
        assert sum(asked.values()) - 40 <= 4
        offline = client(url, folder)
        offline.offline = True
        assert offline.ask(questions(images)) == found


def started(port: int, log: Path) -> Any:
    file = Path(sys.modules[ChatServer.__module__].__file__ or "")
    arguments = [str(port), str(log), "--delay", "0.01", "--failing", "0.1"]
    return subprocess.Popen([sys.executable, "-S", file, *arguments], stdout=subprocess.PIPE)


def stop(process: Any) -> None:
    process.kill()
    process.wait()
    process.stdout.close()


class TestStore:
    def test_many_at_once_share_a_folder(self, tmp_path: Path) -> None:
        stores = [AnswerStore("http://a/v1/", "tiny", tmp_path) for _ in range(3)]
        for number in range(30):
            stores[number % 3].add(f"{number}", Answer(f"says {number}\n'\u2028", number, 1))
        for store in [*stores, AnswerStore("http://a/v1", "tiny", tmp_path)]:
            assert len(store.refreshed()) == 30
            assert store.get("7") == Answer("says 7\n'\u2028", 7, 1)
        assert len(AnswerStore("http://a/v1", "big", tmp_path).refreshed()) == 0
        assert stores[0].damaged == 0

    def test_keeps_whatever_a_server_may_say(self, tmp_path: Path) -> None:
        said = Answer("half of a pair \ud800, \u2028 and \x00", 1, 2, ({"\ud83d": -float("inf")},))
        AnswerStore("http://a/v1", "tiny", tmp_path).add("x", said)
        assert AnswerStore("http://a/v1", "tiny", tmp_path).refreshed().get("x") == said

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda line: line.replace(b"four", b"five"),
            lambda line: line[:-5] + b"\n",
            lambda line: b"\xff\x00\n",
            lambda line: b"\n",
        ],
    )
    def test_a_damaged_line_is_noticed(
        self, tmp_path: Path, spoil: Callable[[bytes], bytes]
    ) -> None:
        store = AnswerStore("http://a/v1", "tiny", tmp_path)
        for word in ("three", "four", "five"):
            store.add(word, Answer(word))
        (file,) = store.folder.glob("*.jsonl")
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join([lines[0], spoil(lines[1]), lines[2]]))
        again = AnswerStore("http://a/v1", "tiny", tmp_path).refreshed()
        assert again.get("four") is None
        assert {one.text for one in again} == {"three", "five"}
        assert again.damaged == 1

    def test_a_line_that_was_cut_off_is_asked_again(self, tmp_path: Path) -> None:
        store = AnswerStore("http://a/v1", "tiny", tmp_path)
        store.add("one", Answer("one"))
        store.add("two", Answer("two"))
        (file,) = store.folder.glob("*.jsonl")
        file.write_bytes(file.read_bytes()[:-3])
        again = AnswerStore("http://a/v1", "tiny", tmp_path).refreshed()
        assert len(again) == 1
        again.add("two", Answer("two"))
        assert len(AnswerStore("http://a/v1", "tiny", tmp_path).refreshed()) == 2

    def test_goes_on_where_its_folder_was_removed(self, tmp_path: Path) -> None:
        import shutil

        store = AnswerStore("http://a/v1", "tiny", tmp_path)
        store.add("one", Answer("one"))
        shutil.rmtree(store.folder)
        store.add("two", Answer("two"))
        assert len(AnswerStore("http://a/v1", "tiny", tmp_path).refreshed()) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "localhost:8000"}, "url must be the address of an endpoint"),
        ({"url": "http://me:secret@localhost/v1"}, "url must contain neither a password"),
        ({"url": "http://localhost/v1?key=secret"}, "url must contain neither a password"),
        ({"model": " "}, "model must be the name"),
        ({"key_from": "sk-123"}, "key_from must be the name of the environment variable"),
        ({"concurrent": 0}, "concurrent must be at least 1, got 0"),
        ({"attempts": 0}, "attempts must be at least 1, got 0"),
        ({"timeout": 0.0}, "timeout must be above 0, got 0.0"),
        ({"prompt_price": -1.0}, r"prompt_price must be at least 0, got -1\.0"),
    ],
)
def test_options_out_of_range(options: dict[str, object], message: str) -> None:
    given = {"url": "http://localhost:8000/v1", "model": "tiny", "store": None, **options}
    with pytest.raises(OptionError, match=message) as caught:
        Client(**given)  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)
    assert "sk-123" not in str(caught.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(OptionError, match=r"pip install .*fsf.vlm\[endpoint\]"):
        client("http://localhost:8000/v1")
