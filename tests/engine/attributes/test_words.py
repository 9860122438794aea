"""Tables of words that are read, words that name a class, and tables without unwanted words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fsframework as fsf
from fsframework.engine.words import (
    class_words,
    filtered,
    images_with_class_words,
    names_class,
    without_class_words,
)
from fsframework.errors import DataError, OptionError
from fsframework.values import AttributeTable
from tests.toys import Blobs, pool_of


def words_of(table: AttributeTable | None) -> dict[str, set[str]]:
    assert table is not None
    return {key: set(table.words_of(i)) for i, key in enumerate(table.keys)}


word_lists = st.lists(st.sets(st.sampled_from("abcdefghij")), min_size=1, max_size=12)


def table_of(words: list[set[str]]) -> AttributeTable:
    return AttributeTable.from_words([str(i) for i in range(len(words))], words)


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


class TestClassWords:
    @pytest.mark.parametrize(
        ("class_name", "words"),
        [
            ("001.Black_footed_Albatross", {"black", "footed", "albatross"}),
            ("n02099601 golden retriever", {"golden", "retriever"}),
            ("golden_retriever", {"golden", "retriever"}),
            ("GoldenRetriever", {"golden", "retriever"}),
            ("Greek/character01", {"greek", "character"}),
            ("Bank_of_the_River", {"bank", "river"}),
            ("jack-o'-lantern", {"jack", "o", "lantern"}),
            ("carpenter's kit", {"carpenter", "kit"}),
            ("Cafe\u0301 Ole\u0301", {"caf\u00e9", "ol\u00e9"}),  # as macOS stores names
        ],
    )
    def test_tokens_and_the_compound(self, class_name: str, words: set[str]) -> None:
        found = class_words(class_name)
        assert words < found
        (compound,) = found - words
        assert set(compound.split()) == words
        assert compound.split() == sorted(words, key=compound.split().index)

    @pytest.mark.parametrize("class_name", ["n02099601", "0042", "the", ""])
    def test_a_name_without_words_has_none(self, class_name: str) -> None:
        assert class_words(class_name) == frozenset()
        assert not names_class("the", class_name)

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
        pool = pool_of(
            {
                "n1/golden_retriever": ["grass retrievers", "golden sofa", "grass"],
                "Grasses": ["grass retriever", "sofa"],
                "003": ["golden"],
            }
        )
        assert images_with_class_words(pool).tolist() == [True, True, False, True, False, False]
        left = without_class_words(pool)
        assert words_of(left.attributes) == {
            "000": {"grass"}, "001": {"sofa"}, "002": {"grass"},
            "003": {"retriever"}, "004": {"sofa"}, "005": {"golden"},
        }  # fmt: skip
        assert not images_with_class_words(left).any()
        assert left.attributes is not None
        assert filtered(left.attributes).words == ("golden", "grass", "retriever", "sofa")

    def test_nothing_to_take_away_gives_the_pool_itself(self) -> None:
        pool = pool_of({"dog": ["cat"], "cat": ["sofa"]})
        assert without_class_words(pool) is pool


class TestFiltered:
    TABLE = AttributeTable.from_words(
        ["x", "y", "z"],
        [{f"w{i:02}" for i in range(20)}, {"w03", "w17"}, {"w03"}],
        {"detector": "d"},
        ["one", "two", "three"],
    )

    def test_rare_words_go(self) -> None:
        left = filtered(self.TABLE, min_count=2)
        assert left.words == ("w03", "w17")
        assert words_of(left) == {"x": {"w03", "w17"}, "y": {"w03", "w17"}, "z": {"w03"}}
        assert (left.captions, dict(left.provenance)) == (self.TABLE.captions, {"detector": "d"})

    def test_listed_words_go_and_unknown_ones_are_passed_over(self) -> None:
        left = filtered(self.TABLE, drop=frozenset({"w03", "nothing"}))
        assert words_of(left)["y"] == {"w17"}
        assert len(left.words) == 19

    def test_words_that_no_image_has_go(self) -> None:
        table = AttributeTable(("x",), ("a", "b"), np.array([[2]], np.uint8))
        assert filtered(table).words == ("b",)

    def test_all_words_can_go(self) -> None:
        left = filtered(self.TABLE, min_count=4)
        assert (left.words, left.bits.shape) == ((), (3, 0))

    def test_nothing_to_drop_gives_the_table_itself(self) -> None:
        assert filtered(self.TABLE) is self.TABLE

    def test_a_count_below_one_is_refused(self) -> None:
        with pytest.raises(OptionError, match="min_count must be at least 1, not 0"):
            filtered(self.TABLE, min_count=0)

    @settings(max_examples=40, deadline=None)
    @given(word_lists, st.integers(1, 4), st.sets(st.sampled_from("abcdefghij")))
    def test_against_sets(self, words: list[set[str]], least: int, drop: set[str]) -> None:
        kept = {w for w in "abcdefghij" if sum(w in s for s in words) >= least} - drop
        left = filtered(table_of(words), min_count=least, drop=frozenset(drop))
        assert left.words == tuple(sorted(kept))
        assert list(words_of(left).values()) == [s & kept for s in words]
