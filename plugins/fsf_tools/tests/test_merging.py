"""Tables of parts of the images become one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsf_tools.attributes import _blocks
from fsf_tools.attributes.merging import merged
from fsframework.errors import DataError
from fsframework.values import AttributeTable


def words_of(table: AttributeTable | None) -> dict[str, set[str]]:
    assert table is not None
    return {key: set(table.words_of(i)) for i, key in enumerate(table.keys)}


class TestMerged:
    @staticmethod
    def part(words: dict[str, set[str]], **provenance: str) -> AttributeTable:
        return AttributeTable.from_words(tuple(words), list(words.values()), provenance)

    @pytest.mark.parametrize("block", [3, 1 << 20])
    def test_shards_in_any_order_make_the_whole(
        self, block: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_blocks, "_PAIRS_PER_BLOCK", block)
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
