"""What is sent to others: texts of strangers stay text, and no path of this machine is in it."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import fsframework as api
from fsf_statistics import PathNames
from tests.conftest import Fsf

from .conftest import untrained

FORMATS = (
    *(("table", "{runs}", "--output", f"t.{e}") for e in ("csv", "md", "tex", "html")),
    *(("figure", "intervals", "{runs}", "--title", "--output", f"f.{e}") for e in ("csv", "svg")),
    *(("compare", "{runs}", "--by-tasks", "--format", f) for f in ("csv", "latex", "markdown")),
    ("cite", "{runs}"),
    ("report", "{runs}", "--output", "r.html"),
)
"""Commands of which somebody sends what they write or print."""

SPREADSHEET = re.compile(r"[\s'\"]*[=+\-@＝＋－＠]|[\t\r\n]")
HOSTILE = (
    "<script>alert(1)</script>", "\\input{/etc/passwd}", "a|b\n\n# c", "\x1b[2Jd", "\u202ee",
    "[f](javascript:alert(1))", "=cmd()", "@SUM(1)", "％ ＝1+1", "g" * 60_000,
)  # fmt: skip


def sent(fsf: Fsf, command: tuple[str, ...], runs: Path, folder: Path) -> str:
    """Return what a command writes into its file; what it prints, where it writes none."""
    words = [word.format(runs=runs) for word in command]
    file = folder / words[-1]
    if "--output" in words:
        words[-1] = str(file)
    done = fsf(*words)
    assert done.returncode == 0, done.stderr
    return file.read_text("utf-8") if "--output" in words else done.stdout


def cells_of(text: str) -> list[str]:
    """Return the cells of all lines of CSV."""
    return [cell for row in csv.reader(io.StringIO(text)) for cell in row]


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs on two data sets of one name, with paths in all that a record holds."""
    top = tmp_path_factory.mktemp("top")
    common = {**untrained(top), "sampler": "random", "shot": 1, "queries": 2}
    for number, user in enumerate(("ann", "john smith")):
        home = top / "home" / user
        for image in range(12):
            place = home / "images" / "abc"[image % 3] / f"{image}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (16, 16), (20 * image, 99 * number, 9)).save(place)
        common |= {"dataset": f"folder:{home / 'images'}", "split": "all", "tasks": 20}
        run = api.run(method="ncc", **common)
        sentence = f"read from '{home}/a b.csv', {home}/images/a/0.png: 2 images lack words"
        plugin = dataclasses.replace(run.record.plugins[0], target=f"{home}/mine.py:Mine")
        dataclasses.replace(
            run.record,
            plugins=(*run.record.plugins, plugin),
            notes=(*run.record.notes, sentence, r"see C:\Users\john smith\x and ~/x or ../x/y"),
            cautions=(f"file://{home}/x was seen",),
        ).save(run.folder)
    return Path(common["runs_dir"])


@pytest.mark.parametrize("command", FORMATS, ids=" ".join)
def test_data_are_named_by_their_last_folder(
    command: tuple[str, ...], homes: Path, tmp_path: Path, fsf: Fsf
) -> None:
    text = sent(fsf, command, homes, tmp_path)
    if command[0] != "cite":
        assert "images (2)" in text.replace("images~(2)", "images (2)").replace("\\hspace{0pt}", "")
    for secret in ("john smith", "home/ann", str(homes.parent), "C:\\Users", "~/x", "../x"):
        assert secret not in text


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs whose records hold texts that would steer what shows them."""
    common = {**untrained(tmp_path_factory.mktemp("strangers")), "sampler": "random", "shot": 1}
    run = api.run(method="ncc", **common)
    for number, text in enumerate(HOSTILE):
        folder = run.folder.with_name(f"copy-{number}")
        shutil.copytree(run.folder, folder)
        parts = run.record.components
        method = dataclasses.replace(parts["method"], argument="x", options={"x": text})
        dataset = dataclasses.replace(parts["dataset"], argument="x", options={"x": text})
        dataclasses.replace(
            run.record,
            components={**parts, "method": method, "dataset": dataset},
            data=dataclasses.replace(run.record.data, name=text),
            notes=(text,),
            cautions=(text,),
            group="",
        ).save(folder)
    shutil.rmtree(run.folder)
    return run.folder.parent


def test_names_of_paths() -> None:
    names = PathNames()
    assert names.in_value({"a": ["folder:/a/images", "/b/images", "./images"]})["a"] == [
        "folder:images", "images (2)", "images (3)",
    ]  # fmt: skip
    for text in ("3/4 and/or wAcc-R/wAcc-A", "https://host/a/b", "/m/01g317", "timm:org/model"):
        assert names.in_value(names.in_text(text)) == text or text == "/m/01g317"
    for path in ("/home/me", "/Users/me/", "~", "C:\\Users\\me"):
        assert names.name(path) == "~"


@pytest.mark.parametrize("command", FORMATS, ids=" ".join)
def test_texts_of_strangers_are_text_in_every_format(
    command: tuple[str, ...], strangers: Path, tmp_path: Path, fsf: Fsf, parsed: Any
) -> None:
    text = sent(fsf, command, strangers, tmp_path)
    assert "\x1b" not in text or command[-1].endswith(".csv")
    if command[0] == "cite" or {"t.tex", "latex"} & {*command}:
        assert "\\input" not in text
    if "csv" in " ".join(command):
        assert not [c for c in cells_of(text) if SPREADSHEET.match(c) and not is_number(c)]
    if "html" in " ".join(command):
        body = text.partition("<main")[2].partition("</main>")[0] or text
        assert "script" not in parsed(body).tags
    if "md" in command[-1] or "markdown" in command:
        assert "<script>" not in text.replace("\\<", "")
        assert "](javascript" not in text.replace("\\](", "")
        assert not re.search("^# c", text, re.MULTILINE)


def is_number(cell: str) -> bool:
    try:
        return float(cell) is not None
    except ValueError:
        return False
