"""`fsf attributes extract` as a process: killed, shared out, and never saying a thing twice."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from fsframework.components.registry import Registry
from fsframework.values import AttributeTable, TaskSet
from tests.conftest import Fsf
from tests.forked import started
from tests.toys import image_folder

DETECTORS = Registry().names("detector")
SLOW = '''
"""A captioner that takes its time; each image takes four milliseconds."""

import time

from fsframework.interfaces import Captioner, WordSelector


class Spaces(WordSelector):
    """Words between spaces."""

    def select(self, captions):
        return [frozenset(caption.split()) for caption in captions]


class Slow(Captioner):
    """Says what the data set says, slowly."""

    consumes = "records"

    def __init__(self, *, selector: WordSelector | None = None) -> None:
        self.selector = selector or Spaces()

    def describe(self, images):
        time.sleep(0.004 * len(images))
        return [image.metadata["caption"] for image in images]
'''
DATA = ["--dataset", "planted", "-o", "dataset.n_per_class=20"]
TESTED = ["--split", "test", *DATA]
N_IMAGES = 400


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    (tmp_path / "slow.py").write_text(SLOW)
    return ["--plugin", "slow.py", "--detector", "slow", "--batch-size", "5", *TESTED]


def said(tmp_path: Path) -> Counter[str]:
    """Count how often each image stands in the logs, torn lines left out."""
    lines = [
        line
        for part in (tmp_path / "cache").glob("detections/*/answers.jsonl")
        for line in part.read_bytes().splitlines(keepends=True)
    ]
    return Counter(json.loads(line)["key"] for line in lines if line.startswith(b'{"key"'))


@pytest.mark.slow
@pytest.mark.parametrize(
    "moments", [range(0, 10, 3), pytest.param(range(10), marks=pytest.mark.slow)]
)
def test_killed_at_many_moments_it_loses_no_caption_and_makes_none_twice(
    tmp_path: Path, arguments: list[str], fsf: Fsf, moments: range
) -> None:
    """Each start is killed a little later into the work than the one before it."""
    other = ("--cache-dir", "other")
    whole = fsf("attributes", "extract", "whole.parquet", *arguments, *other)
    assert whole.returncode == 0, whole.stderr
    done = 0
    for moment in moments:
        process = started(tmp_path, "attributes", "extract", "words.parquet", *arguments)
        # The clock starts with the first caption, since imports take most of the time.
        while process.poll() is None and len(said(tmp_path)) == done:
            time.sleep(0.002)
        began = time.monotonic()
        while process.poll() is None and time.monotonic() - began < 0.01 * moment:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (tmp_path / "words.parquet").exists()
        counts = said(tmp_path)
        assert set(counts.values()) <= {1}
        assert done < len(counts) < N_IMAGES
        done = len(counts)
    resumed = fsf("attributes", "extract", "words.parquet", *arguments, "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["reused"] == done
    counts = said(tmp_path)
    assert len(counts) == N_IMAGES
    assert set(counts.values()) == {1}
    tables = [AttributeTable.load(tmp_path / f"{n}.parquet") for n in ("whole", "words")]
    assert tables[0].fingerprint == tables[1].fingerprint
    assert tables[0].captions == tables[1].captions


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["w.parquet"], f"--detector is missing; give one of {', '.join(DETECTORS)}"),
        (["w.csv", "--detector", "metadata"], "w.csv must end in .parquet"),
        (["w.parquet", "--detector", "metadata", "--batch-size", "0"], "--batch-size"),
        (["w.parquet", "--detector", "metadata", "--min-count", "0"], "--min-count must be"),
        (["w.parquet", "--detector", "metadata:tags"], "no metadata column 'tags'; columns of"),
        (["w.parquet", "--detector", "captions-file:no.jsonl"], "no.jsonl: cannot be read"),
        (["w.parquet", "--detector", "metadata", "--split", "tset"], "has no split 'tset'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)  # fmt: skip
def test_bad_input_is_one_line_and_writes_nothing(
    fsf: Fsf, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = fsf("attributes", "extract", *arguments, *DATA)
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / arguments[0]).exists()


def test_a_file_that_is_there_is_not_replaced_unasked(fsf: Fsf, tmp_path: Path) -> None:
    (tmp_path / "w.parquet").write_bytes(b"mine")
    kept = fsf("attributes", "extract", "w.parquet", "--detector", "metadata", *TESTED)
    assert kept.returncode == 2
    assert "w.parquet exists; give --force to replace it" in kept.stderr
    assert (tmp_path / "w.parquet").read_bytes() == b"mine"
    forced = fsf("attributes", "extract", "w.parquet", "--detector", "metadata", *TESTED, "--force")
    assert forced.returncode == 0, forced.stderr
    assert len(AttributeTable.load(tmp_path / "w.parquet")) == N_IMAGES


BRIGHT = '''
from fsframework.interfaces import AttributeDetector


class Bright(AttributeDetector):
    """Tells bright images from dark ones."""

    def detect(self, images):
        return [frozenset(["bright" if image.mean() > 127 else "dark"]) for image in images]
'''


def test_an_image_that_cannot_be_decoded_is_named_and_the_exit_says_so(
    fsf: Fsf, tmp_path: Path
) -> None:
    image_folder(tmp_path / "images", ["cat", "dog"])
    (tmp_path / "images" / "dog" / "2.png").write_bytes(b"\x89PNG broken")
    (tmp_path / "bright.py").write_text(BRIGHT)
    arguments = [
        "--plugin", "bright.py", "--detector", "bright", "--dataset", "folder:images",
        "-o", "dataset.split_fractions=0,0,1",
    ]  # fmt: skip
    done = fsf("attributes", "extract", "w.parquet", *arguments)
    assert done.returncode == 1
    [named] = [line for line in done.stdout.splitlines() if line.startswith("cannot be read")]
    assert "dog/2.png" in named
    table = AttributeTable.load(tmp_path / "w.parquet")
    assert len(table) == 7
    assert table.provenance["unreadable"] == "1 of 8 images"
    told = json.loads(fsf("attributes", "extract", "v.parquet", *arguments, "--json").stdout)
    assert [one["key"] for one in told["unreadable"]] == ["dog/2.png"]
    assert told["reused"] == 7


def test_words_that_are_all_dropped_make_a_table_but_no_tasks(fsf: Fsf, tmp_path: Path) -> None:
    dropping = ["--min-count", "999", "--drop-words", "brick,nonsense", *TESTED]
    done = fsf("attributes", "extract", "w.parquet", "--detector", "metadata", *dropping)
    assert done.returncode == 0, done.stderr
    assert "no image has a word: no tasks can be drawn with this table" in done.stdout
    table = AttributeTable.load(tmp_path / "w.parquet")
    assert (len(table), table.words) == (N_IMAGES, ())
    assert table.provenance["min_count"] == "999"
    assert table.provenance["drop_words"] == "brick, nonsense"
    refused = fsf("tasks", "make", "t.safetensors", *dropping)
    assert refused.returncode == 2
    assert "no image has the word 'nonsense' that is to be dropped" in refused.stderr
    assert "no image has any attribute left; drop fewer words" in refused.stderr
    assert not (tmp_path / "t.safetensors").exists()


def test_a_table_of_another_split_is_recognised(fsf: Fsf) -> None:
    fsf("attributes", "extract", "val.parquet", "--detector", "metadata", "--split", "val", *DATA)
    other = fsf("tasks", "make", "t.safetensors", "--attributes", "val.parquet", *DATA)
    assert other.returncode == 2
    assert other.stderr.startswith("fsf: val.parquet, a table of the split val: none of")
    assert "note:" not in other.stderr, "the problem is said once"


def test_a_table_made_first_gives_the_experiment_of_one_step(fsf: Fsf, tmp_path: Path) -> None:
    image_folder(tmp_path / "images", "abcdefgh", each=8)
    nouns = ["dog", "cat", "bench", "sofa", "car", "tree", "boat"]
    named = {
        f"{c}/{i}.png": ", ".join(f"{nouns[(i + j * k) % 7]}" for j in range(3))
        for k, c in enumerate("abcdefgh")
        for i in range(8)
    }
    captions = [json.dumps({"key": key, "caption": text}) for key, text in named.items()]
    (tmp_path / "c.jsonl").write_text("\n".join(captions))
    shape = ["--shot", "1", "--queries", "2", "--method", "ncc", "-o", "training.epochs=0"]
    data = ["--dataset", "folder:images"]
    detector = ["--detector", "captions-file:c.jsonl", "-o", "detector.selector=tags"]
    drawing = ["--tasks", "20", *data, *shape]
    done = fsf("attributes", "extract", "w.parquet", *detector, *data)
    assert done.returncode == 0, done.stderr
    for file, source in (("a.st", detector), ("b.st", ["--attributes", "w.parquet"])):
        done = fsf("tasks", "make", file, *source, *drawing)
        assert done.returncode == 0, done.stderr
    one, two = (TaskSet.load(tmp_path / file) for file in ("a.st", "b.st"))
    assert (one.digest, one.words) == (two.digest, two.words)
    assert one.n_way == 5
    words = ["--attributes", "w.parquet", *data, *shape]
    assert json.loads(fsf("attributes", "stats", *words, "--json").stdout)["images"] == 64
    assert "of 64 images" in fsf("attributes", "show", "p.html", *words, "--images", "5").stdout


def test_what_labels_forbid_is_known_before_a_word_is_detected(fsf: Fsf, tmp_path: Path) -> None:
    (tmp_path / "bright.py").write_text(BRIGHT)
    done = fsf("run", "--plugin", "bright.py", "--detector", "bright", "--way", "21", *DATA)
    assert done.returncode == 2
    assert "21-way tasks need 21 classes" in done.stderr
    assert "detection:" not in done.stderr


def test_the_stronger_source_of_words_wins(
    fsf: Fsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "exp.toml").write_text('[detector]\nname = "metadata"\ncolumn = "tags"\n')
    stats = ["attributes", "stats", "--json", "--config", "exp.toml", *DATA]
    assert "no metadata column 'tags'" in fsf(*stats).stderr
    assert fsf(*stats, "--attributes", "column:background").returncode == 0
    monkeypatch.setenv("FSF_DETECTOR", "metadata:texture")
    told = json.loads(fsf("attributes", "stats", "--json", *DATA).stdout)
    assert told["words_per_image"]["max"] == 1


def test_options_of_a_selector_need_not_name_it(fsf: Fsf) -> None:
    detector = ["--detector", "captions-file:c.jsonl"]
    done = fsf("run", *detector, "-o", "detector.selector.compounds=joined", "--dry-run")
    assert "detector.selector.name " in done.stdout
    assert "spacy" in done.stdout
    wrong = fsf("run", *detector, "-o", "detector.selector.compound=joined", "--dry-run")
    assert "did you mean 'compounds'?" in wrong.stderr
