"""Published data sets with contexts, as miniatures of the trees that their authors distribute."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fsf_datasets import Declared
from fsframework.components.registry import Registry
from fsframework.interfaces import DataError
from fsframework.testing import check_component


def read(name: str, path: Path, **options: Any) -> Declared:
    found: Declared = Registry().load("dataset", name)(path=path, **options)
    return found


def fill(root: Path, files: Iterable[str], **texts: str) -> Path:
    """Write images of differing colours, and text files named by ``texts``."""
    for number, file in enumerate(files):
        place = root / file
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number % 256, 90, 200)).save(place)
    for name, text in texts.items():
        (root / f"{name}.{'csv' if ',' in text else 'txt'}").write_text(text)
    return root


DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
PLACES = ("beach", "desert", "dirt", "jungle", "mountain", "snow")


def pacs(root: Path) -> Path:
    files = [
        f"kfold/{domain}/{name}/pic_{i:03d}.jpg"
        for domain in DOMAINS
        for name in ("dog", "guitar")
        for i in (1, 2)
    ]
    lists = {
        f"photo_{part}_kfold": f"photo/dog/pic_00{i}.jpg 1\nphoto/guitar/pic_00{i}.jpg 4\n"
        for part, i in (("train", 1), ("crossval", 2))
    }
    return fill(root, files, **lists)


BIRDS = (
    "1,001.Black_footed_Albatross/Albatross_1.jpg,1,2,1,/o/ocean/00004600.jpg",
    "2,001.Black_footed_Albatross/Albatross_2.jpg,1,0,0,/b/bamboo_forest/00003975.jpg",
    "3,009.Brewer_Blackbird/Blackbird_1.jpg,0,2,1,/l/lake/natural/00000065.jpg",
    "4,009.Brewer_Blackbird/Blackbird_2.jpg,0,2,0,/f/forest/broadleaf/00000001.jpg",
)
HEADER = "img_id,img_filename,y,split,place,place_filename"


def waterbirds(root: Path) -> Path:
    files = [row.split(",")[1] for row in BIRDS]
    return fill(root, files, metadata="\n".join([HEADER, *BIRDS]))


ATTRIBUTES = "Blond_Hair Eyeglasses Male Smiling Wearing_Hat"
FACES = ("1 -1 -1 1 -1", "-1 1 1 1 1", "1 -1 1 -1 -1", "-1 -1 -1 -1 1")
"""A blond woman who smiles, and so on."""


def celeba(root: Path, persons: bool = True) -> Path:
    names = [f"{i:06d}.jpg" for i in range(1, 5)]
    rows = [f"{name}  {cells}" for name, cells in zip(names, FACES, strict=True)]
    texts = {
        "list_attr_celeba": "\n".join(["4", f"{ATTRIBUTES} ", *rows]),
        "list_eval_partition": "\n".join(f"{n} {p}" for n, p in zip(names, "0122", strict=True)),
    }
    if persons:
        texts["identity_CelebA"] = "\n".join(f"{n} {9 - i // 2}" for i, n in enumerate(names))
    return fill(root, [f"img_align_celeba/{name}" for name in names], **texts)


def metashift(root: Path) -> Path:
    sets = {"cat(sofa)": (1, 2), "cat(keyboard)": (2, 3), "dog(sofa)": (2, 4), "dog(boat)": (5,)}
    return fill(
        root / "MetaDataset-full",
        [f"{name[:3]}/{name}/{i}.jpg" for name, ids in sets.items() for i in ids],
    )


def nico(root: Path) -> Path:
    files = [
        f"train/{where}/{name}/{where}_{i}.jpg"
        for where in ("autumn", "rock")
        for name in ("train", "hot air balloon")
        for i in (1, 2)
    ]
    return fill(root / "public_dg_0416", [*files, "public_test_flat/1.jpg"])


def spawrious(root: Path) -> Path:
    folders = [f"{half}/{place}/{dog}" for half in "01" for place in PLACES for dog in DOGS]
    files = [f"{folder}/{folder.replace('/', '_')}.png" for folder in folders]
    return fill(root / "spawrious224", [*files, "domain_adaptation_ds/snow/corgi/9.png"])


DOGS = ("bulldog", "corgi", "dachshund", "labrador")
KINDS = ("urban", "country")


def urbancars(root: Path) -> Path:
    groups = [
        f"obj-{car}_bg-{back}_co_occur_obj-{beside}"
        for car in KINDS
        for back in KINDS
        for beside in KINDS
    ]
    for part, ratio in (("train", 0.95), ("val", 0.5), ("test", 0.5)):
        folder = root / f"bg-{ratio}_co_occur_obj-{ratio}" / part
        ends = (".jpg", "_mask.png", "_co_occur_obj_mask.png")
        fill(folder, [f"{group}/000{end}" for group in groups for end in ends])
    return root


def caltech(root: Path) -> Path:
    names = ("accordion", "BACKGROUND_Google", "Faces", "Faces_easy", "yin_yang")
    return fill(
        root / "101_ObjectCategories", [f"{n}/image_000{i}.jpg" for n in names for i in (1, 2)]
    )


def renditions(root: Path) -> Path:
    kinds = ("art_0", "sketch_12", "videogame_3")
    return fill(
        root / "imagenet-r",
        [f"{n}/{kind}.jpg" for n in ("n01443537", "n02106662") for kind in kinds],
    )


def sketches(root: Path) -> Path:
    return fill(
        root / "sketch",
        [f"{n}/sketch_{i}.JPEG" for n in ("n01440764", "n02106662") for i in (1, 2)],
    )


def counteranimal(root: Path) -> Path:
    groups = {"9 ostrich": ("ground", "water"), "296 ice bear": ("snow", "grass")}
    files = [
        f"{animal}/{kind}-{where}/{i}.jpg"
        for animal, both in groups.items()
        for kind, where in zip(("common", "counter"), both, strict=True)
        for i in (1, 2)
    ]
    return fill(root / "LAION-final", files)


FACTORS = (
    '{"file_name":"ILSVRC2012_val_00004487.JPEG","class":762,"background":1,"color":0,"pose":1,'
    '"justification":"near, fried","one_word":"close"}',
    '{"file_name":"ILSVRC2012_val_00003963.JPEG","class":1,"background":0,"color":1,"pose":0,'
    '"justification":"sepia","one_word":"sepia"}',
)


def imagenet_x(root: Path) -> Path:
    fill(root, [f"val/n0000000{i}/ILSVRC2012_val_0000{n}.JPEG" for i, n in enumerate((4487, 3963))])
    (root / "imagenet_x_val_multi_factor.jsonl").write_text("\n".join(FACTORS))
    return root


MINIATURES: dict[str, tuple[Any, set[str], set[str]]] = {
    "pacs": (pacs, {"dog", "guitar"}, set(DOMAINS)),
    "waterbirds": (
        waterbirds, {"001.Black_footed_Albatross", "009.Brewer_Blackbird"}, {"land", "water"},
    ),
    "celeba": (celeba, {"blond", "not blond"}, {"female", "male"}),
    "metashift": (metashift, {"cat", "dog"}, {"sofa", "keyboard", "boat"}),
    "nico-plus-plus": (nico, {"train", "hot air balloon"}, {"autumn", "rock"}),
    "spawrious": (spawrious, set(DOGS), set(PLACES)),
    "urbancars": (urbancars, set(KINDS), set(KINDS)),
    "caltech101": (caltech, {"accordion", "Faces", "Faces_easy", "yin_yang"}, set()),
    "imagenet-r": (renditions, {"n01443537", "n02106662"}, {"art", "sketch", "videogame"}),
    "imagenet-sketch": (sketches, {"n01440764", "n02106662"}, set()),
    "imagenet-x": (imagenet_x, {"1", "762"}, set()),
    "counteranimal": (counteranimal, {"9 ostrich", "296 ice bear"}, {"common", "counter"}),
}  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", MINIATURES)
def test_a_miniature_has_its_classes_and_contexts_and_is_incomplete(
    name: str, root: Path, tmp_path: Path
) -> None:
    make, classes, contexts = MINIATURES[name]
    make(root)
    data = read(name, root)
    assert set(data.class_names) == classes
    assert set(data.metadata.get("context", ())) == contexts
    assert any("published" in problem for problem in data.problems())
    assert not any("left out" in problem for problem in data.problems())
    if name in ("waterbirds", "celeba", "metashift", "urbancars"):
        results = check_component(partial(read, name, root), "dataset")
        assert [f"{r.name}: {r.message}" for r in results if not r.passed] == []
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        for file in sorted(p for p in root.rglob("*") if p.is_file()):
            archive.write(file, file.relative_to(root.parent))
    packed = read(name, tmp_path / "data.zip")
    assert (packed.keys, packed.splits, packed.metadata) == (data.keys, data.splits, data.metadata)
    assert np.array_equal(packed.image(0), data.image(0))


def test_wrong_counts_name_split_class_and_context(root: Path) -> None:
    problems = read("pacs", pacs(root)).problems()
    assert "split test: 16 images of 2 classes, published 9,991 of 7" in problems
    assert any("'dog' 8 (published 1,729), 'guitar' 8 (published 1,113)" in p for p in problems)
    assert any("4 contexts" in p and "'cartoon' 4 (published 2,344)" in p for p in problems)


def test_lists_of_the_authors_are_a_column(root: Path) -> None:
    data = read("pacs", pacs(root))
    parts = dict(zip(data.keys, data.metadata["part"], strict=True))
    assert parts["photo/dog/pic_001.jpg"] == "train"
    assert parts["photo/guitar/pic_002.jpg"] == "val"
    assert parts["sketch/dog/pic_001.jpg"] == ""
    for file in root.glob("*.txt"):
        file.unlink()
    assert "part" not in read("pacs", root).metadata


def test_waterbirds_has_species_or_two_classes(root: Path) -> None:
    waterbirds(root)
    data = read("waterbirds", root, split="feat")
    assert data.metadata["context"] == ("water", "land", "water", "land")
    assert data.metadata["words"] == ("ocean", "bamboo_forest", "lake", "forest")
    assert data.metadata["part"] == ("test", "train", "test", "test")
    both = read("waterbirds", root, split="two-classes")
    assert both.splits == {"test": ("landbird", "waterbird")}
    assert [both.class_names[label] for label in both.labels] == ["waterbird"] * 2 + [
        "landbird"
    ] * 2
    test = read("waterbirds", root, split="two-classes-test")
    assert test.pool("test").class_sizes.tolist() == [2, 1]
    assert any("'landbird' 2 (published 4,510)" in problem for problem in test.problems())


def test_celeba_has_hair_or_persons(root: Path) -> None:
    celeba(root)
    data = read("celeba", root)
    own = {key[-5:]: words for key, words in zip(data.keys, data.metadata["words"], strict=True)}
    assert own == {
        "1.jpg": "smiling",
        "2.jpg": "eyeglasses;male;smiling;wearing hat",
        "3.jpg": "male",
        "4.jpg": "wearing hat",
    }
    test = read("celeba", root, split="hair-test")
    assert sorted(key[-5:] for key in test.keys) == ["3.jpg", "4.jpg"]
    persons = read("celeba", root, split="identities")
    assert persons.class_names == ("8", "9")
    assert persons.metadata["smiling"].count("smiling") == 2
    (root / "identity_CelebA.txt").unlink()
    with pytest.raises(DataError, match="split 'identities' needs the identity of each image"):
        read("celeba", root, split="identities")


def test_celeba_from_tables_with_commas(root: Path) -> None:
    celeba(root, persons=False)
    want = read("celeba", root)
    for file in list(root.glob("*.txt")):
        rows = [line.split() for line in file.read_text().splitlines()]
        if len(rows[0]) == 1:
            rows = [["image_id", *rows[1]], *rows[2:]]
        else:
            rows = [["image_id", "partition"], *rows]
        file.unlink()
        file.with_suffix(".csv").write_text("\n".join(map(",".join, rows)))
    data = read("celeba", root)
    assert (data.keys, data.metadata) == (want.keys, want.metadata)


def test_an_image_of_several_contexts_is_used_once(root: Path) -> None:
    data = read("metashift", metashift(root))
    rows = zip(data.keys, data.metadata["context"], data.metadata["words"], strict=True)
    assert {key: (context, words) for key, context, words in rows} == {
        "cat/cat(keyboard)/2.jpg": ("keyboard", "keyboard;sofa"),
        "cat/cat(keyboard)/3.jpg": ("keyboard", "keyboard"),
        "cat/cat(sofa)/1.jpg": ("sofa", "sofa"),
        "dog/dog(boat)/5.jpg": ("boat", "boat"),
        "dog/dog(sofa)/2.jpg": ("sofa", "sofa"),
        "dog/dog(sofa)/4.jpg": ("sofa", "sofa"),
    }


def test_factors_are_words(root: Path) -> None:
    data = read("imagenet-x", imagenet_x(root))
    words = dict(zip(data.keys, data.metadata["words"], strict=True))
    assert words == {
        "n00000000/ILSVRC2012_val_00004487.JPEG": "background;pose",
        "n00000001/ILSVRC2012_val_00003963.JPEG": "color",
    }
    (root / "imagenet_x_val_multi_factor.jsonl").write_text("[1]")
    with pytest.raises(DataError, match=r"multi_factor\.jsonl: not JSON lines \(each line must"):
        read("imagenet-x", root)


def test_masks_and_images_of_other_parts_are_left_out(root: Path) -> None:
    urbancars(root)
    data = read("urbancars", root)
    assert len(data.keys) == 8
    assert data.metadata["words"][:2] == (
        "country background;country object", "country background;urban object",
    )  # fmt: skip
    assert read("urbancars", root, split="train").metadata["part"] == ("train",) * 8
    train = root / "bg-0.95_co_occur_obj-0.95"
    with pytest.raises(DataError, match="split 'test' has the images with part 'test'; none"):
        read("urbancars", train)


# --- real data ----------------------------------------------------------------------------------


@pytest.mark.shared_data
def test_pacs_from_its_photos_and_drawings(shared: Path) -> None:
    data = read("pacs", shared / "data" / "pacs_112.zip")
    assert {name: data.metadata["context"].count(name) for name in DOMAINS} == dict.fromkeys(
        DOMAINS, 420
    )
    assert data.pool("test").class_sizes.tolist() == [240] * 7
    assert "split test: 1,680 images of 7 classes, published 9,991 of 7" in data.problems()


def link(root: Path, files: Iterable[str]) -> None:
    """Make one small image visible under many names."""
    stream = io.BytesIO()
    Image.new("RGB", (2, 2)).save(stream, "jpeg")
    (root.with_name("one.jpg")).write_bytes(stream.getvalue())
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        os.link(root.with_name("one.jpg"), root / file)


@pytest.mark.shared_data
def test_metashift_by_the_paths_of_its_captions(shared: Path, root: Path) -> None:
    rows = (shared / "data/captions/metashift_blip.csv").read_text().splitlines()[1:]
    truth = {key: indoor for key, _, indoor, _ in (row.split(",", 3) for row in rows)}
    root.mkdir()
    link(root, truth)
    data = read("metashift", root)
    assert data.class_names == ("cat", "dog")
    found = dict(zip(data.keys, data.metadata["context"], strict=True))
    both = sum(words == "indoor;outdoor" for words in data.metadata["words"])
    assert len(found) + both == len(truth)
    assert {key: {"indoor": "1", "outdoor": "0"}[place] for key, place in found.items()} == {
        key: truth[key] for key in found
    }


@pytest.mark.shared_data
def test_waterbirds_by_its_whole_table(shared: Path, root: Path) -> None:
    table = (shared / "data/cub/waterbirds_metadata.csv").read_text()
    root.mkdir()
    (root / "metadata.csv").write_text(table)
    link(root, [row.split(",")[1] for row in table.splitlines()[1:]])
    # Backgrounds of this table differ from those of the published counts, except for testing.
    assert read("waterbirds", root).problems() == [
        "2 contexts with other numbers of images: 'land' 7,075 (published 7,051), 'water' 4,713 "
        "(published 4,737)"
    ]
    assert read("waterbirds", root, split="two-classes-test").problems() == []
