"""Counts of attributes worked out by hand, and how they are printed."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsf_tools.attributes import _blocks
from fsf_tools.attributes.cli._views import print_statistics
from fsf_tools.attributes.statistics import (
    SpuriousPair,
    WordsPerImage,
    attribute_statistics,
)
from fsframework.errors import DataError, InfeasibleTask, OptionError
from fsframework.values import ImagePool
from tests.toys import pool_of

SHARED = Path(__file__).parents[4] / "shared"


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
        cut = attribute_statistics(pool_of(self.POOL), most=1)
        assert (cut.commonest, cut.spurious_pairs) == (found.commonest[:1], 4)
        raw = json.loads(json.dumps(found.to_json()))
        assert raw["words_per_image"]["max"] == 3
        assert raw["commonest"][0]["share"] == 0.75
        assert [u["class_name"] for u in raw["unusable"]] == ["zebra", "bear", "ape"]

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
        reasons = {u.class_name: (u.images, u.reason) for u in found.unusable}
        assert list(reasons) == ["small", "bare", "full"]
        assert reasons["small"] == (3, "has 3 images, fewer than its shots and queries, 5")
        assert reasons["bare"] == (5, "none of its 5 images has a word")
        assert reasons["full"][1].endswith("nearest is 'y', present in 4 and absent from 1")
        harder = attribute_statistics(pool_of(classes), n_shot=3, n_query=2)
        [rare] = [u.reason for u in harder.unusable if u.class_name == "rare"]
        assert rare.endswith("nearest is 'b', present in 2 and absent from 3")

    @settings(max_examples=25, deadline=None)
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
        counted = f"only {found.usable_classes} of {found.classes} can be in a task"
        expected = counted if any(words for _, words in images) else "no image has any"
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
            patch.setattr(_blocks, "_PAIRS_PER_BLOCK", block)
            assert attribute_statistics(mixed, n_shot=1, n_query=1) == whole

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


def test_statistics_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    print_statistics(attribute_statistics(pool_of(TestStatistics.POOL), n_shot=1, n_query=3))
    text = capsys.readouterr().out
    for part in (
        "8 images in 3 classes; 2 (25.0 %) without a word",
        "3 unique words, 1.67 per class on average",
        "zebra  grass  3       75.00 %",
        "1 of 3 classes can form attribute-biased tasks of 5 ways, 1 shot and 3 queries",
        "bear: none of its 2 images has a word",
    ):
        assert part in text
