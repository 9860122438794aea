"""Words that name a class, and tables without unwanted words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsframework.errors import OptionError
from fsframework.pipeline.attributes.filtering import (
    class_words,
    filtered,
    images_with_class_words,
    names_class,
    without_class_words,
)
from fsframework.values import AttributeTable
from tests.toys import pool_of

SHARED = Path(__file__).parents[4] / "shared"


def words_of(table: AttributeTable | None) -> dict[str, set[str]]:
    assert table is not None
    return {key: set(table.words_of(i)) for i, key in enumerate(table.keys)}


word_lists = st.lists(st.sets(st.sampled_from("abcdefghij")), min_size=1, max_size=12)


def table_of(words: list[set[str]]) -> AttributeTable:
    return AttributeTable.from_words([str(i) for i in range(len(words))], words)


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
