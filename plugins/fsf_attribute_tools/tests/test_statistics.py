"""Counts of attributes worked out by hand, agreement after Eq. 9, class words, cut and joined."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsframework.cli._attribute_views import print_agreement, print_statistics
from fsframework.errors import DataError, InfeasibleTask, OptionError
from fsframework.pipeline.attributes import statistics as attribute_stats
from fsframework.pipeline.attributes.statistics import (
    SpuriousPair,
    UnusableClass,
    WordCount,
    WordsPerImage,
    agreement,
    attribute_statistics,
    class_words,
    filtered,
    images_with_class_words,
    merged,
    names_class,
    without_class_words,
)
from fsframework.values import AttributeTable, ImagePool

SHARED = Path(__file__).parents[3] / "shared"


def pool_of(classes: dict[str, list[str]]) -> ImagePool:
    """Build a pool from the words of each class's images, a string an image."""
    names = tuple(classes)
    labels = np.repeat(np.arange(len(names)), [len(images) for images in classes.values()])
    words = [cell.split() for images in classes.values() for cell in images]
    keys = tuple(f"{i:03}" for i in range(len(words)))
    return ImagePool(keys, labels, names, {}, AttributeTable.from_words(keys, words))


def words_of(table: AttributeTable | None) -> dict[str, set[str]]:
    assert table is not None
    return {key: set(table.words_of(i)) for i, key in enumerate(table.keys)}


word_lists = st.lists(st.sets(st.sampled_from("abcdefghij")), min_size=1, max_size=12)


def table_of(words: list[set[str]]) -> AttributeTable:
    return AttributeTable.from_words([str(i) for i in range(len(words))], words)


class TestStatistics:
    # zebra: grass in 3 of 4, sky in 1, stripes in all; bear: none; ape: grass and sky in 1 of 2.
    POOL: ClassVar = {
        "zebra": ["grass stripes", "grass stripes sky", "grass stripes", "stripes"],
        "bear": ["", ""],
        "ape": ["sky", "grass"],
    }

    def test_of_a_small_pool_by_hand(self) -> None:
        found = attribute_statistics(pool_of(self.POOL), n_shot=1, n_query=1)
        assert (found.images, found.classes, found.images_without_words) == (8, 3, 2)
        assert (found.unique_words, found.pairs) == (3, 10)
        assert found.words_per_class == pytest.approx((3 + 0 + 2) / 3)
        assert found.words_per_image == WordsPerImage(10 / 8, 0, 1.0, 3)

    def test_spurious_pairs_are_in_some_images_but_not_in_all(self) -> None:
        found = attribute_statistics(pool_of(self.POOL))
        assert found.spurious_pairs == 4
        assert found.commonest == (
            SpuriousPair("zebra", "grass", 3, 0.75),
            SpuriousPair("ape", "grass", 1, 0.5),  # ties by class name, though ape comes last
            SpuriousPair("ape", "sky", 1, 0.5),
            SpuriousPair("zebra", "sky", 1, 0.25),
        )

    def test_most_cuts_the_list_and_not_the_count(self) -> None:
        found = attribute_statistics(pool_of(self.POOL), most=1)
        assert (len(found.commonest), found.spurious_pairs) == (1, 4)

    def test_a_class_that_can_form_no_task_is_named_with_the_reason(self) -> None:
        classes = {
            "fine": ["w", "w", "", "", ""],
            "small": ["w", "", ""],
            "bare": ["", "", "", "", ""],
            "rare": ["a", "b", "b c", "c d", ""],
            "full": ["x y", "x y", "x y", "x y", "x"],
        }
        found = attribute_statistics(pool_of(classes), n_shot=2, n_query=3)
        assert found.usable_classes == 2
        assert found.unusable == (
            UnusableClass("small", 3, "has 3 images, fewer than n_shot + n_query = 5"),
            UnusableClass("bare", 5, "none of its 5 images has a word"),
            UnusableClass(
                "full",
                5,
                "no word is present in 2 of its 5 images and absent from 3; nearest is 'y', "
                "present in 4 and absent from 1",
            ),
        )
        harder = attribute_statistics(pool_of(classes), n_shot=3, n_query=2)
        assert {u.class_name: u.reason for u in harder.unusable}["rare"] == (
            "no word is present in 3 of its 5 images and absent from 2; nearest is 'b', "
            "present in 2 and absent from 3"
        )

    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(st.tuples(st.integers(0, 3), st.sets(st.sampled_from("abcd"))), min_size=1),
        st.integers(1, 3),
        st.integers(1, 3),
    )
    def test_usable_classes_are_those_that_fewstab_draws(
        self, images: list[tuple[int, set[str]]], n_shot: int, n_query: int
    ) -> None:
        sampler = pytest.importorskip("fsf_samplers").FewStabSampler
        # Two classes that can form no task, so that the sampler can be asked for one too many.
        classes = {"bare": [""], "empty": [""]}
        for label, words in images:
            classes.setdefault(f"c{label}", []).append(" ".join(sorted(words)))
        pool = pool_of(classes)
        found = attribute_statistics(pool, n_shot=n_shot, n_query=n_query)
        assert {"bare", "empty"} <= {u.class_name for u in found.unusable}
        way = max(2, found.usable_classes + 1)
        with pytest.raises(InfeasibleTask) as raised:
            sampler(n_way=way, n_shot=n_shot, n_query=n_query).draw(pool, 1, 0)
        if any(words for _, words in images):
            expected = f"only {found.usable_classes} of {found.classes} can stand"
        else:
            expected = "no image has any"
        assert expected in str(raised.value)

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 2), st.sets(st.sampled_from("abcdefghij"))),
                    min_size=1, max_size=30), st.integers(1, 7))  # fmt: skip
    def test_blocks_change_nothing(self, images: list[tuple[int, set[str]]], block: int) -> None:
        classes: dict[str, list[str]] = {}
        for label, words in images:
            classes.setdefault(f"c{label}", []).append(" ".join(sorted(words)))
        pool = pool_of(classes)
        # Classes in turns, so that the pool is not sorted by class.
        order = np.argsort([hash_of(key) for key in pool.keys])
        keys = tuple(pool.keys[i] for i in order)
        assert pool.attributes is not None
        mixed = ImagePool(
            keys, pool.labels[order], pool.class_names, {}, pool.attributes.aligned(keys)
        )
        whole = attribute_statistics(pool, n_shot=1, n_query=1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attribute_stats, "_PAIRS_A_BLOCK", block)
            patch.setattr(attribute_stats, "_BYTES_A_BLOCK", block)
            assert attribute_statistics(mixed, n_shot=1, n_query=1) == whole

    def test_json_holds_every_field(self) -> None:
        raw = json.loads(json.dumps(attribute_statistics(pool_of(self.POOL)).to_json()))
        assert raw["words_per_image"]["max"] == 3
        assert raw["commonest"][0] == {
            "class_name": "zebra", "word": "grass", "images": 3, "share": 0.75,
        }  # fmt: skip
        assert [u["class_name"] for u in raw["unusable"]] == ["zebra", "bear", "ape"]

    def test_what_cannot_be_counted(self) -> None:
        pool = pool_of(self.POOL)
        with pytest.raises(OptionError, match="n_shot must be at least 1, not 0"):
            attribute_statistics(pool, n_shot=0)
        with pytest.raises(OptionError, match="most must be at least 0, not -1"):
            attribute_statistics(pool, most=-1)
        with pytest.raises(DataError, match="these images have no attributes"):
            attribute_statistics(ImagePool(pool.keys, pool.labels, pool.class_names))

    def test_a_table_without_any_word(self) -> None:
        found = attribute_statistics(pool_of({"a": ["", ""], "b": [""]}))
        assert (found.unique_words, found.words_per_class, found.usable_classes) == (0, 0.0, 0)
        assert found.words_per_image == WordsPerImage(0.0, 0, 0.0, 0)

    @pytest.mark.shared_data
    @pytest.mark.skipif(not SHARED.is_dir(), reason=f"the reference data is not at {SHARED}")
    def test_the_published_words_counted_by_sets(self) -> None:
        words: dict[str, list[set[str]]] = {}
        with (SHARED / "golden/fewstab_published/small_words.csv").open() as file:
            for row in csv.DictReader(file):
                words.setdefault(row["class"], []).append(set(row["words"].split(";")) - {""})
        pool = pool_of({c: [" ".join(sorted(w)) for w in images] for c, images in words.items()})
        found = attribute_statistics(pool)
        assert (found.images, found.classes) == (2000, 20)
        assert found.unique_words == len(set().union(*(w for i in words.values() for w in i)))
        assert found.words_per_class == np.mean([len(set().union(*i)) for i in words.values()])
        count = {
            (c, w): sum(w in image for image in images)
            for c, images in words.items()
            for w in set().union(*images)
        }
        spurious = {pair: n for pair, n in count.items() if n < len(words[pair[0]])}
        expected = sorted((-n, *pair) for pair, n in spurious.items())
        assert found.spurious_pairs == len(spurious)
        assert [(-p.images, p.class_name, p.word) for p in found.commonest] == expected[:20]


def hash_of(key: str) -> int:
    return int(key) * 7919 % 101


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


class TestAgreement:
    def test_eq_9_by_hand(self) -> None:
        a = AttributeTable.from_words(
            ["1", "2", "3", "4"], [{"dog", "grass"}, {"sofa"}, set(), {"only", "here"}]
        )
        b = AttributeTable.from_words(
            ["5", "3", "2", "1"], [{"far"}, {"lamp"}, {"sofa", "lamp"}, {"dog", "cat", "sky"}]
        )
        found = agreement(a, b)
        assert (found.images, found.a.images_only, found.b.images_only) == (3, 1, 1)
        # Images 1, 2, 3: intersections 1, 1, 0; a has 2, 1, 0 words, b has 3, 2, 1.
        assert found.a.accuracy == pytest.approx((1 / 3 + 1 / 2 + 0) / 3)
        assert found.b.accuracy == pytest.approx((1 / 2 + 1 / 1) / 2)
        assert (found.a.images_without_reference, found.b.images_without_reference) == (0, 1)
        # Of the common images: dog, grass, sofa; and cat, dog, lamp, sky, sofa.
        assert (found.a.words, found.b.words, found.shared_words) == (3, 5, 2)
        assert found.jaccard == pytest.approx(2 / 6)
        assert found.a.shared_share == pytest.approx(2 / 3)
        assert found.b.shared_share == pytest.approx(2 / 5)
        assert found.a.unique == (WordCount("grass", 1),)
        assert found.b.unique == (WordCount("lamp", 2), WordCount("cat", 1), WordCount("sky", 1))
        assert json.loads(json.dumps(found.to_json()))["b"]["unique"][0]["word"] == "lamp"

    def test_of_unique_words_the_commonest_ten_are_named(self) -> None:
        a = table_of([{f"w{i:02}" for i in range(14)}, {"w13"}])
        found = agreement(a, table_of([{"x"}, {"x"}]))
        assert found.a.unique_words == 14
        assert [w.word for w in found.a.unique] == ["w13", *(f"w{i:02}" for i in range(9))]

    @settings(max_examples=40, deadline=None)
    @given(word_lists)
    def test_a_table_agrees_with_itself(self, words: list[set[str]]) -> None:
        found = agreement(table_of(words), table_of(words))
        assert found.a.accuracy == found.b.accuracy == (1.0 if any(words) else None)
        assert found.jaccard == (1.0 if any(words) else None)
        assert found.a == found.b

    @settings(max_examples=60, deadline=None)
    @given(word_lists, word_lists, st.integers(1, 5))
    def test_against_sets_in_both_directions(
        self, one: list[set[str]], two: list[set[str]], block: int
    ) -> None:
        a, b = table_of(one), table_of(two)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attribute_stats, "_PAIRS_A_BLOCK", block)
            found, other = agreement(a, b), agreement(b, a)
        assert (other.a, other.b, other.jaccard) == (found.b, found.a, found.jaccard)
        ratios = [len(x & y) / len(y) for x, y in zip(one, two, strict=False) if y]
        assert found.a.accuracy == (pytest.approx(np.mean(ratios)) if ratios else None)

    def test_no_image_in_common(self) -> None:
        a, b = (AttributeTable.from_words([k], [{"w"}]) for k in ("a.png", "b.png"))
        with pytest.raises(DataError, match=r"no image is in both tables: .*'a\.png'.*'b\.png'"):
            agreement(a, b)


class TestMerged:
    @staticmethod
    def part(words: dict[str, set[str]], **provenance: str) -> AttributeTable:
        return AttributeTable.from_words(tuple(words), list(words.values()), provenance)

    @pytest.mark.parametrize("block", [3, 1 << 20])
    def test_shards_in_any_order_make_the_whole(
        self, block: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(attribute_stats, "_PAIRS_A_BLOCK", block)
        whole = {f"k{i}": {f"w{i % 3}", f"w{i % 11:02}"} for i in range(30)}
        keys = list(whole)
        shards = [
            (f"p{i}", self.part({k: whole[k] for k in keys[10 * i : 10 * i + 10]}, shard=f"{i}/3"))
            for i in range(3)
        ]
        expected = self.part(whole).fingerprint
        assert merged(shards).fingerprint == expected
        assert merged([shards[2], shards[0], shards[1]]).fingerprint == expected
        assert "shard" not in merged(shards).provenance
        assert merged(shards[1:]).provenance["shard"] == "1/3, 2/3"

    def test_words_of_tables_with_other_vocabularies(self) -> None:
        a, b = {"x": {"b", "z"}}, {"y": {"a", "b"}, "w": set()}
        assert words_of(merged([("a", self.part(a)), ("b", self.part(b))])) == a | b

    def test_an_image_with_equal_words_is_kept_once(self) -> None:
        a = AttributeTable.from_words(["x", "y"], [{"d"}, {"e"}], None, ["a d", "an e"])
        b = AttributeTable.from_words(["z", "y"], [{"f"}, {"e"}])
        both = merged([("a", a), ("b", b)])
        assert words_of(both) == {"x": {"d"}, "y": {"e"}, "z": {"f"}}
        assert both.captions == ("a d", "an e", "")

    def test_an_image_with_different_words_is_an_error(self) -> None:
        tables = [
            ("a.parquet", self.part({"x": {"d"}})),
            ("b.parquet", self.part({"z": {"f"}})),
            ("c.parquet", self.part({"q": set(), "x": {"d", "e"}})),
        ]
        message = (
            r"a\.parquet and c\.parquet: the image 'x' has different words in them; "
            r"only c\.parquet has 'e'"
        )
        with pytest.raises(DataError, match=message):
            merged(tables)

    def test_what_made_them_must_be_the_same(self) -> None:
        a = self.part({"x": {"d"}}, model="blip", shard="0/2", file="a")
        b = self.part({"y": {"d"}}, model="vit", shard="1/2", file="b")
        with pytest.raises(DataError, match="a and b were .* model is 'blip' in .* and 'vit' in"):
            merged([("a", a), ("b", b)])
        c = self.part({"y": {"d"}}, shard="1/2")
        with pytest.raises(DataError, match="model is 'blip' in the first and not given in the"):
            merged([("a", a), ("c", c)])

    def test_counts_of_images_add_up_where_no_image_is_counted_twice(self) -> None:
        a = self.part({"x": {"d"}, "y": {"e"}}, unreadable="1 of 3 images", shard="0/2")
        b = self.part({"z": {"d"}}, unreadable="2 of 3 images", shard="1/2")
        c = self.part({"w": {"d"}}, shard="1/2")
        assert dict(merged([("a", a), ("b", b)]).provenance) == {"unreadable": "3 of 6 images"}
        assert "unreadable" not in merged([("a", a), ("a again", a), ("b", b)]).provenance
        assert merged([("a", a), ("c", c)]).provenance["unreadable"] == "1 of 3 images"

    def test_a_merged_table_survives_its_file(self, tmp_path: Path) -> None:
        a, b = self.part({"x": {"d"}}, model="m"), self.part({"y": set()}, model="m")
        table = merged([("a", a), ("b", b)])
        table.save(tmp_path / "both.parquet")
        again = AttributeTable.load(tmp_path / "both.parquet")
        assert (again.fingerprint, again.provenance["model"]) == (table.fingerprint, "m")

    def test_nothing_to_merge(self) -> None:
        with pytest.raises(DataError, match="no table to merge"):
            merged([])


class TestViews:
    def test_statistics_in_words(self, capsys: pytest.CaptureFixture[str]) -> None:
        print_statistics(attribute_statistics(pool_of(TestStatistics.POOL), n_shot=1, n_query=3))
        text = capsys.readouterr().out
        assert "8 images in 3 classes; 2 (25.0 %) without a word, none with a word" in text
        assert "3 unique words, 1.67 a class on average" in text
        assert "zebra  grass  3       75.00 %" in text
        assert (
            "1 of 3 classes can stand in attribute-biased tasks of 5 ways, 1 shot and 3 queries"
            in text
        )
        assert "No attribute-biased tasks of 5 ways, 1 shot and 3 queries can be drawn" in text
        assert "bear: none of its 2 images has a word" in text

    def test_agreement_in_words(self, capsys: pytest.CaptureFixture[str]) -> None:
        a = AttributeTable.from_words(["x", "y", "z"], [{"dog"}, {"sofa"}, {"q"}])
        b = AttributeTable.from_words(["x", "y"], [{"dog", "lamp"}, set()])
        print_agreement(agreement(a, b), "vit.csv", "blip.csv")
        text = capsys.readouterr().out
        assert "2 images in both tables" in text
        assert "1 image in vit.csv alone, left out" in text
        assert "1 image without a word in blip.csv cannot be judged by it and is left out" in text
        rows = [line.split() for line in text.splitlines() if "csv" in line]
        assert rows[1] == ["vit.csv", "50.00", "%", "blip.csv", "2", "50.00", "%", "1"]
        assert rows[2] == ["blip.csv", "50.00", "%", "vit.csv", "2", "50.00", "%", "1"]
        assert "Commonest words of blip.csv alone, with their images: lamp (1)" in text
