"""In-context learning behind an endpoint: a server on loopback that fails, ends and comes back."""

from __future__ import annotations

import base64
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fsframework as fsf
from fsf_datasets.planted import Planted
from fsf_vlm import InContextEndpoint, Pixels
from fsframework.interfaces import DataError, Known, OptionError
from fsframework.testing import parametrize_with_checks
from tests.chat_server import ChatServer, content
from tests.toys import image_folder

SIDE = 16


@pytest.fixture(scope="module")
def data() -> Planted:
    return Planted(size=SIDE, n_per_class=12, strength=0.8)


@pytest.fixture(scope="module")
def known(data: Planted) -> dict[bytes, tuple[str, set[str]]]:
    """Return class name and words of every image, by its pixels."""
    captions = data.metadata["caption"]
    return {
        data.image(i).tobytes(): (data.class_names[data.labels[i]], set(captions[i].split()))
        for i in range(80 * 12, 100 * 12)
    }


def conversation(body: dict[str, Any]) -> tuple[list[Any], list[str], Any]:
    """Return the images of the support, their labels, and the image of the query."""
    images = [part for part in content(body) if part.startswith("data:")]
    labels = [
        message["content"][0]["text"]
        for message in body["messages"]
        if message["role"] == "assistant"
    ]
    pixels = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(image.partition(",")[2]))))
        for image in images
    ]
    return pixels[:-1], labels, pixels[-1]


def nearest(body: dict[str, Any]) -> str:
    """Answer with the label of the image of the support that is nearest."""
    support, labels, query = conversation(body)
    distances = [np.square(one - query.astype(float)).mean() for one in support]
    return labels[int(np.argmin(distances))]


OF_RUNS = ("backbone", "offline", "sampler", "statistics", "tasks")


def run(url: str, data: Planted, **given: Any) -> Any:
    options = {"backbone": "pixels", "sampler": "fewstab", "tasks": 6} | {
        name: given.pop(name) for name in OF_RUNS if name in given
    }
    return fsf.run(
        method={"name": "in-context-endpoint", "url": url, "model": "tiny", **given},
        dataset=data, image_size=SIDE, way=3, shot=1, queries=2, progress=False,
        **{name: value for name, value in options.items() if value is not None},
    )  # fmt: skip


@pytest.mark.slow
def test_who_knows_the_truth_is_always_right_and_pays(
    data: Planted, known: dict[bytes, tuple[str, set[str]]]
) -> None:
    def truth(body: dict[str, Any]) -> str:
        return f"It is {known[conversation(body)[2].tobytes()][0].upper()}."

    with ChatServer(truth) as server:
        right = run(server.url, data, prompt_price=2.0, completion_price=10.0)
    assert right.estimates["wacc-random"].value == right.estimates["wacc-biased"].value == 1
    usage = right.record.usage
    # Each of the images of a prompt counts 100 tokens, and so does each word.
    assert usage["requests"] == 2 * 6 * 6
    assert usage["unreadable"] == 0
    assert usage["completion_tokens"] == 3 * usage["requests"]
    assert usage["prompt_tokens"] > 400 * usage["requests"]
    cost = (2 * usage["prompt_tokens"] + 10 * usage["completion_tokens"]) / 1e6
    assert usage["cost"] == pytest.approx(cost)


def test_shown_permuted_names_who_goes_by_names_is_wrong_and_who_reads_is_right() -> None:
    names = ["cat", "dog", "owl"]
    support = torch.arange(3).view(1, 3, 1, 1, 1, 1).expand(-1, -1, 2, 3, SIDE, SIDE) / 3
    query = support[:, :, 0]

    def by_name(body: dict[str, Any]) -> str:
        return names[round(float(conversation(body)[2].mean()) / 85)]

    for answer, right in ((by_name, 0), (nearest, 1)):
        with ChatServer(answer) as server:
            method = built(server.url, labels="permuted")
            known = Known(names=method.embed_names(names)[None])
            found = method.scores_with(support, query, known)
        assert found[0].diagonal().tolist() == [right] * 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat", [1, 0, 0]),
        (" Hot DOG.\n", [0, 0, 1]),
        ("The label is: dog!", [0, 1, 0]),
        ("a hot dog", [0, 0, 1]),
        ("cats", [0, 0, 0]),
        ("a cat or a dog", [0, 0, 0]),
        ("", [0, 0, 0]),
    ],
)
def test_an_answer_is_one_of_the_labels_or_counted(text: str, expected: list[int]) -> None:
    with ChatServer(lambda body: text) as server:
        method = built(server.url, labels="names")
        names = method.embed_names(["cat", "dog", "hot dog"])[None]
        support, query = torch.rand(1, 3, 1, 3, SIDE, SIDE), torch.rand(1, 2, 3, SIDE, SIDE)
        found = method.scores_with(support, query, Known(names=names))
        assert found.tolist() == [[expected, expected]]
        for _ in range(2):
            method.scores_with(support, query, Known(names=names))
        assert method.usage["unreadable"] == (0 if any(expected) else 2)
        assert method.usage["requests"] == 2
        texts = [one for one in content(server.bodies[0]) if not one.startswith("data:")]
        assert all(name in texts[0] for name in ("cat", "dog", "hot dog"))
        roles = [message["role"] for message in server.bodies[0]["messages"]]
        assert roles == ["user", "assistant"] * 3 + ["user"]


def built(url: str, **options: Any) -> InContextEndpoint:
    method = InContextEndpoint(url=url, model="tiny", **options)
    method.build((3, SIDE, SIDE), 0, Pixels(size=SIDE))
    return method


@pytest.mark.slow
def test_interrupted_and_started_again_nothing_is_lost_or_asked_twice(
    data: Planted,
    known: dict[bytes, tuple[str, set[str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def words(body: dict[str, Any]) -> str:
        support, labels, query = conversation(body)
        seen = known[query.tobytes()][1]
        shared = [len(known[one.tobytes()][1] & seen) for one in support]
        return labels[int(np.argmax(shared))]

    broken = threading.Event()
    broken.set()

    def sometimes(body: dict[str, Any]) -> str | dict[str, Any]:
        if broken.is_set() and len(server.answered) >= 20:
            return {"status": 503, "error": {"message": "going down"}}
        return words(body)

    with ChatServer(words) as server:
        undisturbed = run(server.url, data)
    assert undisturbed.estimates["acc-gap"].value > 0.2, "who goes by words has a gap"
    monkeypatch.setenv("FSF_RUNS", str(tmp_path / "again"))
    with ChatServer(sometimes, failing=0.1) as server:
        with pytest.raises(DataError, match=r"answered 503 \(going down\).*kept"):
            run(server.url, data, attempts=2)
        kept = sum(server.answered.values())
        assert 20 <= kept < 72
        broken.clear()
        resumed = run(server.url, data, attempts=2)
        usage = resumed.record.usage
        assert (usage["requests"], usage["requests_now"]) == (72, 72 - kept)
        assert usage["completion_tokens"] == undisturbed.record.usage["completion_tokens"]
        assert len(server.answered) == 72
        assert set(server.answered.values()) == {1}
        assert sum(server.attempts.values()) > 72, "some requests failed"
    for arm, outcomes in undisturbed.outcomes.items():
        assert np.array_equal(resumed.outcomes[arm].predictions, outcomes.predictions)


@pytest.mark.slow
def test_what_is_used_counts_the_answers_of_an_arm_of_another_run(data: Planted) -> None:
    with ChatServer(nearest) as server:
        first = run(server.url, data, prompt_price=2.0).record.usage
        other = run(server.url, data, prompt_price=2.0, statistics=["acc"]).record.usage
        sampled = run(server.url, data, prompt_price=2.0, sampler="random").record.usage
    assert first == other
    assert first["requests"] == first["requests_now"] == 72
    assert sampled["requests"] == 36
    assert sampled["requests_now"] == 0
    assert sampled["cost"] == pytest.approx(2 * sampled["prompt_tokens"] / 1e6) != 0


def test_where_no_answer_is_a_label_the_work_stops_before_more_are_paid_for(data: Planted) -> None:
    with ChatServer(lambda body: "I cannot tell.") as server:
        few = run(server.url, data, tasks=3)
        assert few.record.usage["unreadable"] == few.record.usage["requests"] == 36
        assert any("36 of 36 answers" in note for note in few.record.notes)
        with pytest.raises(DataError, match=r"'I cannot tell\.'"):
            run(server.url, data, tasks=100)
        assert len(server.answered) < 36 + 100


def test_pixels_is_the_usual_backbone_and_permuted_labels_are_noted(data: Planted) -> None:
    with ChatServer(nearest) as server:
        found = run(server.url, data, backbone=None, labels="permuted", tasks=1)
    assert found.record.backbone.name == "pixels"
    assert any("labels permuted" in note for note in found.record.notes)


def test_offline_only_a_server_on_this_machine_is_asked(data: Planted) -> None:
    with pytest.raises(DataError, match="no answer of tiny is kept"):
        run("http://models.example/v1", data, offline=True)


@pytest.mark.slow
def test_server_and_run_are_killed_and_started_again(tmp_path: Path) -> None:
    names = ["red", "blue", "green", "grass", "snow", "sand"]
    images = image_folder(tmp_path / "images", names, side=SIDE)
    tables = []
    for place, kill in (("whole", False), ("killed", True)):
        log = tmp_path / f"{place}.log"
        server, url = serve(0, log)
        port = int(url.split(":")[2].split("/")[0])
        # Kept answers are those of an address.
        arguments = (
            "run", "--dataset", f"folder:{images}", "-o", "dataset.split_fractions=0,0,1",
            "--method", f"in-context-endpoint:{url}", "-o", "method.model=tiny",
            "-o", "method.concurrent=2", "--backbone", "pixels", "--image-size", str(SIDE),
            "--sampler", "random", "--way", "3", "--shot", "1", "--queries", "2", "--tasks", "12",
        )  # fmt: skip
        environment = {**os.environ, "FSF_RUNS": str(tmp_path / place)}

        def start(
            arguments: tuple[str, ...] = arguments, environment: dict[str, str] = environment
        ) -> Any:
            command = [sys.executable, "-m", "fsframework", *arguments]
            return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)

        process = start()
        if kill:
            wait_for(log, 10, process)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            process = start()
            wait_for(log, 25, process)
            server.kill()
            server.communicate()
            server, _ = serve(port, log)
        said = process.communicate(timeout=120)[1]
        assert process.returncode == 0, said
        server.kill()
        server.communicate()
        asked = Counter(log.read_text().split())
        assert len(asked) == 12 * 6
        # At most the requests that were on their way when the run, or the server, was killed.
        assert sum(asked.values()) - len(asked) <= (4 if kill else 0)
        (record,) = (tmp_path / place).glob("*/run.json")
        tables.append(fsf.load_run(record.parent).outcomes["random"].predictions)
    assert np.array_equal(*tables)


def serve(port: int, log: Path) -> tuple[Any, str]:
    file = Path(sys.modules[ChatServer.__module__].__file__ or "")
    given = [str(port), str(log), "--delay", "0.05", "--failing", "0.1"]
    process = subprocess.Popen(
        [sys.executable, "-S", file, *given], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    return process, process.stdout.readline().decode().strip()


def wait_for(log: Path, lines: int, process: Any) -> None:
    while not log.exists() or len(log.read_text().split()) < lines:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"labels": "words"}, "labels must be one of names, letters, permuted"),
        ({"key_from": "NO_SUCH_KEY"}, "NO_SUCH_KEY is not set"),
        ({"concurrent": 0}, "concurrent must be at least 1"),
        ({"prompt_price": -1.0}, "prompt_price must be at least 0"),
        ({"url": "localhost"}, "url must be the address of an endpoint"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        InContextEndpoint(**{"url": "http://localhost:8000/v1", "model": "tiny", **options})


_AT = {"url": "http://localhost:8000/v1"}


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    def shy(body: dict[str, Any]) -> str:
        """Answer well, except where the name is one that the model does not say."""
        return nearest(body).replace("anchor", "I cannot say.")

    with ChatServer(shy) as found:
        _AT["url"] = found.url
        yield found


def named() -> InContextEndpoint:
    return InContextEndpoint(url=_AT["url"], model="tiny")


def letters() -> InContextEndpoint:
    return InContextEndpoint(url=_AT["url"], model="tiny", labels="letters")


@pytest.mark.slow
@parametrize_with_checks([named, letters])
def test_conformance(make: Any, check: Any, server: ChatServer, shared_cache: Path) -> None:
    check(make)
