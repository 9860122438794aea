"""The detectors ``endpoint`` and ``chat``, from images to tables, and ``fsf answers``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fsf_detectors.tags import TagSelector
from fsf_vlm import Answer, AnswerStore, Chat, Endpoint, Message, Request, kept_answers
from fsframework.interfaces import DataError, OptionError
from fsframework.testing import parametrize_with_checks
from fsframework.values import AttributeTable
from tests.chat_server import ChatServer, content, image_of, say
from tests.conftest import Fsf
from tests.tiny_models import EveryWord, scenes, tiny_model, tiny_path

KEY = "sk-a-key-that-nobody-may-see"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer() as found:
        _AT["url"] = found.url
        yield found


_AT = {"url": "http://localhost:8000/v1"}
"""Address of the server, once there is one; tests are collected before."""


def _endpoint() -> Endpoint:
    return Endpoint(url=_AT["url"], model="tiny", selector=EveryWord())


def _chat() -> Chat:
    return Chat(model=str(tiny_path("llava")), max_tokens=8, selector=TagSelector())


@pytest.mark.slow
@parametrize_with_checks([_chat])
def test_chat_conforms(make: Any, check: Any) -> None:
    tiny_model("llava")
    check(make)


@parametrize_with_checks([_endpoint])
def test_endpoint_conforms(make: Any, check: Any, server: ChatServer) -> None:
    check(make)


def tags_of_scenes() -> tuple[list[np.ndarray], list[str], Callable[[dict[str, Any]], str]]:
    """Return images, their captions, and a server's answer that lists what an image shows."""
    images, captions = scenes(12, seed=3)
    known = {image.tobytes(): text for image, text in zip(images, captions, strict=True)}

    def answer(body: dict[str, Any]) -> str:
        words = [w for w in known[image_of(body).tobytes()].split() if w not in ("a", "on", "the")]
        return "Tags: " + ", ".join(words).title() + "."

    return images, captions, answer


class TestEndpoint:
    def test_asks_for_captions_or_tags_or_what_it_is_told(self, server: ChatServer) -> None:
        images = scenes(2)[0]
        for prompt, expected in (
            ("captions", "one sentence"),
            ("tags", "separated by commas"),
            ("Is it a ball?", "Is it a ball?"),
        ):
            detector = Endpoint(url=server.url, model="tiny", prompt=prompt, selector=EveryWord())
            start = len(server.bodies)
            found = detector.describe(images)
            assert sorted(found) == sorted(say(body) for body in server.bodies[start:])
            assert all(expected in content(body)[1] for body in server.bodies[start:])
            assert expected in detector.provenance()["prompt"]

    def test_words_are_those_of_the_selector(self) -> None:
        images, captions, answer = tags_of_scenes()
        with ChatServer(answer) as server:
            detector = Endpoint(url=server.url, model="tiny", prompt="tags", selector=TagSelector())
            words = detector.detect(images)
        assert words == [frozenset(c.split()) - {"a", "on", "the"} for c in captions]

    def test_says_which_kept_answers_are_damaged(self, server: ChatServer) -> None:
        detector, images = _endpoint(), scenes(3, seed=8)[0]
        found = detector.describe(images)
        (file,) = AnswerStore(server.url, "tiny").folder.glob("*.jsonl")
        file.write_bytes(file.read_bytes().replace(b"thing", b"think", 1))
        again = _endpoint()
        again.prepare()
        assert "1 of the kept answers are damaged" in again.notes([])[0]
        before = len(server.bodies)
        assert again.describe(images) == found
        assert len(server.bodies) == before + 1

    def test_without_a_network_gives_what_is_kept(self) -> None:
        images, url = scenes(3, seed=9)[0], "https://models.example/v1"
        detector = Endpoint(url=url, model="tiny", prompt="What?", selector=EveryWord())
        store = AnswerStore(url, "tiny")
        for number, image in enumerate(images[:2]):
            store.add(Request([Message("user", [image, "What?"])]).digest(), Answer(f"{number}"))
        detector.prepare(offline=True)
        assert detector.describe(images[:2]) == ["0", "1"]
        with pytest.raises(DataError, match="network access is turned off"):
            detector.describe(images)

    def test_on_this_machine_needs_no_network(self, server: ChatServer) -> None:
        detector = _endpoint()
        detector.prepare(offline=True)
        assert detector.describe(scenes(1, seed=10)[0])

    @pytest.mark.parametrize(
        ("options", "message"),
        [({"prompt": " "}, "prompt must be"), ({"max_tokens": 0}, "max_tokens must be at least 1")],
    )
    def test_options_out_of_range(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(OptionError, match=message):
            Endpoint(url="http://localhost/v1", model="tiny", **options)


class TestChat:
    def test_answers_the_prompt_in_the_model_s_template(self) -> None:
        folder, images = tiny_model("llava"), scenes(4, seed=2)[0]
        from transformers import LlavaForConditionalGeneration, LlavaProcessor

        chat = Chat(model=str(folder), prompt="What is it?", selector=EveryWord(), max_tokens=9)
        processor = LlavaProcessor.from_pretrained(folder)
        model = LlavaForConditionalGeneration.from_pretrained(folder)
        for said, image in zip(chat.describe(images), images, strict=True):
            inputs = processor(
                images=Image.fromarray(image),
                text="USER: <image> What is it? ASSISTANT:",
                return_tensors="pt",
            )
            tokens = model.generate(**inputs, num_beams=1, max_new_tokens=8, do_sample=False)
            text = processor.tokenizer.decode(
                tokens[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True
            )
            assert said.split() == text.split()

    def test_asks_for_captions_unless_told_otherwise(self) -> None:
        assert "one sentence" in _chat().prompt
        assert "commas" in Chat(model="a/b", prompt="tags", selector=TagSelector()).prompt


def test_from_images_to_tables_that_are_compared_with_the_truth(
    fsf: Fsf, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images, captions, answer = tags_of_scenes()
    rows = ["path,label,split,ground"]
    for number, (image, caption) in enumerate(zip(images, captions, strict=True)):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,{number % 2},test,{caption.split()[-1]}")
    (tmp_path / "images.csv").write_text("\n".join(rows))
    data = ("--dataset", "csv:images.csv", "--json")
    extract = ("attributes", "extract")
    for library in ("openai", "httpx", "httpx2"):
        caplog.set_level("DEBUG", logger=library)
    said = []
    with ChatServer(answer, failing=0.2, key=KEY) as server:
        asked = ("--detector", f"endpoint:{server.url}", "-o", "detector.model=tiny",
                 "-o", "detector.prompt=tags", "-o", "detector.selector=tags")  # fmt: skip
        done = fsf(*extract, "tags.parquet", *asked, *data)
        assert done.returncode == 0, done.stderr
        said += [done.stdout, done.stderr]
        assert set(server.answered.values()) == {1}
        assert len(server.answered) == 12
        other = fsf(*extract, "again.parquet", *asked, "-o", "detector.concurrent=2", *data)
        assert other.returncode == 0, other.stderr
        assert len(server.answered) == sum(server.answered.values()) == 12
    table = AttributeTable.load(tmp_path / "tags.parquet")
    assert table.provenance["model"] == "tiny"
    assert table.provenance["selector.selector"] == "tags"
    chat = ("--detector", f"chat:{tiny_model('llava')}", "-o", "detector.max_tokens=8",
            "-o", "detector.prompt=tags", "-o", "detector.selector=tags", "--offline")  # fmt: skip
    done = fsf(*extract, "chat.parquet", *chat, *data)
    assert done.returncode == 0, done.stderr
    told = fsf("attributes", "truth", "tags.parquet", "--truth", "csv:images.csv", "--column",
               "ground", "--seeds", "0", "--json")  # fmt: skip
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert found["recall"]["count"] == found["recall"]["of"] == 12
    assert found["false_alarms"]["count"] == 0
    agreed = fsf("attributes", "agree", "tags.parquet", "chat.parquet", "--json")
    assert agreed.returncode == 0, agreed.stderr
    assert json.loads(agreed.stdout)["images"] == 12
    kept = fsf("answers", "list", "--json")
    (listed,) = json.loads(kept.stdout)
    assert (listed["url"], listed["model"], listed["answers"]) == (server.url, "tiny", 12)
    # The server is gone: its refusals are tested elsewhere, here every trace of the key.
    gone = fsf(*extract, "more.parquet", *asked, "-o", "detector.model=other",
               "-o", "detector.attempts=1", *data)  # fmt: skip
    assert gone.returncode == 2
    assert gone.stderr.count("\n") <= 3
    assert "0 answers of other there are kept" in gone.stderr
    said += [gone.stdout, gone.stderr, caplog.text]
    assert not any(KEY in text for text in said)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) > 30
    assert not any(KEY.encode() in file.read_bytes() for file in files)


class TestAnswersCommand:
    def test_lists_and_removes(self, fsf: Fsf) -> None:
        assert fsf("answers", "list").stdout == "no answers are kept\n"
        with ChatServer() as server:
            for model, count in (("a", 3), ("b", 2)):
                Endpoint(url=server.url, model=model, selector=EveryWord()).describe(
                    scenes(count)[0]
                )
        first, second = kept_answers()
        assert (first.model, first.answers, second.answers) == ("a", 3, 2)
        assert first.completion_tokens == 21
        assert first.prompt_tokens > 300
        shown = fsf("answers", "list", server.url).stdout
        assert server.url in shown
        assert str(first.prompt_tokens) in shown
        assert "nothing is removed" in fsf("answers", "remove", "--dry-run").stdout
        assert len(kept_answers(server.url + "/")) == 2
        done = fsf("answers", "remove", server.url, "a", "--yes")
        assert done.stdout.endswith("removed 3 answers\n")
        assert [one.model for one in kept_answers()] == ["b"]
        assert fsf("answers", "remove", server.url, "a").stdout == "nothing to remove\n"
