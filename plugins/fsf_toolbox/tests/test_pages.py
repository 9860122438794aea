"""Pages of images with their words: which images, what stands on them, and what is refused."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fsf_tools.attributes import pages
from fsf_tools.attributes.pages import AttributePage, PageChoice, attribute_page
from fsframework.errors import DataError, OptionError
from fsframework.interfaces import Dataset
from fsframework.values import AttributeTable, UInt8Array


class Colours(Dataset):
    """Images 30 pixels high and 60 wide, each of one grey: ten a class, the first in no split."""

    fingerprint = "colours"

    def __init__(self) -> None:
        names = ("unused", "golden_dog", "cat <&> \"'")
        self.keys = tuple(f"{c}/{i}.png" for c in range(3) for i in range(10))
        self.labels = np.repeat(np.arange(3), 10)
        self.class_names = names
        self.splits = {"train": names[:1], "test": names[1:]}
        self.metadata = {}

    def image(self, index: int) -> UInt8Array:
        return np.full((30, 60, 3), 8 * index, np.uint8)


DATASET = Colours()
EVIL = '<script>alert("1")</script>'
WORDS = [{"grass", "dogs"} if i < 13 else {"sofa", "grass"} if i < 17 else set() for i in range(28)]
TABLE = AttributeTable.from_words(
    DATASET.keys[:28],  # the last two images are unknown to it
    [{*words, EVIL} if i == 10 else words for i, words in enumerate(WORDS)],
    {"model": "a <b> & c"},
    [f"Caption {i} & <more>" for i in range(28)],
)


class Page(HTMLParser):
    """What a browser would see: the elements, properly nested, and their text."""

    VOID = ("meta", "img")

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.text: dict[str, list[str]] = {}
        self.classes: dict[str, str] = {}
        self._attributes: dict[str, str | None] = {}
        self.tags: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._attributes = dict(attrs)
        if tag == "img":
            self.images.append(dict(attrs))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.text.setdefault(self.open[-1], []).append(data)
            if self.open[-1] == "li":
                self.classes[data] = self._attributes.get("class") or ""

    def grey(self, number: int) -> tuple[tuple[int, int], int]:
        source = self.images[number]["src"] or ""
        assert re.match(r"data:image/(png|jpeg);base64,", source)
        with Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))) as image:
            return image.size, int(np.asarray(image.convert("L")).mean())


def page(output: Path, **options: Any) -> AttributePage:
    return attribute_page(DATASET, "test", TABLE, output, PageChoice(**options))


class TestHtml:
    def test_images_come_with_their_own_class_caption_words_and_key(self, tmp_path: Path) -> None:
        path = tmp_path / "page.html"
        # Image i of the pool is image 10 + i of the data set, whose grey is 8 * (10 + i).
        found = page(path, class_name="golden_dog", n=99)
        assert found == AttributePage(path, 10, 10, 2)
        seen = Page(path)
        assert seen.open == []
        assert [seen.grey(i) for i in (0, 6)] == [((60, 30), 80), ((60, 30), 128)]
        assert seen.text["h2"] == ["golden_dog"] * 10
        assert seen.text["blockquote"] == [f"Caption {i} & <more>" for i in range(10, 20)]
        assert seen.text["code"] == [f"1/{i}.png" for i in range(10)]
        # Words that name the class come first, the others by name.
        dogs, sofas = ["dogs", "grass"] * 2, ["grass", "sofa"] * 4
        assert seen.text["li"] == ["dogs", EVIL, "grass", *dogs, *sofas]
        assert seen.classes["dogs"] == "naming"
        assert seen.classes["sofa"] == ""
        assert seen.text["p"][0] == "2 images of the split are not in the table of words."
        assert seen.text["p"][-3:] == ["no words"] * 3

    def test_nothing_that_comes_from_the_data_is_taken_for_html(self, tmp_path: Path) -> None:
        page(tmp_path / "page.html", n=100)
        seen = Page(tmp_path / "page.html")
        assert "script" not in seen.tags
        assert EVIL in seen.text["li"]
        assert "cat <&> \"'" in seen.text["h2"]
        assert seen.text["dd"] == ["a <b> & c"]
        text = re.sub(r'src="data:[^"]*"', "", (tmp_path / "page.html").read_text("utf-8"))
        assert not re.search(r"https?:|//|url\(|@import|src=|href=", text), "nothing is requested"

    def test_the_word_that_was_asked_for_comes_first_and_is_marked(self, tmp_path: Path) -> None:
        found = page(tmp_path / "page.html", word="sofa", n=2)
        assert (found.shown, found.matching) == (2, 4)
        seen = Page(tmp_path / "page.html")
        assert seen.text["h1"] == ["2 of the 4 images with the word 'sofa' in the split 'test'"]
        assert seen.text["li"] == ["sofa", "grass"] * 2
        assert seen.classes == {"sofa": "asked", "grass": ""}


class TestChoice:
    def chosen(self, tmp_path: Path, **options: Any) -> list[str]:
        page(tmp_path / "page.html", **options)
        return Page(tmp_path / "page.html").text["code"]

    def test_a_draw_depends_on_the_seed_and_is_in_order(self, tmp_path: Path) -> None:
        one, two = (self.chosen(tmp_path, n=6, seed=s) for s in (0, 1))
        assert one == sorted(one)
        assert one == self.chosen(tmp_path, n=6, seed=0) != two
        assert len(set(one)) == 6

    def test_class_and_word_narrow_the_choice_in_the_table(self, tmp_path: Path) -> None:
        assert self.chosen(tmp_path, n=99) == list(DATASET.keys[10:28])
        chosen = self.chosen(tmp_path, class_name="golden_dog", word="dogs")
        assert chosen == ["1/0.png", "1/1.png", "1/2.png"]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"class_name": "golden_dogs"}, r"no class .* \(did you mean 'golden_dog'\?\)"),
            ({"class_name": "unused"}, "the split 'test' has no class 'unused'"),
            ({"word": "Grass"}, r"has the word 'Grass' \(did you mean 'grass'\?\)"),
            ({"class_name": DATASET.class_names[2], "word": "sofa"}, "no image of class .* 'sofa'"),
            ({"n": 0}, "number of images must be at least 1, not 0"),
            ({"seed": -1}, "seed must be at least 0, not -1"),
        ],
    )
    def test_options_that_cannot_be(
        self, tmp_path: Path, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises((OptionError, DataError), match=message):
            page(tmp_path / "page.html", **options)
        assert not (tmp_path / "page.html").exists()


class TestPicture:
    def tile_grey(self, picture: Image.Image, column: int) -> int:
        left = 20 + column * 176
        return int(np.asarray(picture.convert("L"))[100:200, left + 5 : left + 155].mean())

    def test_each_image_is_drawn_in_its_place(self, tmp_path: Path) -> None:
        page(tmp_path / "page.png", class_name="golden_dog", word="dogs")
        with Image.open(tmp_path / "page.png") as picture:
            assert [self.tile_grey(picture, i) for i in range(4)] == [80, 88, 96, 255]

    def test_more_images_make_more_rows(self, tmp_path: Path) -> None:
        sizes = []
        for n in (6, 7):
            page(tmp_path / "page.png", n=n)
            with Image.open(tmp_path / "page.png") as picture:
                sizes.append(picture.size)
        assert sizes[0][0] == sizes[1][0]
        assert sizes[1][1] > sizes[0][1] + 160

    def test_many_and_long_words_and_captions_stay_in_their_place(self, tmp_path: Path) -> None:
        """No pixel is touched right of an image's column, whatever it is called."""
        words = [{f"word{i:02}" * (1 + i % 4) for i in range(40)}]
        table = AttributeTable.from_words(
            DATASET.keys[10:11], words, None, ["long " * 99 + "W" * 99]
        )
        path = tmp_path / "page.png"
        attribute_page(DATASET, "test", table, path)
        with Image.open(path) as picture:
            below = np.asarray(picture)[80:, 20 + 160 + 1 :]
        assert (below == 255).all()

    def test_too_many_for_a_picture(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pages, "_MOST_IN_A_PICTURE", 17)
        with pytest.raises(OptionError, match=r"18 images are too many .* write page\.html"):
            page(tmp_path / "page.png", n=99)
        assert page(tmp_path / "page.html", n=99).shown == 18
        with pytest.raises(OptionError, match=r"page\.pdf must end in \.png or \.html"):
            page(tmp_path / "page.pdf")
