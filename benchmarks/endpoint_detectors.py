"""Images per second that `endpoint` describes, by concurrent requests, against one at a time.

Run ``python benchmarks/endpoint_detectors.py``; it takes two minutes. The server is a process of
its own on this machine, answers every request after the same delay, and with ``--failing`` fails
the first attempt of a share of them. The baseline is a loop over the library's own client.
"""

from __future__ import annotations

import argparse
import base64
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import openai
from _options import positive
from PIL import Image

from fsf_detectors.tags import TagSelector
from fsf_vlm import Endpoint
from fsframework.values import UInt8Array

SERVER = Path(__file__).parents[1] / "tests" / "chat_server.py"
CONCURRENT = (1, 8, 16, 32)


def pictures(count: int, side: int) -> list[UInt8Array]:
    """Return RGB images that compress about as photographs do."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (count, side // 4, side // 4, 3), dtype=np.uint8)
    resized = (Image.fromarray(one).resize((side, side)) for one in coarse)
    return [np.asarray(one) for one in resized]


@contextmanager
def serving(folder: Path, **options: float) -> Iterator[str]:
    """Yield the address of a server."""
    flags = [f"--{name}={value}" for name, value in options.items()]
    command = [sys.executable, str(SERVER), "0", str(folder / "log"), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def one_by_one(url: str, images: Sequence[UInt8Array], question: str) -> list[str | None]:
    """Ask about each image as the library's documentation shows."""
    client = openai.OpenAI(base_url=url, api_key="none")
    said = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        data = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
        content: Any = [
            {"type": "text", "text": question},
            {"type": "image_url", "image_url": {"url": data}},
        ]
        reply = client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": content}]
        )
        said.append(reply.choices[0].message.content)
    return said


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return seconds and processor seconds."""
    start, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - used


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=positive, default=96)
    parser.add_argument("--side", type=positive, default=224)
    parser.add_argument("--delay", type=float, default=0.5, help="seconds per answer")
    parser.add_argument("--failing", type=float, default=0.0, help="share of first attempts")
    given = parser.parse_args()
    images = pictures(given.images, given.side)
    print("concurrent  images/s  times  processor ms/image")
    base = 0.0
    for concurrent in (0, *CONCURRENT):
        with (
            tempfile.TemporaryDirectory() as folder,
            serving(Path(folder), delay=given.delay, failing=given.failing) as url,
        ):
            detector = Endpoint(
                url=url, model="tiny", concurrent=max(concurrent, 1), selector=TagSelector()
            )
            detector._store.folder = Path(folder) / "answers"
            if concurrent:
                seconds, used = timed(lambda detector=detector: detector.describe(images))
            else:
                seconds, used = timed(lambda url=url: one_by_one(url, images, "What is it?"))
        rate = len(images) / seconds
        base = base or rate
        name = str(concurrent or "loop")
        print(f"{name:>10}  {rate:8.1f}  {rate / base:5.1f}  {used / len(images) * 1e3:18.1f}")


if __name__ == "__main__":
    main()
