"""Every published data set in each of its layouts, as a miniature that the test creates."""

from __future__ import annotations

import collections
import csv
import io
import json
import os
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fsf_datasets import Declared, published
from fsf_datasets._declaration import Declaration, Layout, read_declaration
from fsframework.components.registry import Registry
from fsframework.interfaces import DataError, OptionError
from fsframework.testing import check_component
from fsframework.values import UInt8Array

PER_CLASS = 4
PARTS = ("train", "val", "test")
PICKLE = "miniImageNet_category_split_val.pickle"


def cls_of(name: str) -> type[Declared]:
    cls: type[Declared] = Registry().load("dataset", name)
    return cls


def read(name: str, path: Path, **options: Any) -> Declared:
    return cls_of(name)(path=path, **options)


@cache
def declaration(name: str) -> Declaration:
    folder = Path(published.__file__).parent / "declarations"
    return read_declaration(folder / f"{name}.toml")


NAMES = sorted(file.stem for file in published.declaration_files().values())
CHECKED = {
    "omniglot folders", "cue-conflict folders", "cub tables", "isic table",
    "miniimagenet category pickles", "tieredimagenet arrays", "cifar-fs CIFAR-100",
}  # fmt: skip
"""Data sets of every way to read images, labels and columns."""
WITH_CONTEXTS = {
    "caltech101", "celeba", "counteranimal", "imagenet-r", "imagenet-sketch", "imagenet-x",
    "metashift",
    "nico-plus-plus", "pacs", "spawrious", "urbancars", "waterbirds",
}  # fmt: skip
"""Data sets that test_context_layouts.py makes."""
EVERY = [
    (name, layout.name)
    for name in NAMES
    if name not in WITH_CONTEXTS
    for layout in declaration(name).layouts
]


def members(name: str, split: str | None = None) -> dict[str, list[str]]:
    """Two classes of each split; if splits are drawn, classes with made-up names."""
    found = declaration(name).splits
    chosen = found[split] if split else next(iter(found.values()))
    if chosen.draw is not None:
        return {"": [f"class-{letter}" for letter in "abcdefghijklmnopqrstuvwx"]}
    return {part: list(classes)[:2] for part, classes in chosen.members.items()}


def pixels(count: int, side: int = 12) -> UInt8Array:
    return np.random.default_rng(count).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def save(file: Path, seed: int = 0) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (10, 12, 3), np.uint8)).save(file)


def make(
    name: str, layout: str, root: Path, classes: Mapping[str, list[str]] | None = None
) -> Path:
    """Create a miniature of a data set in one of its layouts."""
    chosen = next(lay for lay in declaration(name).layouts if lay.name == layout)
    makers: dict[str, Callable[[Layout, Path, Mapping[str, list[str]], str], None]] = {
        "folders": make_folders,
        "tables": make_tables,
        "pickles": make_pickles,
        "cifar-100": make_cifar,
    }
    makers[chosen.kind](chosen, root, classes or members(name), name)
    return root


def make_folders(layout: Layout, root: Path, classes: Mapping[str, list[str]], name: str) -> None:
    for c, cls in enumerate(label for part in classes.values() for label in part):
        for i in range(PER_CLASS):
            folder = root / (layout.within or "")
            if layout.levels == ("class", "context"):
                place = folder / cls / ["on grass", "in snow"][i % 2]
            elif layout.class_ == "{class}":
                place = folder / cls.replace("/", "_")
            else:
                place = folder / cls
            last = f"cat{i}-oven{i}.png" if name == "cue-conflict" else f"{c:04d}_{i:02d}.png"
            save(place / last, 10 * c + i)


def make_tables(layout: Layout, root: Path, classes: Mapping[str, list[str]], _: str) -> None:
    one_table = len(classes) == 1
    every = [label for part in classes.values() for label in part]
    for part, labels in classes.items():
        table = layout.tables[0] if one_table else f"{part}.csv"
        rows = []
        for cls in labels:
            for i in range(PER_CLASS):
                file = f"{cls}_{i:04d}.png".replace("/", "_")
                save(root / "images" / file, i)
                one_hot = [str(float(cls == other)) for other in every]
                rows.append([file, *(one_hot if layout.label is None else [cls])])
        header = [layout.image, *(every if layout.label is None else [layout.label])]
        with (root / table).open("w", newline="") as stream:
            csv.writer(stream).writerows([header, *rows])


def make_pickles(layout: Layout, root: Path, classes: Mapping[str, list[str]], _: str) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for part, files in layout.files.items():
        labels = classes[part]
        images = pixels(PER_CLASS * len(labels))
        numbers = [c for c in range(len(labels)) for _ in range(PER_CLASS)]
        if "cache" in layout.name:
            rows = {
                cls: [i for i, n in enumerate(numbers) if n == c] for c, cls in enumerate(labels)
            }
            contents: list[Any] = [{"image_data": images, "class_dict": rows}]
        elif "category" in layout.name:
            names = {cls: c for c, cls in enumerate(labels)}
            contents = [{"data": images, "labels": numbers, "catname2label": names}]
        elif len(files) == 1:
            contents = [{"data": images, "labels": numbers}]
        else:
            stored = {
                "label_specific": np.array(numbers),
                "label_specific_str": labels,
                "label_general": np.zeros(len(numbers), np.int64),
            }
            contents = [[np.frombuffer(png(image), np.uint8) for image in images], stored]
        for file, content in zip(files, contents, strict=True):
            if file.endswith(".npz"):
                np.savez(root / file, images=images)
            else:
                (root / file).write_bytes(pickle.dumps(content, protocol=2 + len(part) % 3))


def png(image: UInt8Array) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "png")
    return stream.getvalue()


def make_cifar(
    _layout: Layout, root: Path, classes: Mapping[str, list[str]], _: str, binary: bool = True
) -> None:
    root.mkdir(parents=True, exist_ok=True)
    names = [label for part in classes.values() for label in part]
    labels = np.repeat(np.arange(len(names)), PER_CLASS // 2).astype(np.uint8)
    for part in ("train", "test"):
        planes = pixels(len(labels), 32).transpose(0, 3, 1, 2).reshape(len(labels), -1)
        if binary:
            rows = np.concatenate([labels[:, None] * 0, labels[:, None], planes], axis=1)
            (root / f"{part}.bin").write_bytes(rows.tobytes())
        else:
            content = {b"data": planes, b"fine_labels": labels.tolist(), b"batch_label": b"1"}
            (root / part).write_bytes(pickle.dumps(content, protocol=2))
    if binary:
        (root / "fine_label_names.txt").write_text("\n".join(names))
    else:
        (root / "meta").write_bytes(pickle.dumps({"fine_label_names": names}, protocol=2))


def zipped(folder: Path, file: Path) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            archive.write(path, path.relative_to(folder.parent))
    return file


# --- every layout of every data set -------------------------------------------------------------


def test_there_is_a_declaration_for_every_name() -> None:
    entries = {
        p.name for p in Registry().plugins("dataset") if p.target.startswith("fsf_datasets.publ")
    }
    assert entries == set(NAMES) == {declaration(name).name for name in NAMES}
    assert len(NAMES) == 33
    from_imagenet = {name for name in NAMES if "imagenet-1k" in declaration(name).images_from}
    assert from_imagenet == {
        "miniimagenet", "tieredimagenet", "stanford-dogs", "cue-conflict", "imagenet-r",
        "imagenet-sketch", "imagenet-x",
    }  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "layout"), EVERY, ids=[" ".join(e) for e in EVERY])
def test_a_miniature_keeps_the_contract_and_is_reported_as_incomplete(
    name: str, layout: str, root: Path, tmp_path: Path
) -> None:
    make(name, layout, root / "extra" / "folder")
    data = read(name, root)
    assert data.layout == layout
    wanted = members(name)
    if layout == "MetaOptNet pickles":  # do not name their classes
        wanted = {s: [f"{s}/{c:02d}" for c in range(len(cs))] for s, cs in wanted.items()}
    if "" not in wanted:
        turns = next(iter(declaration(name).splits.values())).rotations
        named = {s: [c + f"/rot{r:03d}" for c in cs for r in turns] for s, cs in wanted.items()}
        assert {s: sorted(cs) for s, cs in data.splits.items()} == {
            split: sorted(classes) for split, classes in (named if turns else wanted).items()
        }
    problems = data.problems()
    assert any("published" in problem for problem in problems), problems
    assert not any("follow" in p or "wrong" in p for p in problems), problems
    if f"{name} {layout}" in CHECKED:  # the checks read the data many times
        results = check_component(partial(read, name, root), "dataset")
        assert [f"{r.name}: {r.message}" for r in results if not r.passed] == []
    archive = read(name, zipped(root, tmp_path / "data.ZIP"))
    assert (archive.keys, archive.splits) == (data.keys, data.splits)
    assert archive.metadata == data.metadata
    few = np.arange(len(data.keys))[:: max(1, len(data.keys) // 6)]
    assert np.array_equal(archive.images(few, 12), data.images(few, 12))


@pytest.mark.parametrize("name", NAMES)
def test_published_facts_are_known_without_data(name: str) -> None:
    about = cls_of(name).about
    assert about is not None
    assert about.title
    assert about.source.startswith("http")
    assert about.counts
    assert all(tree.startswith("PATH/") for tree in about.layouts.values())
    assert (cls_of(name).__doc__ or "").partition("\n")[0] == declaration(name).summary
    assert all(split.source != "unknown" for split in declaration(name).splits.values())


# --- differences from the published data --------------------------------------------------------


def test_missing_classes_are_named_with_their_split(root: Path) -> None:
    make("cifar-fs", "folders", root)
    val, test = members("cifar-fs")["val"], members("cifar-fs")["test"]
    for name in (val[0], *test):
        shutil.rmtree(root / name)
    data = read("cifar-fs", root)
    assert list(data.splits) == ["train", "val"]
    problems = data.problems()
    assert "split test: all 20 classes missing" in problems
    missing = next(p for p in problems if p.startswith("split val: 15 of 16 classes missing: "))
    assert repr(val[0]) in missing
    assert "split train: 8 images of 2 classes, published 38,400 of 64" in problems


def test_folders_that_are_not_classes_are_left_out_and_named(root: Path) -> None:
    make("eurosat", "folders", root)
    save(root / "Desert" / "1.png")
    save(root / "loose.png")
    data = read("eurosat", root)
    assert data.class_names == ("AnnualCrop", "Forest")
    problems = "\n".join(data.problems())
    assert "left out, not a class: 1 image of 'Desert'" in problems
    assert "left out, not in a class folder: 1 image" in problems
    assert "2 classes with other numbers of images: 'AnnualCrop' 4 (published 3,000)" in problems


def test_classes_in_a_wrong_split_are_reported_and_the_published_split_is_used(root: Path) -> None:
    first = members("dtd")
    for split, classes in first.items():
        make("dtd", "folders", root / split, {split: classes})
    assert not any("wrong split" in p for p in read("dtd", root).problems())
    strayed = first["train"][0]
    (root / "train" / strayed).rename(root / "test" / strayed)
    data = read("dtd", root)
    assert strayed in data.splits["train"]
    assert any(f"{strayed!r} is in test but belongs to train" in p for p in data.problems())


def test_folders_of_another_published_split_name_it(root: Path) -> None:
    for split, classes in members("cub", "chen").items():
        make("cub", "folders", root / split, {split: classes})
    assert any("the split 'chen'" in p for p in read("cub", root).problems())
    assert not any("follow" in p for p in read("cub", root, split="chen").problems())


def test_folders_of_a_split_of_images_are_not_a_split_of_classes(root: Path) -> None:
    for part in ("train", "test"):
        make("cifar-fs", "folders", root / part)
    data = read("cifar-fs", root)
    assert list(data.splits) == ["train", "val", "test"]
    assert not any("follow" in p or "wrong" in p for p in data.problems())
    assert len(set(data.keys)) == 2 * 6 * PER_CLASS


def test_a_split_file_takes_the_place_of_the_published_split(root: Path, tmp_path: Path) -> None:
    make("dtd", "folders", root)
    one = members("dtd")["train"][0]
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"test": [one]}))
    assert read("dtd", root, split_file=file).splits == {"test": (one,)}
    with pytest.raises(OptionError, match="split .* and split_file .* must not both be given"):
        read("dtd", root, split="meta-dataset", split_file=file)
    with pytest.raises(OptionError, match=r"split of dtd \(meta-dataset\), not 'feat'"):
        read("dtd", root, split="feat")
    file.write_text(json.dumps({"test": [one, "tartan"]}))
    with pytest.raises(DataError, match="'test' names classes that are not in .*'tartan'"):
        read("dtd", root, split_file=file)


def test_nothing_found_shows_the_expected_trees(root: Path) -> None:
    save(root / "cats" / "1.png")
    with pytest.raises(DataError, match=r"miniImageNet is found here: .* \(found: 'cats'\)") as no:
        read("miniimagenet", root)
    for sign in ("├── train.csv", "└── CLASS/", "mini-imagenet-cache-val.pkl", "n01532829"):
        assert sign in no.value.picture
    (root / "cats" / "1.png").unlink()
    with pytest.raises(DataError, match="here: there are no files"):
        read("miniimagenet", root)
    with pytest.raises(DataError, match="no such folder"):
        read("miniimagenet", root / "gone")


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [
        ("cub", "190.RED_COCKADED_WOODPECKER", "190.Red_cockaded_Woodpecker"),
        ("cub", "Red cockaded Woodpecker", "190.Red_cockaded_Woodpecker"),
        ("traffic-signs", "00014", "14.Stop"),
        ("traffic-signs", "14", "14.Stop"),
        ("aircraft", "F-16A_B", "F-16A/B"),
        ("cifar-fs", "Aquarium-Fish", "aquarium_fish"),
        ("miniimagenet", "n01532829_house_finch", "n01532829"),
        ("dtd", "POLKA_DOTTED", "polka-dotted"),
        ("metacoco", "T-Shirt/in snow", "t-shirt"),
    ],
)
def test_names_in_any_spelling(name: str, written: str, meant: str, root: Path) -> None:
    save(root / written / "IMAGE.PNG")
    assert read(name, root).class_names == (meant,)


def test_a_name_that_means_two_classes_or_a_class_with_two_names(root: Path) -> None:
    for written in ("747", "747-100"):
        save(root / "a" / written / "1.png")
    data = read("aircraft", root / "a")
    assert data.class_names == ("747-100",)
    assert any("'747'" in problem for problem in data.problems())
    for written in ("Forest", "forest "):
        save(root / "b" / written / "1.png")
    with pytest.raises(DataError, match="'Forest', 'forest ' all mean the class 'Forest'"):
        read("eurosat", root / "b")


# --- single data sets ---------------------------------------------------------------------------


def test_only_the_images_that_the_split_names(root: Path) -> None:
    synset, files = next(iter(declaration("miniimagenet").splits["ravi"].files.items()))
    named = sorted(files)[:3]
    for file in named:
        save((root / synset / file).with_suffix(".png"))
    save(root / synset / "n9999999900000001.png")
    data = read("miniimagenet", root)
    assert [Path(key).stem for key in data.keys] == [Path(file).stem for file in named]
    assert "left out, not in the published split: 1 image" in data.problems()


def test_rows_without_an_image_and_images_twice(root: Path) -> None:
    make("miniimagenet", "tables", root)
    gone, twice, *_ = sorted((root / "images").iterdir())
    gone.unlink()
    save(root / "copies" / twice.name)
    problems = "\n".join(read("miniimagenet", root).problems())
    assert f"lists 1 missing image: {gone.name!r}" in problems
    assert f"but found more than once: 1 image: {twice.name!r}" in problems


def test_rows_name_images_with_another_extension_or_none(root: Path) -> None:
    synsets = members("miniimagenet")["train"]
    for file in ("a.png", "a.b.PNG", "c.png"):
        save(root / "images" / file)
    rows = [f"{f},{synsets[i % 2]}" for i, f in enumerate(("a.b", "A.jpg", "c.png", "c.d"))]
    (root / "train.csv").write_text("\n".join(["filename,label", *rows]))
    data = read("miniimagenet", root)
    assert {
        key.rpartition("/")[2]: synsets.index(data.class_names[label])
        for key, label in zip(data.keys, data.labels, strict=True)
    } == {"a.b.PNG": 0, "a.png": 1, "c.png": 0}
    assert any("lists 1 missing image: 'c.d'" in problem for problem in data.problems())


def test_other_findings_of_chestx_are_not_reported(root: Path) -> None:
    make("chestx", "table", root)
    table = root / "Data_Entry_2017.csv"
    before = read("chestx", root)
    table.write_text(table.read_text() + "other.png,Hernia\nboth.png,Mass|Nodule\n")
    after = read("chestx", root)
    assert after.problems() == before.problems()
    assert after.keys == before.keys


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("train.csv", b"file,label\na.png,n01532829\n", "row 1 must name the column filename, not"),
        ("train.csv", b"filename,label\na.png\n", "row 2 has no image or no class"),
        ("train.csv", b"filename,label\na.png,nan\n", "row 2 has no image or no class"),
        *(
            (PICKLE, pickle.dumps(content), message)
            for content, message in (
                ({"data": pixels(8), "labels": [1]}, "contains 8 images but 1 labels"),
                ({"pictures": 3}, r"must contain images.*, not pictures"),
                ({"data": pixels(2), "labels": [0, 1.5]}, "label 1.5 is neither a whole number"),
                (
                    {"data": pixels(2), "labels": [0, None]},
                    "label .*NoneType is neither a whole number",
                ),
            )
        ),
    ],
)
def test_wrong_tables_and_pickles(file: str, content: bytes, message: str, root: Path) -> None:
    root.mkdir()
    (root / file).write_bytes(content)
    with pytest.raises(DataError, match=rf"{file}: .*{message}"):
        read("miniimagenet", root)


def test_a_damaged_layout_next_to_a_complete_one_is_a_problem(root: Path) -> None:
    make("miniimagenet", "folders", root)
    (root / "train.csv").write_text("a,b\n")
    data = read("miniimagenet", root)
    assert data.layout == "folders"
    assert any("not used: " in p and "train.csv: row 1 must name" in p for p in data.problems())


def test_characters_are_small_white_on_black_and_rotated(root: Path) -> None:
    drawing = np.full((105, 105), 255, np.uint8)
    drawing[:30, 50:60] = 0  # a stroke at the top
    file = root / "images_background" / "Angelic" / "character01" / "0965_07.png"
    file.parent.mkdir(parents=True)
    Image.fromarray(drawing).convert("1").save(file)
    data = read("omniglot", root)
    assert data.class_names[1] == "Angelic/character01/rot090"
    assert data.metadata["alphabet"] == ("Angelic",) * 4
    assert data.metadata["drawer"] == ("07",) * 4
    small = np.asarray(Image.fromarray(drawing).resize((28, 28), Image.Resampling.BOX))
    for quarters in range(4):
        wanted = np.rot90(255 - small, quarters)
        assert np.array_equal(data.image(quarters), np.repeat(wanted[..., None], 3, axis=2))
    assert data.image(1)[13, 0, 0] == 255  # rotated left, the top is on the left
    plain = read("omniglot", root, split="lake")
    assert plain.class_names == ("Angelic/character01",)
    assert plain.about is not None
    assert plain.about.counts["train"] == (964, 19280)


def test_contexts_and_textures_are_metadata(root: Path) -> None:
    data = read("metacoco", make("metacoco", "folders", root / "coco"))
    assert set(data.metadata["context"]) == {"on grass", "in snow"}
    assert all(c in k for c, k in zip(data.metadata["context"], data.keys, strict=True))
    cue = read("cue-conflict", make("cue-conflict", "folders", root / "cue"))
    for column in ("texture", "context", "words"):
        assert set(cue.metadata[column]) == {"oven"}
    save(root / "other" / "cat" / "plain.png")
    other = read("cue-conflict", root / "other")
    assert other.metadata["texture"] == ("",)
    assert any("does not match 1 file: " in problem for problem in other.problems())


def test_concepts_named_train_are_not_a_split(root: Path) -> None:
    for concept in ("a/train", "a/dog", "b/train/train", "b/test/rat"):
        save(root / concept / "on grass" / "1.png")
    assert read("metacoco", root / "a").class_names == ("dog", "train")
    assert read("metacoco", root / "b").splits == {"train": ("train",), "test": ("rat",)}


def test_cifar_from_pickles_of_python(root: Path) -> None:
    classes = members("cifar-fs")
    layout = declaration("cifar-fs").layouts[1]
    make_cifar(layout, root / "bin", classes, "", binary=True)
    make_cifar(layout, root / "py", classes, "", binary=False)
    binary, python = (read("cifar-fs", root / part) for part in ("bin", "py"))
    assert binary.keys == python.keys
    assert np.array_equal(binary.images(range(24), 32), python.images(range(24), 32))
    # Both parts have the same random rows: image 0 of the first class is row 0 of train.
    assert np.array_equal(binary.image(0), pixels(12, 32)[0])
    (root / "bin" / "train.bin").write_bytes(b"\0" * 5000)
    with pytest.raises(DataError, match=r"train\.bin: .*multiple of 3,074 bytes, not 5,000"):
        read("cifar-fs", root / "bin")


def test_classes_of_a_pickle_are_numbers_or_names(root: Path) -> None:
    root.mkdir()
    images = pixels(8)
    file = root / PICKLE
    file.write_bytes(pickle.dumps({"data": images, "labels": [64.0] * 4 + [65] * 4}, protocol=4))
    data = read("miniimagenet", root)
    assert data.splits == {"val": ("val/64", "val/65")}
    assert "classes are numbered because the files do not name them" in data.problems()
    assert np.array_equal(data.image(5), images[5])
    labels = [b"n01532829"] * 2 + [b"n01558993"] * 2  # as Python 2 writes strings
    file.write_bytes(pickle.dumps({"data": pixels(4), "labels": labels}))
    named = read("miniimagenet", root)
    assert [named.class_names[label].encode() for label in named.labels] == labels


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"class_dict": {"a": [0, 1, 2], "b": [2, 3]}}, "row 2 is more than once, in 'a', 'b'"),
        ({"class_dict": {"a": [0, 1, 1], "b": [2, 3]}}, "row 1 is more than once, in 'a'"),
        ({"class_dict": {"a": [0, 1], "b": [3]}}, "row 2 is in no class"),
        ({"labels": [-1, -1, 0, 0]}, "image 0 is -1"),
        ({"labels": ["caf\u00e9", "cafe\u0301", "b", "b"]}, "both mean the class 'café'"),
        ({"labels": [0, 0, 1, 1], "catname2label": {"a": 0, "b": 1, "c": 1}}, "'b' another"),
        ({"labels": [0, 0, 1, 1], "label_specific_str": ["a", "a"]}, "labels 0 and 1 .* 'a'"),
    ],
)
def test_pickles_that_contradict_themselves(
    content: dict[str, Any], message: str, root: Path, tmp_path: Path
) -> None:
    root.mkdir()
    (root / "test.pkl").write_bytes(pickle.dumps({"data": pixels(4), **content}))
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'name = "mine"\ntitle = "Mine"\n[[layouts]]\nkind = "pickles"\n'
        '[layouts.files]\ntest = ["test.pkl"]\n'
    )
    with pytest.raises(DataError, match=rf"test\.pkl: .*{message}"):
        Declared(declaration=mine, path=root)


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_of_every_protocol(protocol: int, root: Path, tmp_path: Path) -> None:
    """In a folder long arrays stay in the file, in an archive they are unpacked."""
    images = pixels(8, 10)
    content = {
        "data": np.asfortranarray(images),
        "labels": np.repeat(np.arange(2, dtype=">i4"), 4),
        "catname2label": {"n01532829": np.int64(1), "n01558993": np.int64(0)},
        "rest": [1, 2.5, None, True, ("x", b"y", {"z"}), frozenset([3]), {5: 10**30}, np.zeros(0)],
    }
    root.mkdir()
    (root / PICKLE).write_bytes(pickle.dumps(content, protocol=protocol))
    for path in (root, zipped(root, tmp_path / "data.zip")):
        data = read("miniimagenet", path)
        assert [data.class_names[label] for label in data.labels] == (
            ["n01558993"] * 4 + ["n01532829"] * 4
        )
        assert np.array_equal(data.images(range(8), 10), images)


def test_arrays_of_python_2(root: Path, tmp_path: Path) -> None:
    """Written by its cPickle, protocol 2: strings are bytes, and so are pixels."""
    images = pixels(1, 16)
    raw = (
        b"\x80\x02}q\x00(U\x04dataq\x01"
        b"cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03"
        b"K\x00\x85q\x04U\x01bq\x05\x87q\x06Rq\x07(K\x01(K\x01K\x10K\x10K\x03t"
        b"cnumpy\ndtype\nq\x08U\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<i", images.nbytes) + images.tobytes()
        + b"tbU\x06labels]K\x07au."
    )  # fmt: skip
    root.mkdir()
    (root / PICKLE).write_bytes(raw)
    for path in (root, zipped(root, tmp_path / "data.zip")):
        data = read("miniimagenet", path)
        assert np.array_equal(data.image(0), images[0])
        assert data.class_names == ("val/07",)


class _Command:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch hacked",)


class _Own:
    pass


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (_Command(), r"posix\.system|nt\.system"),
        (_Own(), r"_Own|copyreg\._reconstructor|copy_reg\._reconstructor"),
        (slice(1), r"slice"),
        (np.random.default_rng(0).bit_generator, r"numpy\.random"),
        (np.ma.masked_array([1]), r"numpy\.ma"),
        (collections.Counter("a"), r"collections\.Counter"),
        (eval, r"eval"),
    ],
    ids=["command", "own-class", "slice", "generator", "masked-array", "counter", "built-in"],
)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_anything_else_is_refused_by_name(
    value: Any, named: str, protocol: int, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.mkdir()
    monkeypatch.chdir(root)
    (root / PICKLE).write_bytes(pickle.dumps({"data": value}, protocol=protocol))
    with pytest.raises(DataError, match=rf"{PICKLE}: .* not read: it asks for .*({named})"):
        read("miniimagenet", root)
    assert not (root / "hacked").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cbuiltins\ndict\n(dS'a'\nI1\nsb.",  # attributes of the class dict
        b"\x80\x02]q\x00}q\x01b.",  # attributes of a list
        b"cnumpy\ndtype\n(S'V8'\ntR.",
        b"cnumpy\ndtype\n(S'M8[ns]'\ntR.",
        b"\x80\x02P1\n.",
        b"\x80\x02K\x01Q.",
        b"\x80\x02\x82\x01.",
        b"cbuiltins\nbytes\n(I99999999999999\ntR.",
    ],
)
def test_tricks_are_refused(content: bytes, root: Path) -> None:
    root.mkdir()
    (root / PICKLE).write_bytes(content)
    with pytest.raises(DataError, match=PICKLE):
        read("miniimagenet", root)


def of_python_2(images: list[bytes]) -> bytes:
    """Return Python 2's pickle, protocol 2, of a list of strings, which are bytes there."""
    texts = b"".join(pickle.BINSTRING + len(raw).to_bytes(4, "little") + raw for raw in images)
    return pickle.PROTO + b"\x02" + pickle.EMPTY_LIST + pickle.MARK + texts + b"e."


def arrays_of(images: list[bytes]) -> bytes:
    held = np.empty(len(images), object)
    held[:] = images
    return pickle.dumps(held, protocol=4)


@pytest.mark.parametrize(
    "write",
    [
        *(partial(pickle.dumps, protocol=protocol) for protocol in (2, 3, 4, 5)),
        lambda images: pickle.dumps(tuple(images)),
        lambda images: pickle.dumps([bytearray(raw) for raw in images]),
        lambda images: pickle.dumps({"images_png": images}, protocol=4),
        arrays_of,
        of_python_2,
    ],
    ids=["2", "3", "4", "5", "tuple", "bytearrays", "dict", "array of objects", "Python 2"],
)
def test_encoded_images_in_folder_and_archive(
    write: Callable[[list[bytes]], bytes], root: Path, tmp_path: Path
) -> None:
    """Long images stay in the file, short ones are in memory."""
    make("tieredimagenet", "PNG pickles", root)
    content = [np.full((84, 84, 3), 9, np.uint8), *pixels(2 * PER_CLASS)[1:]]
    encoded = [png(image) for image in content]
    assert len(encoded[0]) < 256 < len(encoded[1])
    for part in ("train", "val", "test"):
        next(root.glob(f"{part}_images*")).write_bytes(write(encoded))
    for path in (root, zipped(root, tmp_path / "data.zip")):
        data = read("tieredimagenet", path)
        for index, image in enumerate(content):
            assert np.array_equal(data.image(index), image)


@pytest.mark.parametrize(
    ("name", "layout"),
    [("miniimagenet", "cache pickles"), ("tieredimagenet", "arrays"), ("cifar-fs", "CIFAR-100")],
)
def test_pixels_are_read_on_request(name: str, layout: str, root: Path) -> None:
    data = read(name, make(name, layout, root))
    before = data.image(0)
    raw = before.transpose(2, 0, 1).tobytes() if "CIFAR" in layout else before.tobytes()
    file = next(f for f in root.glob("*train*") if raw in f.read_bytes())
    at = file.read_bytes().index(raw)
    with file.open("r+b") as stream:
        stream.seek(at)
        stream.write(bytes(len(raw)))
    assert not data.image(0).any()


def test_labels_without_their_images_are_reported(root: Path) -> None:
    make("tieredimagenet", "arrays", root)
    (root / "val_images.npz").unlink()
    (root / "test_images.npz").write_bytes((root / "test_images.npz").read_bytes()[:500])
    with pytest.raises(DataError, match=r"test_images\.npz: not a complete zip archive"):
        read("tieredimagenet", root)
    (root / "test_images.npz").unlink()
    problems = read("tieredimagenet", root).problems()
    assert "val_labels.pkl needs val_images.npz, which is missing" in problems


# --- splits as published ------------------------------------------------------------------------


def rows_of(file: Path) -> list[list[str]]:
    with file.open(newline="") as stream:
        return list(csv.reader(stream, skipinitialspace=True))


def classes_of(name: str, split: str) -> dict[str, list[str]]:
    return {part: list(names) for part, names in declaration(name).splits[split].members.items()}


@pytest.mark.shared_data
def test_miniimagenet_is_ravis_split(shared: Path) -> None:
    split = declaration("miniimagenet").splits["ravi"]
    for part in PARTS:
        rows = rows_of(shared / f"data/splits/miniimagenet_ravi/{part}.csv")[1:]
        assert list(split.members[part]) == list(dict.fromkeys(label for _, label in rows))
        carried = {(file, label) for label in split.members[part] for file in split.files[label]}
        assert carried == {(file, label) for file, label in rows}
        assert split.counts[part] == (len(split.members[part]), len(rows))


@pytest.mark.shared_data
def test_splits_of_classes_are_the_published_ones(shared: Path) -> None:
    data = shared / "data" / "splits"

    def jsons(pattern: str) -> dict[str, Any]:
        return {part: json.loads((data / pattern.format(part)).read_text()) for part in PARTS}

    tiered = {p: [r[0] for r in rows_of(data / f"tieredimagenet/{p}.csv")] for p in PARTS}
    assert classes_of("tieredimagenet", "ren") == tiered
    cifar = jsons("cifar_fs/{}.json")
    assert classes_of("cifar-fs", "bertinetto") == {p: [c for _, c in cifar[p]] for p in PARTS}
    coarse = {fine: top for part in cifar.values() for top, fine in part}
    fc100 = classes_of("fc100", "oreshkin")
    assert {p: sorted({coarse[c] for c in fc100[p]}) for p in PARTS} == {
        p: sorted(tops) for p, tops in jsons("fc100/{}.json").items()
    }
    assert {p: len(names) for p, names in fc100.items()} == {"train": 60, "val": 20, "test": 20}
    vinyals = {p: (data / f"omniglot/vinyals_{p}.txt").read_text().split() for p in PARTS}
    turned = declaration("omniglot").splits["vinyals"]
    assert {
        p: [f"{c}/rot{turn:03d}" for c in names for turn in turned.rotations]
        for p, names in turned.members.items()
    } == vinyals
    halves = jsons("omniglot/torchmeta_{}.json")
    torchmeta = {
        p: {f"{a}/{c}" for half in found.values() for a, cs in half.items() for c in cs}
        for p, found in halves.items()
    }
    assert {p: set(c) for p, c in classes_of("omniglot", "torchmeta").items()} == torchmeta


@pytest.mark.shared_data
def test_splits_of_meta_dataset_are_the_published_ones(shared: Path) -> None:
    stems = {"cub": "cu_birds", "traffic-signs": "traffic_sign", "vgg-flower": "vgg_flower"}
    for name in (*stems, "aircraft", "dtd", "fungi", "mscoco", "quickdraw"):
        file = shared / f"data/splits/meta_dataset/{stems.get(name, name)}_splits.json"
        raw = json.loads(file.read_text())
        raw["val"] = raw.pop("valid")
        assert classes_of(name, "meta-dataset") == {p: c for p, c in raw.items() if c}, name


@pytest.mark.shared_data
def test_splits_of_cub_are_the_published_ones(shared: Path) -> None:
    data = shared / "data"
    feat = {p: sorted({row[1] for row in rows_of(data / f"cub/feat_{p}.csv")[1:]}) for p in PARTS}
    assert classes_of("cub", "feat") == feat
    chen: dict[str, set[str]] = {}
    for image, _, part in rows_of(data / "cub/closer_look_split.csv")[1:]:
        chen.setdefault(part, set()).add(image.partition("/")[0])
    assert {p: set(c) for p, c in classes_of("cub", "chen").items()} == chen
    ours = classes_of("cub", "fewstab")
    assert ours["test"] == feat["test"]
    assert set(ours["train"]) > set(feat["train"])
    counts = declaration("cub").splits["fewstab"].counts
    printed = rows_of(shared / "published/fewstab_splits_s1.csv")[1:]
    assert {
        (part, classes, round(images / 1000, 1)) for part, (classes, images) in counts.items()
    } == {(p, int(c), float(k)) for d, p, c, k in printed if d == "CUB-200"}
    assert sum(n for _, n in counts.values()) == 11788


@pytest.mark.shared_data
def test_counts_are_the_printed_ones_or_the_notes_explain_the_difference(shared: Path) -> None:
    printed = {row[0]: row for row in rows_of(shared / "published/metacoco_table1_benchmarks.csv")}
    same = {
        "miniimagenet": "miniImageNet",
        "cifar-fs": "CIFAR-FS",
        "dtd": "Describable Textures",
        "fungi": "Fungi",
        "vgg-flower": "VGG Flower",
        "mscoco": "MSCOCO",
        "quickdraw": "Quick Draw",
        "eurosat": "EuroSAT",
        "isic": "ISIC2018",
    }
    for name, title in same.items():
        row = printed[title]
        wanted = {p: (int(row[2 + i]), int(row[6 + i])) for i, p in enumerate(PARTS) if row[2 + i]}
        assert cls_of(name).about.counts == wanted, name  # type: ignore[union-attr]
    for title in ("Stanford Dogs", "Stanford Cars", "CropDiseases"):
        name, row = title.lower().replace(" ", "-"), printed[title]
        assert cls_of(name).about.counts == {"all": (int(row[1]), int(row[5]))}  # type: ignore[union-attr]
        (split,) = declaration(name).splits.values()
        assert split.draw == tuple(int(n or 0) for n in row[2:5])
    concepts: dict[str, dict[str, int]] = {}
    for part, concept, images in rows_of(shared / "published/metacoco_table4_concepts.csv")[1:]:
        concepts.setdefault(part, {})[concept] = int(images)
    assert list(declaration("metacoco").splits["zhang"].members.values()) == list(concepts.values())


# --- real data ----------------------------------------------------------------------------------


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["cifar-fs", "fc100"])
def test_sixty_images_per_class_of_cifar(name: str, shared: Path) -> None:
    data = read(name, shared / "data" / "cifar100_small.zip")
    assert data.about is not None
    counts = {s: n for s, (n, _) in data.about.counts.items()}
    assert {s: len(c) for s, c in data.splits.items()} == counts
    assert data.problems() == [
        f"split {s}: {60 * n:,} images of {n} classes, published {600 * n:,} of {n}"
        for s, n in counts.items()
    ]
    assert data.image(0).shape == (32, 32, 3)


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize("split", ["vinyals", "torchmeta", "lake"])
def test_complete_omniglot_has_no_problems(split: str, shared: Path) -> None:
    data = read("omniglot", shared / "data" / "omniglot.zip", split=split)
    assert data.problems() == []
    assert data.about is not None
    for part, (classes, images) in data.about.counts.items():
        assert (len(data.splits[part]), len(data.split_indices(part))) == (classes, images)
    assert set(np.bincount(data.labels)) == {20}
    assert data.images([0, 700, -1], 28).shape == (3, 28, 28, 3)


@pytest.mark.shared_data
@pytest.mark.parametrize("split", ["shapes", "all"])
def test_complete_cue_conflict_has_no_problems(split: str, shared: Path) -> None:
    data = read("cue-conflict", shared / "data" / "cue_conflict_84.zip", split=split)
    assert data.problems() == []
    assert set(data.metadata["context"]) == set(data.class_names)
    assert data.pool("test").class_sizes.tolist() == [80] * len(data.splits["test"])
