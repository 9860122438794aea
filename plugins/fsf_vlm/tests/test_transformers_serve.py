"""The client and Transformers' own server, ``transformers serve``, with a tiny model."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from fsf_vlm import (
    AnswerStore,
    Chat,
    Client,
    InContext,
    InContextEndpoint,
    Message,
    Pixels,
    Request,
)
from plugins.fsf_vlm.tests.tiny import SIDE, tiny
from tests.tiny_models import EveryWord, scenes, tiny_model

_SERVE = """
import sys
sys.modules["torchvision"] = None  # its operators may be built for another PyTorch
from transformers.cli.transformers import main
sys.argv = ["transformers", "serve", sys.argv[1], "--port", sys.argv[2], "--device", "cpu"]
main()
"""


def serve(model: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _SERVE, str(model), str(port)]
    with log.open("ab") as file:
        offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
        return subprocess.Popen(command, stdout=file, stderr=file, env=offline)


@pytest.mark.slow
def test_a_real_server_that_is_killed_and_started_again(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="needs pip install transformers[serving]")
    model, images, log = tiny_model("llava"), scenes(60, seed=4)[0], tmp_path / "log"
    log.touch()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    store = AnswerStore(url, str(model), tmp_path)
    client = Client(url, model=str(model), store=store, concurrent=2, attempts=20, timeout=120.0)
    asked = [Request([Message("user", [image, "What?"])], max_tokens=8) for image in images]
    found: list[str] = []
    work = threading.Thread(target=lambda: found.extend(a.text for a in client.ask(asked)))
    server = serve(model, port, log)
    try:
        work.start()
        while len(store) < 10:
            assert server.poll() is None, log.read_text()
            assert work.is_alive()
        server.kill()
        server.wait()
        server = serve(model, port, log)
        work.join()
    finally:
        server.kill()
        server.wait()
    assert client.usage["requests"] == len(images)
    assert client.usage["completion_tokens"] > 0
    # At most the requests that were on their way when it was killed.
    answered = log.read_text().count('"POST /v1/chat/completions HTTP/1.1" 200')
    assert len(images) <= answered <= len(images) + 2
    assert len(AnswerStore(url, str(model), tmp_path).refreshed()) == len(
        set(map(Request.digest, asked))
    )
    chat = Chat(model=str(model), prompt="What?", max_tokens=9, selector=EveryWord())
    assert [text.split() for text in found] == [text.split() for text in chat.describe(images)]


@pytest.mark.slow
def test_a_real_server_shows_its_model_the_prompt_that_a_local_one_reads(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="needs pip install transformers[serving]")
    model, log = tiny("llava"), tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    served = InContextEndpoint(
        url=url, model=str(model), labels="letters", max_tokens=3, attempts=20
    )
    local = InContext(model=str(model), labels="letters", shared=False)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (9, 3, SIDE, SIDE), generator=generator) / 255
    task = images[:6].view(1, 3, 2, 3, SIDE, SIDE), images[None, 6:]
    server = serve(model, port, log)
    try:
        for method in (served, local):
            method.build((3, SIDE, SIDE), 0, Pixels(size=SIDE))
            assert method.scores(*task).shape == (1, 3, 3)
    finally:
        server.kill()
        server.wait()
    assert served.usage["requests"] == 3
    assert 3 <= served.usage["completion_tokens"] <= 9
    # The local model reads a prompt with each of three letters, one token each.
    assert served.usage["prompt_tokens"] == local.usage["prompt_tokens"] / 3 - 3
