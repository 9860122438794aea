"""Words compared with what images are known to show, and what their errors do to tasks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import fsframework
from fsf_tools import detection_errors, effect_of_errors
from fsframework.errors import DataError, OptionError
from fsframework.values import AttributeTable
from tests.conftest import Fsf

CAPTIONS = """key,place,caption
a,water,A duck on a LAKE.
b,water,two ducks
c,water,"waves of the sea, at sunset"
d,land,a tree by the lake
e,land,trees
"""


def truth(fsf: Fsf, *arguments: str) -> dict[str, Any]:
    done = fsf("attributes", "truth", *arguments, "--seeds", "0", "--json")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def counts(errors: dict[str, Any]) -> list[tuple[int, int]]:
    return [(errors[name]["count"], errors[name]["of"]) for name in ("recall", "false_alarms")]


def test_words_in_captions_by_hand(fsf: Fsf, tmp_path: Path) -> None:
    (tmp_path / "captions.csv").write_text(CAPTIONS)
    meaning = ("--words", "water=lake, sea,sea shore", "--words", "land=tree")
    told = truth(fsf, "captions.csv", "--column", "place", *meaning)
    water, land = told["values"]
    assert counts(water) == [(2, 3), (1, 2)]
    assert counts(land) == [(1, 2), (0, 3)]  # "trees" is another word
    assert [(w["word"], *counts(w)) for w in water["words"]] == [
        ("lake", (1, 3), (1, 2)), ("sea", (1, 3), (0, 2)), ("sea shore", (0, 3), (0, 2)),
    ]  # fmt: skip
    assert counts(told) == [(3, 5), (1, 5)]
    # Wilson, 2 of 3: (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n)
    assert water["recall"]["low"] == pytest.approx(0.2077, abs=1e-4)
    assert water["recall"]["high"] == pytest.approx(0.9385, abs=1e-4)
    assert told["unused_words"] == ["sea shore"]
    assert "sea shore" in told["notes"][0]
    one = truth(fsf, "captions.csv", "--column", "place", "--words", "land=tree")
    assert (one["values"], one["other_values"]) == ([land], ["water"])


def test_the_truth_may_be_in_another_file_and_have_several_values(fsf: Fsf, tmp_path: Path) -> None:
    table = AttributeTable.from_words(["z", "a", "b", "c"], [["cat"], ["cat", "sofa"], ["dog"], []])
    table.save(tmp_path / "words.parquet")
    (tmp_path / "coco.csv").write_text("objects,key\ncat;sofa,a\ncat; dog,b\n,c\ndog,y\n")
    told = truth(fsf, "words.parquet", "--truth", "coco.csv", "--column", "objects")
    assert [(v["value"], *counts(v)) for v in told["values"]] == [
        ("cat", (1, 2), (0, 1)), ("dog", (1, 1), (0, 2)), ("sofa", (1, 1), (0, 2)),
    ]  # fmt: skip
    assert counts(told) == [(3, 4), (0, 5)]
    # The ratio's residuals are 1/2, -1/2 and 0 for a total of 4 pairs.
    assert told["recall"]["low"] == pytest.approx(max(0, 0.75 - 4.3027 * 0.5**0.5 / 4), abs=1e-4)
    assert (told["images"], told["images_without_truth"], told["images_without_words"]) == (3, 1, 1)


def test_a_column_of_a_data_set_is_a_truth(fsf: Fsf, tmp_path: Path) -> None:
    data = {"name": "planted", "n_per_class": 2, "size": 16}
    table = fsframework.pool(data, split="all", attributes="column:words").attributes
    assert table is not None
    table.save(tmp_path / "words.parquet")
    told = truth(fsf, "words.parquet", "--truth", "planted", "--column", "background")
    assert [v["value"] for v in told["values"]][:2] == ["brick", "lavender"]
    assert (told["recall"]["share"], told["false_alarms"]["share"]) == (1.0, 0.0)
    assert told["images"] == 200


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("captions.csv", "--column", "plaice"), ("'plaice'", "'place'", "captions.csv")),
        (("captions.csv", "--column", "place", "--words", "water="), ("--words", "water=")),
        (("captions.csv", "--column", "place", "--words", "lake"), ("--words", "VALUE=WORD")),
        (("captions.csv", "--column", "place", "--words", "wader=sea"), ("'wader'", "'water'")),
        (("none.csv", "--column", "place"), ("none.csv",)),
        (("words.parquet", "--column", "place"), ("words.parquet", "--truth")),
        (("captions.csv", "--truth", "other.csv", "--column", "place"), ("'a'", "'x'")),
        (("other.csv", "--column", "place"), ("other.csv", "caption", "place")),
        (("coded.csv", "--column", "a"), ("--words 0=", "--words 1=", " a ")),
        (("captions.csv", "--truth", "planted", "--column", "place"), ("place", "background")),
    ],
)
def test_bad_input_is_named(
    fsf: Fsf, tmp_path: Path, arguments: tuple[str, ...], named: tuple[str, ...]
) -> None:
    (tmp_path / "captions.csv").write_text(CAPTIONS)
    (tmp_path / "other.csv").write_text("key,place\nx,water\n")
    (tmp_path / "coded.csv").write_text("key,a,caption\nx,1,a lake\ny,0,a tree\n")
    AttributeTable.from_words(["a"], [["sea"]]).save(tmp_path / "words.parquet")
    done = fsf("attributes", "truth", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert all(name in done.stderr for name in named), done.stderr


def test_an_interval_of_nothing_has_a_width(fsf: Fsf, tmp_path: Path) -> None:
    (tmp_path / "captions.csv").write_text(CAPTIONS)
    told = truth(fsf, "captions.csv", "--column", "place", "--words", "water=duck")
    assert counts(told) == [(1, 3), (0, 2)]
    # Wilson, 0 of n: z² / (n + z²) with z = 1.96
    two, five = (3.8415 / (n + 3.8415) for n in (2, 5))
    assert told["false_alarms"]["low"] == 0
    assert told["false_alarms"]["high"] == pytest.approx(two, abs=1e-4)
    both = ("--words", "water=boat", "--words", "land=car")
    none = truth(fsf, "captions.csv", "--column", "place", *both)
    for rate in (none["recall"], none["false_alarms"]):
        assert (rate["count"], rate["of"], rate["low"]) == (0, 5, 0)
        assert rate["high"] == pytest.approx(five, abs=1e-4)


def test_of_tables_in_python() -> None:
    words = AttributeTable.from_words(["a", "b"], [["sea"], []])
    values = AttributeTable.from_words(["b", "a"], [["water"], ["water"]])
    found = detection_errors(words, values, {"water": ["sea"]})
    assert found.recall.share == 0.5
    assert found.false_alarms.share is None  # every image has the only value
    with pytest.raises(DataError, match="'c'"):
        detection_errors(AttributeTable.from_words(["c"], [[]]), values)


@pytest.mark.usefixtures("shared_cache")
class TestSimulation:
    def test_right_words_change_nothing(self) -> None:
        found = effect_of_errors([(1.0, 0.0)], seeds=1, tasks=10)
        assert (found.wrong_tasks.value, found.false_support.value) == (0, 0)
        assert (found.true_queries.value, found.lost.value) == (0, 0)
        assert found.true_gap == found.detected_gap

    def test_wrong_words_make_wrong_tasks_and_hide_the_gap(self) -> None:
        found = effect_of_errors([(0.8, 0.1), (0.8, 0.2)], seeds=2, tasks=40)
        # Of 32 words, an image has about 4.8. Of the images that are given a word, far more than
        # 1 - 0.8 lack it: the word is rarely true.
        assert 0.25 < found.false_support.value < 0.65
        assert 0 < found.true_queries.value < 0.2
        assert found.wrong_tasks.value == 1
        assert found.true_gap.value > found.detected_gap.value
        assert found.lost.low is not None
        assert found.lost.low < found.lost.value < 1
        assert found.lost.value == pytest.approx(
            1 - found.detected_gap.value / found.true_gap.value
        )

    def test_rates_outside_0_to_1(self) -> None:
        with pytest.raises(OptionError, match=r"1\.5"):
            effect_of_errors([(1.5, 0.0)])

    def test_the_command_prints_it_or_says_why_not(self, fsf: Fsf, tmp_path: Path) -> None:
        (tmp_path / "captions.csv").write_text(CAPTIONS)
        given = ("attributes", "truth", "captions.csv", "--column", "place", "--seeds", "1")
        done = fsf(*given, "--words", "water=desert")
        assert done.returncode == 0, done.stderr
        assert "desert" in done.stdout
        assert "no tasks can be drawn" in done.stdout
        told = json.loads(fsf(*given, "--words", "land=tree", "--json").stdout)
        assert told["tasks"]["seeds"] == 1
        assert told["tasks"]["true_queries"]["value"] > 0


SHARED = Path(os.environ.get("FSF_GOLDEN", Path(__file__).parents[4] / "shared/golden")).parent


@pytest.mark.shared_data
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the reference data is not at {SHARED}")
def test_recall_and_false_alarms_of_blip_on_waterbirds(fsf: Fsf) -> None:
    """The reference is a count by hand: water 0.816 and 0.025, land 0.820 and 0.124."""
    meaning = (
        "--words", "1=water,ocean,sea,lake,beach,river,pond,boat,wave",
        "--words", "0=forest,tree,trees,woods,bamboo,jungle,grass,field,bush,leaves,mountain",
    )  # fmt: skip
    file = SHARED / "data/captions/waterbirds_blip.csv"
    told = truth(fsf, str(file), "--column", "a", *meaning)
    shares = [
        (round(v["recall"]["share"], 3), round(v["false_alarms"]["share"], 3))
        for v in told["values"]
    ]
    assert shares == [(0.816, 0.025), (0.82, 0.124)]
