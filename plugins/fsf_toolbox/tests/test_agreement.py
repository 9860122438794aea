"""Agreement of two tables after Eq. 9, and how it is printed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsf_tools.attributes import _blocks
from fsf_tools.attributes.agreement import WordCount, agreement
from fsf_tools.attributes.cli._views import print_agreement
from fsframework.errors import DataError
from fsframework.values import AttributeTable

word_lists = st.lists(st.sets(st.sampled_from("abcdefghij")), min_size=1, max_size=12)


def table_of(words: list[set[str]]) -> AttributeTable:
    return AttributeTable.from_words([str(i) for i in range(len(words))], words)


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
            patch.setattr(_blocks, "_PAIRS_PER_BLOCK", block)
            found, other = agreement(a, b), agreement(b, a)
        assert (other.a, other.b, other.jaccard) == (found.b, found.a, found.jaccard)
        ratios = [len(x & y) / len(y) for x, y in zip(one, two, strict=False) if y]
        assert found.a.accuracy == (pytest.approx(np.mean(ratios)) if ratios else None)

    def test_no_image_in_common(self) -> None:
        a, b = (AttributeTable.from_words([k], [{"w"}]) for k in ("a.png", "b.png"))
        with pytest.raises(DataError, match=r"no image is in both tables: .*'a\.png'.*'b\.png'"):
            agreement(a, b)

    def test_agreement_in_words(self, capsys: pytest.CaptureFixture[str]) -> None:
        a = AttributeTable.from_words(["x", "y", "z"], [{"dog"}, {"sofa"}, {"q"}])
        b = AttributeTable.from_words(["x", "y"], [{"dog", "lamp"}, set()])
        print_agreement(agreement(a, b), "vit.csv", "blip.csv")
        text = capsys.readouterr().out
        assert "2 images in both tables" in text
        assert "1 image only in vit.csv, left out" in text
        assert "1 image without a word in blip.csv cannot be evaluated" in text
        rows = [line.split() for line in text.splitlines() if "csv" in line]
        assert rows[1] == ["vit.csv", "50.00", "%", "blip.csv", "2", "50.00", "%", "1"]
        assert rows[2] == ["blip.csv", "50.00", "%", "vit.csv", "2", "50.00", "%", "1"]
        assert "Most common words that only blip.csv has, with numbers of images: lamp (1)" in text
