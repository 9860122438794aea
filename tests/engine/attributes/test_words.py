"""Tables of words that are read, words that name a class, and tables without unwanted words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fsframework as fsf
from fsframework.api.data import without_class_words
from fsframework.errors import DataError, OptionError
from fsframework.interfaces import Dataset
from fsframework.values import AttributeTable, ImagePool, UInt8Array
from tests.toys import Blobs, pool_of


def words_of(table: AttributeTable | None) -> dict[str, set[str]]:
    assert table is not None
    return {key: set(table.words_of(i)) for i, key in enumerate(table.keys)}


word_lists = st.lists(st.sets(st.sampled_from("abcdefghij")), min_size=1, max_size=12)


class Textured(Blobs):
    """Images with two columns of words."""

    def __init__(self) -> None:
        super().__init__()
        textures = ("oven", "dog;cat", "") * 80
        object.__setattr__(self, "metadata", {**self.metadata, "texture": textures})


class TestSources:
    KEYS = Blobs().keys[180:183]
    FIRST, SECOND, _ = KEYS

    def read(self, attributes: object) -> list[tuple[str, ...]]:
        table = fsf.pool(Textured(), attributes=attributes, progress=False).attributes
        assert table is not None
        return [table.words_of(i) for i in range(3)]

    def test_the_words_column_is_the_default_and_another_has_a_name(self) -> None:
        assert self.read(None) == [("even",), ("odd",), ("even",)]
        assert self.read("column:texture") == [("oven",), ("cat", "dog"), ()]

    @pytest.mark.parametrize("suffix", ["csv", "parquet"])
    def test_a_file_in_any_order_with_keys_of_other_images(
        self, tmp_path: Path, suffix: str
    ) -> None:
        path = tmp_path / f"words.{suffix}"
        if suffix == "csv":
            text = f"words,key\nred ;;gr\u00fcn,{self.SECOND}\nblue,other.png\nred,{self.FIRST}\n"
            path.write_text(text, "utf-8-sig")
        else:
            keys = (self.SECOND, "other.png", self.FIRST)
            AttributeTable.from_words(keys, [{"red", "gr\u00fcn"}, {"blue"}, {"red"}]).save(path)
        assert self.read(path) == [("red",), ("gr\u00fcn", "red"), ()]

    @pytest.mark.parametrize(
        ("content", "named"),
        [
            (b"key\nx.png\n", "row 1 must name .* key and words"),
            (b"key,words,words\nx.png\n", "row 1 must name .* once"),
            (b"", "row 1 must name .* key and words"),
            (b"key,words\nx.png,a\nx.png,b\n", r"row 3 repeats the key 'x\.png'"),
            (b"key,words\nx.png,a\n,b\n", "row 3 has no key"),
            (b"key,words\nx.png\n", "row 2 .* cells"),
            (b"key,words\nx.png,a,b\n", "row 2 .* cells"),
            (b"key,words\nother.png,a\n", "table's 1 keys"),
            (f"key,words\n{FIRST},\n".encode(), "no image has any attribute"),
            (b"\xff\xfe\x00rubbish", "not UTF-8"),
        ],
    )
    def test_a_broken_file_names_its_row(self, tmp_path: Path, content: bytes, named: str) -> None:
        path = tmp_path / "words.csv"
        path.write_bytes(content)
        with pytest.raises(DataError, match=named):
            self.read(path)

    def test_sources_that_are_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="did you mean 'texture'"):
            self.read("column:textur")
        for suffix in ("csv", "parquet"):
            with pytest.raises(DataError, match="no such file"):
                self.read(tmp_path / f"no.{suffix}")
        with pytest.raises(OptionError, match=r"\.csv or \.parquet"):
            self.read(tmp_path / "words.txt")


def names_class(word: str, class_name: str) -> bool:
    """Return whether the word is taken from an image of the class."""
    pool = ImagePool(("a",), np.array([0]), (class_name,))
    words = AttributeTable.from_words(pool.keys, [{word, "@"}])
    left = without_class_words(pool.with_attributes(words)).attributes
    assert left is not None
    assert "@" in left.words_of(0)
    return word not in left.words_of(0)


class TestClassWords:
    @pytest.mark.parametrize(
        ("class_name", "words"),
        [
            ("001.Black_footed_Albatross", "black footed albatross"),
            ("n02099601 golden retriever", "golden retriever"),
            ("GoldenRetriever", "golden retriever"),
            ("Greek/character01", "greek character"),
            ("Bank_of_the_River", "bank river"),
            ("jack-o'-lantern", "jack o lantern"),
            ("carpenter's kit", "carpenter kit"),
            ("Cafe\u0301 Ole\u0301", "caf\u00e9 ol\u00e9"),  # as macOS stores names
        ],
    )
    def test_each_token_and_the_compound_name_the_class(self, class_name: str, words: str) -> None:
        assert all(names_class(word, class_name) for word in (words, *words.split()))
        assert not names_class(f"{words} bed", class_name)

    @pytest.mark.parametrize("class_name", ["n02099601", "0042", "the", ""])
    def test_a_name_without_words_is_named_by_none(self, class_name: str) -> None:
        assert not any(
            names_class(word, class_name) for word in ("the", "n", "42", class_name or "x")
        )

    @pytest.mark.parametrize(
        ("word", "class_name"),
        [
            ("dogs", "dog"), ("dog", "dogs"), ("Dog", "n02099601 dog"), ("houses", "house"),
            ("bus", "school_buses"), ("shoes", "running shoe"), ("tomatoes", "tomato"),
            ("wolves", "timber wolf"), ("cherries", "cherry"), ("mice", "mouse"),
            ("glasses", "beer glass"), ("axes", "axe"), ("benches", "park_bench"),
            ("moustaches", "moustache"), ("golden retrievers", "golden_retriever"),
            ("golden", "golden_retriever"), ("retriever golden", "GoldenRetriever"),
        ],
    )  # fmt: skip
    def test_words_that_name_the_class(self, word: str, class_name: str) -> None:
        assert names_class(word, class_name)

    @pytest.mark.parametrize(
        ("word", "class_name"),
        [
            ("cat", "dog"), ("dog bed", "dog"), ("gold", "golden_retriever"), ("of", "cup of tea"),
            ("glas", "glass"), ("bu", "bus"), ("doghouse", "dog"), ("n", "n02099601 dog"),
            ("5", "5"), ("albatros", "albatross"),
        ],
    )  # fmt: skip
    def test_words_that_do_not(self, word: str, class_name: str) -> None:
        assert not names_class(word, class_name)

    def test_words_leave_the_images_of_their_own_class_alone(self) -> None:
        classes = {
            "n1/golden_retriever": ["grass retrievers", "golden sofa", "grass"],
            "Grasses": ["grass retriever", "sofa"],
            "003": ["golden"],
        }
        whole = pool_of(classes)
        left = fsf.pool(dataset_of(whole), drop_class_words=True, progress=False)
        assert words_of(left.attributes) == {
            "000": {"grass"}, "001": {"sofa"}, "002": {"grass"},
            "003": {"retriever"}, "004": {"sofa"}, "005": {"golden"},
        }  # fmt: skip
        assert left.attributes.words == ("golden", "grass", "retriever", "sofa")


class Worded(Dataset):
    """Images that are never looked at."""

    def image(self, index: int) -> UInt8Array:
        raise AssertionError


def dataset_of(pool: fsf.ImagePool) -> Dataset:
    """Return the images of a pool as a data set, with their words."""
    data, words = Worded(), pool.attributes
    data.keys, data.labels, data.class_names = pool.keys, pool.labels, pool.class_names
    data.splits, data.fingerprint = {"test": pool.class_names}, pool.fingerprint
    data.metadata = {"words": tuple(";".join(words.words_of(i)) for i in range(len(pool)))}
    return data


def kept(table: AttributeTable, **choice: object) -> AttributeTable:
    """Return the table of a pool of these images that is given this one."""
    pool = fsf.ImagePool(table.keys, np.zeros(len(table), int), ("a",), {}, table)
    return fsf.pool(dataset_of(pool), attributes=table, progress=False, **choice).attributes


class TestDroppedWords:
    TABLE = AttributeTable.from_words(
        ["x", "y", "z"],
        [{f"w{i:02}" for i in range(20)}, {"w03", "w17"}, {"w03"}],
        {"detector": "d"},
        ["one", "two", "three"],
    )

    def test_rare_and_listed_words_go(self) -> None:
        left = kept(self.TABLE, min_count=2)
        assert words_of(left) == {"x": {"w03", "w17"}, "y": {"w03", "w17"}, "z": {"w03"}}
        assert (left.captions, dict(left.provenance)) == (self.TABLE.captions, {"detector": "d"})
        left = kept(self.TABLE, drop_words=("w03", "nothing"))
        assert (words_of(left)["y"], len(left.words)) == ({"w17"}, 19)

    def test_words_of_most_images_of_most_classes_go(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # "bird" is in most images of four classes, "twig" in half of them in each, and "sea" in
        # most images of three.
        images = ["bird twig sea", "bird twig", "bird sea", "sea"]
        classes = dict.fromkeys("abc", images) | {
            "d": ["bird twig", "bird twig", "bird"],
            "e": ["twig", "", ""],
        }
        data = dataset_of(pool_of(classes))
        for share, gone in ((0.59, {"bird", "sea"}), (0.61, {"bird"}), (0.81, set())):
            left = fsf.pool(data, drop_words_in_classes=share, progress=False)
            assert left.attributes is not None
            assert set(left.attributes.words) == {"bird", "sea", "twig"} - gone
        assert "drop_words_in_classes" not in capsys.readouterr().err
        fsf.pool(data)
        noted = capsys.readouterr().err
        assert "'bird'" in noted
        assert "4 of the 5 classes" in noted
        assert "drop_words_in_classes=0.8" in noted
        assert "sea" not in noted

    @pytest.mark.parametrize("share", [0, 1, -0.2, 80])
    def test_a_share_is_between_0_and_1(self, share: float) -> None:
        with pytest.raises(OptionError, match=f"drop_words_in_classes .* 0 and 1, not {share}"):
            fsf.pool(drop_words_in_classes=share)

    def test_all_words_can_go(self) -> None:
        left = kept(self.TABLE, min_count=4)
        assert (left.words, len(left), left.indices.size) == ((), 3, 0)

    def test_a_count_below_one_is_refused(self) -> None:
        with pytest.raises(OptionError, match="min_count must be at least 1, not 0"):
            kept(self.TABLE, drop_words=("w03",), min_count=0)
        with pytest.raises(OptionError, match="min_count must be at least 1, not 0"):
            fsf.pool(min_count=0)

    @settings(max_examples=40, deadline=None)
    @given(word_lists, st.integers(1, 4), st.sets(st.sampled_from("abcdefghij")))
    def test_against_sets(self, words: list[set[str]], least: int, drop: set[str]) -> None:
        wanted = {w for w in "abcdefghij" if sum(w in s for s in words) >= least} - drop
        table = AttributeTable.from_words([str(i) for i in range(len(words))], words)
        left = kept(table, min_count=least, drop_words=tuple(sorted(drop)))
        assert left.words == tuple(sorted(wanted))
        assert list(words_of(left).values()) == [s & wanted for s in words]
