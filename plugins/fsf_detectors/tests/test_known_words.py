from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fsf_detectors.records import CaptionsFile, Metadata
from fsframework.interfaces import DataError, OptionError
from fsframework.testing import parametrize_with_checks, toy_records
from fsframework.values import ImageRecord
from tests.tiny_models import EveryWord, tiny_path


def toy_file() -> Path:
    """Return captions of the toy records, written on the first call."""
    file = tiny_path("captions") / "toys.jsonl"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = [{"key": r.key, "caption": r.metadata["caption"]} for r in toy_records()]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def _captions_file() -> CaptionsFile:
    return CaptionsFile(path=toy_file(), selector=EveryWord())


@parametrize_with_checks([Metadata, _captions_file])
def test_conformance(make: Any, check: Any) -> None:
    check(make)


def test_words_of_a_column() -> None:
    records = [ImageRecord("a", {"tags": "grass| dog ||dog"}), ImageRecord("b", {"tags": " "})]
    detector = Metadata(column="tags", separator="|")
    assert detector.detect(records) == [{"grass", "dog"}, set()]
    assert detector.provenance() == {"column": "tags", "separator": "|"}


def test_a_missing_column() -> None:
    record = ImageRecord("cat/1.png", {"site": "x", "place": "y"})
    with pytest.raises(DataError, match="'cat/1.png' .* column 'words'; .*: place, site"):
        Metadata().detect([record])
    with pytest.raises(DataError, match="columns of this data set: none"):
        Metadata().detect([ImageRecord("a")])


TOKEN = "dogs/1.jpg#1\tIt runs\ndogs/1.jpg#0\tA dog on grass .\ncats/2.jpg#0\tA cat\twith a tab\n"
JSONL = (
    '{"key": "dogs/1.jpg", "caption": "a dog", "score": 0.5}\n\n'
    '{"caption": "a cat", "key": "cats/2.jpg"}'
)
CSV = 'caption,source,key\r\n"a dog, running\nfast",x,dogs/1.jpg\r\n,y, cats/2.jpg \r\n'
KEYS = ("dogs/1.jpg", "cats/2.jpg")


def of_file(path: Path, **options: Any) -> CaptionsFile:
    return CaptionsFile(path=path, selector=EveryWord(), **options)


def described(path: Path, keys: Sequence[str] = KEYS, **options: Any) -> list[str]:
    return of_file(path, **options).describe([ImageRecord(key) for key in keys])


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write_file(name: str, content: str | bytes) -> Path:
        raw = content.encode() if isinstance(content, str) else content
        file = tmp_path / name
        file.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return file

    return write_file


SEVERAL = ["A dog on grass . It runs", "A cat\twith a tab"]
ONE_EACH = ["a dog", "a cat"]
CELLS = ["a dog, running\nfast", ""]


class TestFormats:
    @pytest.mark.parametrize(
        ("name", "content", "expected"),
        [
            *((name, TOKEN, SEVERAL) for name in ("c.token.txt", "c.token.txt.gz", "captions")),
            *((name, JSONL, ONE_EACH) for name in ("c.jsonl", "c.jsonl.gz", "c.ndjson", "c.txt")),
            *((name, CSV, CELLS) for name in ("c.csv", "c.csv.gz", "c.txt")),
            ("c.csv", "\ufeff" + CSV, CELLS),
        ],
    )
    def test_are_told_by_suffix_or_first_line(
        self, write: Any, name: str, content: str, expected: list[str]
    ) -> None:
        assert described(write(name, content)) == expected

    def test_sentences_stay_apart_and_the_first_may_be_taken(self, write: Any) -> None:
        file = write("c.txt", "a#10\tthird\na#2\tsecond!\na#0\tfirst\n")
        assert described(file, ["a"]) == ["first. second! third"]
        assert described(file, ["a"], captions="first") == ["first"]

    def test_an_image_without_a_caption_has_no_words(self, write: Any) -> None:
        found = of_file(write("c.jsonl", JSONL)).detect([ImageRecord("x"), ImageRecord(KEYS[0])])
        assert found == [set(), {"a", "dog"}]

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("c.txt", "", "is empty; it must contain JSON objects with key and caption"),
            ("c.txt", "dog.jpg a dog\n", "row 1 has an unknown format; it must contain JSON"),
            ("c.csv", "", "is empty; row 1 must name the columns key and caption"),
            ("c.csv", "key,text\na,b\n", "row 1 lacks the column caption; .* not key, text"),
            ("c.csv", "key,key,caption\na,b,c\n", "row 1 repeats the column key"),
            ("c.jsonl", "\n\n", "contains no captions"),
        ],
    )
    def test_no_captions(self, write: Any, name: str, content: str, message: str) -> None:
        with pytest.raises(DataError, match=rf"{name}: {message}"):
            described(write(name, content))

    def test_a_file_that_cannot_be_read(self, tmp_path: Path, write: Any) -> None:
        with pytest.raises(DataError, match=r"none\.jsonl: cannot be read \(No such file"):
            described(tmp_path / "none.jsonl")
        with pytest.raises(DataError, match="it is a folder, not a file"):
            described(tmp_path)
        whole = gzip.compress("".join(f"{i}.jpg#0\ta dog\n" for i in range(500)).encode())
        for damaged in (whole[:-20], b"no gzip", whole[:12] + b"\xff\xff" + whole[14:]):
            (tmp_path / "c.txt.gz").write_bytes(damaged)
            with pytest.raises(DataError, match=r"c\.txt\.gz: is not a complete gzip file"):
                described(tmp_path / "c.txt.gz")


BROKEN = [
    ("c.jsonl", b'{"key": "a", "caption": ', r"row 2 is not JSON \(.* at column \d+\)"),
    ("c.jsonl", b'["a", "b"]', "row 2 is not a JSON object"),
    ("c.jsonl", b'{"key": "a", "text": "b"}', "row 2 has no 'caption', only 'key', 'text'"),
    ("c.jsonl", b'{"key": 7, "caption": "b"}', "row 2 has a 'key' that is not text"),
    ("c.jsonl", b'{"key": "a", "caption": 7}', "row 2 has a 'caption' that is not text"),
    ("c.jsonl", b'{"key": "", "caption": "b"}', "row 2 has no key"),
    ("c.jsonl", b'{"key": "a", "caption": "caf\xe9"}', "row 2 is not UTF-8 text"),
    ("c.jsonl", b'{"key": "a", "caption": "\\ud800"}', "row 2 is not UTF-8 text"),
    ("c.jsonl", b"[" * 100_000, "row 2 (cannot be read as JSON|is not JSON)"),
    ("c.csv", b"a,b,c,d", "row 3 has 4 cells but the header has 3"),
    ("c.csv", b'a,"b"c,d', "row 3 is not CSV"),
    ("c.csv", b"caption,,", "row 3 has no key"),
    ("c.csv", b"caf\xe9,x,a", "row 3 is not UTF-8 text"),
    ("c.txt", b"a#0 a dog", r"row 2 has no tab; it must be IMAGE#NUMBER<TAB>CAPTION"),
    ("c.txt", b"a.jpg\ta dog", "row 2 has no #NUMBER before its tab"),
    ("c.txt", b"#0\ta dog", "row 2 has no key"),
    ("c.txt", b"a#0\tcaf\xe9", "row 2 is not UTF-8 text"),
]
FIRST = {
    "c.jsonl": b'{"key": "ok", "caption": "fine"}',
    "c.csv": b"caption,source,key\nfine,,ok",
    "c.txt": b"ok#0\tfine",
}
LAST = {
    "c.jsonl": b'{"key": "last", "caption": "fine too"}',
    "c.csv": b"fine too,,last",
    "c.txt": b"last#3\tfine too",
}


class TestBrokenRows:
    @pytest.mark.parametrize(("name", "row", "message"), BROKEN)
    def test_stop_the_reading_or_are_skipped(
        self, write: Any, name: str, row: bytes, message: str
    ) -> None:
        file = write(name, b"\n".join([FIRST[name], row, LAST[name]]))
        with pytest.raises(DataError, match=rf"{name}: {message}.*; on_error=skip leaves out"):
            described(file)
        detector = of_file(file, on_error="skip")
        records = [ImageRecord(key) for key in ("ok", "a", "last")]
        assert detector.describe(records) == ["fine", "", "fine too"]
        assert detector.skipped.rows == 1
        [note] = detector.notes(["ok", "last"])
        assert note.startswith(f"{file}: 1 row skipped because of on_error=skip; row ")

    @pytest.mark.parametrize("cell", ['a "b', '"a b', '"a" b', '"'])
    def test_an_unclosed_quote_loses_only_its_own_row(self, write: Any, cell: str) -> None:
        rows = ["key,caption", 'ok,"fine, and quoted"', f"bad,{cell}"]
        rows += [f'img{i},"caption, number {i}"' for i in range(30)]
        keys = ["ok", *(f"img{i}" for i in range(30))]
        expected = ["fine, and quoted", *(f"caption, number {i}" for i in range(30))]
        assert described(write("c.csv", "\n".join(rows)), keys, on_error="skip") == expected

    def test_the_first_three_are_reported(self, write: Any) -> None:
        lines = [TOKEN.strip(), *["broken"] * 4, "cats/2.jpg#0\tagain"]
        count, examples = of_file(write("c.txt", "\n".join(lines)), on_error="skip").skipped
        assert count == 5
        assert [text.split()[1] for text in examples] == ["4", "5", "6"]

    def test_only_broken_rows(self, write: Any) -> None:
        with pytest.raises(DataError, match=r"contains no captions; row 1 is not JSON"):
            described(write("c.jsonl", "x\ny\n"), on_error="skip")

    @pytest.mark.parametrize(
        ("name", "rows", "message"),
        [
            ("c.jsonl", [b'{"key": "ok", "caption": "b"}'], "rows 1 and 2 have the same key 'ok'"),
            ("c.csv", [b"b,,c", b"b,,ok"], "rows 2 and 4 have the same key 'ok'"),
            ("c.txt", [b"ok#1\tb", b"ok#0\tb"], "rows 1 and 3 have the same key 'ok'"),
            (
                "c.txt",
                [b"ok#2\tb", b"x#1\tb", b"ok#2\tb"],
                "rows 2 and 4 have the same key 'ok' and number 2",
            ),
        ],
    )
    def test_a_repeated_key_names_both_rows(
        self, write: Any, name: str, rows: list[bytes], message: str
    ) -> None:
        file = write(name, b"\n".join([FIRST[name], *rows]))
        with pytest.raises(DataError, match=rf"{name}: {message};"):
            described(file)
        assert described(file, ["ok"], on_error="skip")[0].startswith("fine")


class TestMatching:
    def test_by_name_without_folders(self, write: Any) -> None:
        file = write("c.jsonl", JSONL)
        images = ["train/n01/1.jpg", "2.jpg", "n02\\1.jpg"]
        assert described(file, images[:2], match="name") == ["a dog", "a cat"]
        assert described(file, images[2:], match="name") == ["a dog"]
        assert described(file, images[:2]) == ["", ""]

    def test_two_rows_of_one_name(self, write: Any) -> None:
        file = write("c.txt", "a/1.jpg#0\tx\nb/1.jpg#0\ty\n")
        with pytest.raises(DataError, match=r"rows 1 and 2 have the same file name '1\.jpg'"):
            described(file, match="name")

    def test_two_images_of_one_name(self, write: Any) -> None:
        detector = of_file(write("c.jsonl", JSONL), match="name")
        with pytest.raises(DataError, match=r"'a/1\.jpg' and 'b/1\.jpg' have the same file name"):
            detector.notes(["a/1.jpg", "b/1.jpg"])

    def test_captions_of_no_image(self, write: Any) -> None:
        rows = [f"img{i}.jpg#0\ta dog on the grass" for i in range(1500)]
        detector = of_file(write("c.txt", "\n".join(rows)))
        keys = [f"img{i}.jpg" for i in range(297)] + ["new.jpg"]
        assert detector.unmatched(keys) == [f"img{i}.jpg" for i in range(297, 1500)]
        assert detector.notes(keys) == [
            f"{detector.path}: 1,203 captions match no image: "
            "'img297.jpg', 'img298.jpg', 'img299.jpg', ...",
            f"{detector.path}: 1 image has no caption: 'new.jpg'",
        ]

    def test_captions_of_other_splits_are_not_reported(self, write: Any) -> None:
        rows = [f"img{i}.jpg#0\ta dog on the grass" for i in range(10)]
        detector = of_file(write("c.txt", "\n".join(rows)))
        keys = [f"img{i}.jpg" for i in range(10)]
        assert detector.notes(keys[:4], keys[4:]) == []
        [note] = detector.notes(keys[:4], keys[4:9])
        assert note == f"{detector.path}: 1 caption matches no image: 'img9.jpg'"
        with pytest.raises(DataError):
            detector.notes(["other.jpg"], keys)

    def test_captions_of_no_image_at_all(self, write: Any) -> None:
        detector = of_file(write("c.jsonl", JSONL))
        with pytest.raises(DataError) as caught:
            detector.notes([f"x{i}.jpg" for i in range(1234)])
        assert str(caught.value) == (
            f"{detector.path}: its 2 captions match none of the 1,234 images; its keys are "
            "'dogs/1.jpg', 'cats/2.jpg', those of the images 'x0.jpg', 'x1.jpg', 'x2.jpg'"
        )
        with pytest.raises(DataError, match="file names match: use match=name"):
            detector.notes(["1.jpg"])

    @pytest.mark.parametrize("text", ["NA", "nan", "NULL", '""'])
    def test_missing_captions(self, write: Any, text: str) -> None:
        detector = of_file(write("c.csv", f"key,caption\n{KEYS[0]},a dog\n{KEYS[1]},{text}\n"))
        assert any("missing" in note and KEYS[1] in note for note in detector.notes(KEYS[:2]))

    def test_two_columns_without_a_header_are_not_of_fewstab(self, write: Any) -> None:
        with pytest.raises(DataError, match="row 1 lacks the column key"):
            of_file(write("c.csv", 'a.jpg,"A dog, with snow"\n')).notes(["a.jpg"])

    def test_empty_captions(self, write: Any) -> None:
        detector = of_file(write("c.csv", CSV))
        assert detector.notes(KEYS) == [
            f"{detector.path}: 1 caption is empty or missing: 'cats/2.jpg'"
        ]
        assert of_file(write("c.jsonl", JSONL)).notes(KEYS) == []


GERMAN = "ein schwarzer hund springt auf einer wiese herum"
CHINESE = "一只狗在草地上跑"
ENGLISH = "a black dog jumps on the grass"


@pytest.mark.parametrize(
    ("captions", "foreign"),
    [
        ([ENGLISH, GERMAN] * 30, GERMAN),
        ([ENGLISH, CHINESE] * 30, CHINESE),
        ([ENGLISH] * 20, None),
        (["black dog"] * 20, None),
        (["A café, naïve façade and a piñata"] * 20, None),
        ([ENGLISH] * 95 + [GERMAN] * 5, None),
    ],
)
def test_captions_that_do_not_seem_to_be_english(
    write: Any, captions: list[str], foreign: str | None
) -> None:
    rows = [json.dumps({"key": f"{i}", "caption": c}) for i, c in enumerate(captions)]
    notes = of_file(write("c.jsonl", "\n".join(rows))).notes([str(i) for i in range(len(rows))])
    if foreign is None:
        assert notes == []
    else:
        [note] = notes
        assert "about 50% of the captions" in note
        assert repr(foreign) in note


def test_provenance_follows_the_content(write: Any) -> None:
    file = write("c.jsonl", JSONL)
    before = of_file(file).provenance()
    assert (before["file"], before["captions"], before["match"]) == ("c.jsonl", "all", "key")
    assert before["selector.kind"] == "every word"
    file.write_text(JSONL.replace("a dog", "a god"))
    after = of_file(file).provenance()
    assert {name for name in before if before[name] != after[name]} == {"file_digest"}


@pytest.mark.parametrize("option", ["captions", "match", "on_error"])
def test_options_out_of_range(option: str) -> None:
    with pytest.raises(OptionError, match=rf"{option} must be \w+ or \w+, not 'no'"):
        of_file(Path("c.csv"), **{option: "no"})
    with pytest.raises(OptionError, match="separator must have at least one character"):
        Metadata(separator="")


@pytest.mark.slow
def test_a_million_captions_are_in_memory_once(write: Any) -> None:
    """Checked on 1 %: what is kept is hardly exceeded while the file is read."""
    rows = [f'{{"key": "folder/{i:06}.jpg", "caption": "dog {i} on grass"}}' for i in range(10_000)]
    random.Random(0).shuffle(rows)
    file = write("c.jsonl", "\n".join(rows))
    detector = of_file(file)
    tracemalloc.start()
    try:
        detector.prepare()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The table of a dict is doubled as it grows, hence not 1.0.
    assert peak < 1.35 * kept


@pytest.mark.shared_data
class TestFlickr8k:
    def test_is_read_whole(self, flickr8k: Path) -> None:
        detector = of_file(flickr8k)
        detector.prepare()
        keys = detector.unmatched([])
        # One image's captions are spread over two keys, the file's own slip of the pen.
        assert len(keys) == 8093
        assert "2258277193_586949ec62.jpg.1" in keys
        first = detector.describe([ImageRecord("1000268201_693b08cb0e.jpg")])[0]
        assert first.startswith(
            "A child in a pink dress is climbing up a set of stairs in an entry way . "
            "A girl going into a wooden building . A little girl climbing into"
        )
        assert detector.notes(keys) == []

    def test_the_first_captions_count_as_english(self, flickr8k: Path) -> None:
        detector = of_file(flickr8k, captions="first")
        assert detector.notes(detector.unmatched([])) == []
