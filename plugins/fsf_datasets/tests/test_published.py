"""Every published data set in each of its layouts, as a miniature that the test creates."""

from __future__ import annotations

import csv
import io
import json
import pickle
import shutil
import unicodedata
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fsf_datasets import Declared, published
from fsf_datasets._arrays import _rows_of_classes
from fsf_datasets._declaration import Declaration, Layout, Split, read_declaration
from fsframework.components.registry import Registry
from fsframework.interfaces import DataError, OptionError
from fsframework.testing import check_component
from fsframework.values import UInt8Array

PER_CLASS = 4


def cls_of(name: str) -> type[Declared]:
    cls: type[Declared] = Registry().load("dataset", name).cls
    return cls


@cache
def declaration(name: str) -> Declaration:
    folder = Path(published.__file__).parent / "declarations"
    return read_declaration(folder / f"{name}.toml")


NAMES = sorted(file.stem for file in published.declaration_files().values())
EVERY = [(name, layout.name) for name in NAMES for layout in declaration(name).layouts]


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


def demand_tasks(data: Declared) -> None:
    """Draw random tasks from every split and read the images of one task."""
    for split in data.splits:
        pool = data.pool(split)
        ways = min(2, len(pool.class_names))
        sampler = Registry().load("sampler", "random").cls(n_way=ways, n_shot=1, n_query=2)
        tasks = sampler.draw(pool, 5, 0)
        assert tasks.support.shape == (5, ways, 1)
        chosen = data.split_indices(split)[tasks.query[0].ravel()]
        assert data.images(chosen, 16).shape == (2 * ways, 16, 16, 3)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


# --- every layout of every data set -------------------------------------------------------------


def test_there_is_a_declaration_for_every_name() -> None:
    entries = {
        p.name for p in Registry().plugins("dataset") if p.target.startswith("fsf_datasets.publ")
    }
    assert entries == set(NAMES)
    assert {declaration(name).name for name in NAMES} == set(NAMES)
    assert len(NAMES) == 21


@pytest.mark.parametrize(("name", "layout"), EVERY, ids=[" ".join(e) for e in EVERY])
def test_a_miniature_is_found_and_reported_as_incomplete(
    name: str, layout: str, root: Path
) -> None:
    cls = cls_of(name)
    data = cls(path=make(name, layout, root / "extra" / "folder").parent)
    assert data.layout == layout
    wanted = members(name)
    if "" not in wanted:
        turns = next(iter(declaration(name).splits.values())).rotations
        named = {s: [c + f"/rot{r:03d}" for c in cs for r in turns] for s, cs in wanted.items()}
        assert {s: sorted(cs) for s, cs in data.splits.items()} == {
            split: sorted(classes) for split, classes in (named if turns else wanted).items()
        }
    problems = data.problems()
    assert any("published" in problem for problem in problems), problems
    assert not any("follow" in p or "wrong" in p for p in problems), problems
    demand_tasks(data)


@pytest.mark.parametrize("name", NAMES)
def test_the_contract_is_kept(name: str, root: Path) -> None:
    layout = declaration(name).layouts[-1]
    path = make(name, layout.name, root)
    results = check_component(partial(cls_of(name), path=path), "dataset")
    assert [f"{r.name}: {r.message}" for r in results if not r.passed] == []


@pytest.mark.parametrize(("name", "layout"), EVERY, ids=[" ".join(e) for e in EVERY])
def test_an_archive_is_read_like_its_folder(
    name: str, layout: str, root: Path, tmp_path: Path
) -> None:
    folder = cls_of(name)(path=make(name, layout, root))
    archive = cls_of(name)(path=zipped(root, tmp_path / "data.ZIP"))
    assert archive.keys == folder.keys
    assert archive.splits == folder.splits
    assert archive.metadata == folder.metadata
    few = np.arange(len(folder.keys))[:: max(1, len(folder.keys) // 6)]
    assert np.array_equal(archive.images(few, 12), folder.images(few, 12))


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


def test_data_sets_from_imagenet_declare_it() -> None:
    from_imagenet = {name for name in NAMES if "imagenet-1k" in declaration(name).images_from}
    assert from_imagenet == {"miniimagenet", "tieredimagenet", "stanford-dogs", "cue-conflict"}


# --- differences from the published data --------------------------------------------------------


def test_a_missing_class_is_named_with_its_split(root: Path) -> None:
    make("cifar-fs", "folders", root)
    shutil.rmtree(root / members("cifar-fs")["val"][0])
    shutil.rmtree(root / members("cifar-fs")["test"][0])
    shutil.rmtree(root / members("cifar-fs")["test"][1])
    data = cls_of("cifar-fs")(path=root)
    assert list(data.splits) == ["train", "val"]
    problems = data.problems()
    assert "split test: all 20 classes missing" in problems
    missing = next(p for p in problems if p.startswith("split val: 15 of 16 classes missing: "))
    assert repr(members("cifar-fs")["val"][0]) in missing
    assert "split train: 8 images of 2 classes, published 38,400 of 64" in problems


def test_folders_that_are_not_classes_are_left_out_and_named(root: Path) -> None:
    make("eurosat", "folders", root)
    save(root / "Desert" / "1.png")
    save(root / "loose.png")
    data = cls_of("eurosat")(path=root)
    assert data.class_names == ("AnnualCrop", "Forest")
    problems = data.problems()
    assert "left out, not a class: 1 image of 'Desert'" in problems
    assert "left out, not in a class folder: 1 image" in problems
    assert any(
        p.startswith("2 classes with other numbers of images: 'AnnualCrop' 4 (published 3,000)")
        for p in problems
    )


def test_classes_in_a_wrong_split_are_reported_and_the_published_split_is_used(root: Path) -> None:
    first = members("dtd")
    for split, classes in first.items():
        make("dtd", "folders", root / split, {split: classes})
    assert not any("wrong split" in p for p in cls_of("dtd")(path=root).problems())
    strayed = first["train"][0]
    (root / "train" / strayed).rename(root / "test" / strayed)
    data = cls_of("dtd")(path=root)
    assert strayed in data.splits["train"]
    assert (
        f"1 class in the folder of a wrong split (the published split is used): {strayed!r} is in "
        "test but belongs to train"
    ) in data.problems()


def test_folders_of_another_published_split_name_it(root: Path) -> None:
    for split, classes in members("cub", "chen").items():
        make("cub", "folders", root / split, {split: classes})
    problems = cls_of("cub")(path=root).problems()
    assert any(p.startswith("the folders follow the split 'chen'") for p in problems)
    assert not any("follow" in p for p in cls_of("cub")(path=root, split="chen").problems())


def test_folders_of_a_split_of_images_are_not_a_split_of_classes(root: Path) -> None:
    for part in ("train", "test"):
        make("cifar-fs", "folders", root / part)
    data = cls_of("cifar-fs")(path=root)
    assert list(data.splits) == ["train", "val", "test"]
    assert not any("follow" in p or "wrong" in p for p in data.problems())
    assert len(set(data.keys)) == 2 * 6 * PER_CLASS


def test_a_split_file_with_unknown_classes_is_an_error(root: Path, tmp_path: Path) -> None:
    make("dtd", "folders", root)
    one = members("dtd")["train"][0]
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"test": [one]}))
    data = cls_of("dtd")(path=root, split_file=file)
    assert data.splits == {"test": (one,)}
    file.write_text(json.dumps({"test": [one, "tartan"]}))
    with pytest.raises(DataError, match="'test' names classes that are not in .*'tartan'"):
        cls_of("dtd")(path=root, split_file=file)
    with pytest.raises(OptionError, match=r"split of dtd \(meta-dataset\), not 'feat'; pass"):
        cls_of("dtd")(path=root, split="feat")
    with pytest.raises(
        OptionError, match=r"split \('meta-dataset'\) and split_file .* must not both be given"
    ):
        cls_of("dtd")(path=root, split="meta-dataset", split_file=file)


def test_nothing_found_shows_the_expected_trees(root: Path) -> None:
    save(root / "cats" / "1.png")
    with pytest.raises(DataError) as caught:
        cls_of("miniimagenet")(path=root)
    assert str(caught.value).endswith(
        "no part of miniImageNet is found here: no folder is one of its classes (found: 'cats')"
    )
    for sign in ("├── train.csv", "└── CLASS/", "mini-imagenet-cache-val.pkl", "n01532829"):
        assert sign in caught.value.picture
    (root / "cats" / "1.png").unlink()
    with pytest.raises(DataError, match="here: there are no files"):
        cls_of("miniimagenet")(path=root)
    with pytest.raises(DataError, match="no such folder"):
        cls_of("miniimagenet")(path=root / "gone")


def test_an_incomplete_image_is_named(root: Path, tmp_path: Path) -> None:
    make("eurosat", "folders", root)
    file = root / "Forest" / "0001_02.png"
    file.write_bytes(file.read_bytes()[:60])
    index = next(i for i, key in enumerate(cls_of("eurosat")(path=root).keys) if "0001_02" in key)
    for data in (
        cls_of("eurosat")(path=root),
        cls_of("eurosat")(path=zipped(root, tmp_path / "x.zip")),
    ):
        with pytest.raises(DataError, match=r"0001_02\.png: not a readable image"):
            data.images([index], 8)


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
def test_names_are_recognised_in_any_spelling(
    name: str, written: str, meant: str, root: Path
) -> None:
    save(root / written / "IMAGE.PNG")
    assert cls_of(name)(path=root).class_names == (meant,)


def test_names_beyond_ascii_in_either_form(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "birds.toml"
    file.write_text('name = "birds"\ntitle = "Vögel"\n[splits.x]\ntest = ["Käuzchen", "Möwe"]\n')
    save(root / unicodedata.normalize("NFD", "KÄUZCHEN") / "日本.PNG")
    save(root / "Möwe" / "1.png")
    data = Declared(declaration=file, path=root)
    assert data.class_names == ("Käuzchen", "Möwe")
    assert data.problems() == []
    assert data.image(0).shape == (10, 12, 3)


def test_two_folders_of_one_class_are_an_error(root: Path) -> None:
    for written in ("Forest", "forest "):
        save(root / written / "1.png")
    with pytest.raises(
        DataError, match="'Forest', 'forest ' all mean the class 'Forest'; keep one"
    ):
        cls_of("eurosat")(path=root)


def test_a_name_that_two_classes_share_matches_neither(root: Path) -> None:
    save(root / "747" / "1.png")
    save(root / "747-100" / "1.png")
    data = cls_of("aircraft")(path=root)
    assert data.class_names == ("747-100",)
    assert any("'747'" in problem for problem in data.problems())


# --- single data sets ---------------------------------------------------------------------------


def test_only_the_images_that_the_split_names(root: Path) -> None:
    synset, files = next(iter(declaration("miniimagenet").splits["ravi"].files.items()))
    named = sorted(files)[:3]
    for file in named:
        save((root / synset / file).with_suffix(".png"))
    save(root / synset / "n9999999900000001.png")
    data = cls_of("miniimagenet")(path=root)
    assert [Path(key).stem for key in data.keys] == [Path(file).stem for file in named]
    assert "left out, not in the published split: 1 image" in data.problems()


def test_rows_without_an_image_and_images_twice(root: Path) -> None:
    make("miniimagenet", "tables", root)
    gone = next((root / "images").iterdir())
    gone.unlink()
    twice = sorted((root / "images").iterdir())[0]
    save(root / "copies" / twice.name)
    problems = cls_of("miniimagenet")(path=root).problems()
    assert any(f"lists 1 missing image: {gone.name!r}" in problem for problem in problems)
    assert any(
        f"but found more than once: 1 image: {twice.name!r}" in problem for problem in problems
    )


def test_rows_name_images_with_another_extension_or_none(root: Path) -> None:
    synsets = members("miniimagenet")["train"]
    for file in ("a.png", "a.b.PNG", "c.png"):
        save(root / "images" / file)
    rows = [f"{f},{synsets[i % 2]}" for i, f in enumerate(("a.b", "A.jpg", "c.png", "c.d"))]
    (root / "train.csv").write_text("\n".join(["filename,label", *rows]))
    data = cls_of("miniimagenet")(path=root)
    found = {key: data.class_names[i] for key, i in zip(data.keys, data.labels, strict=True)}
    assert {key.rpartition("/")[2]: name for key, name in found.items()} == {
        "a.b.PNG": synsets[0],
        "a.png": synsets[1],
        "c.png": synsets[0],
    }
    assert any("lists 1 missing image: 'c.d'" in problem for problem in data.problems())


def test_other_findings_of_chestx_are_not_reported(root: Path) -> None:
    make("chestx", "table", root)
    table = root / "Data_Entry_2017.csv"
    before = cls_of("chestx")(path=root)
    table.write_text(table.read_text() + "other.png,Hernia\nboth.png,Mass|Nodule\n")
    after = cls_of("chestx")(path=root)
    assert after.problems() == before.problems()
    assert after.keys == before.keys


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\na.png,n01532829\n", r"row 1 must name the column filename, not file, label"),
        ("filename,label\na.png\n", r"row 2 has no image or no class"),
        ("filename,label\na.png,nan\n", r"row 2 has no image or no class"),
    ],
)
def test_wrong_tables(text: str, message: str, root: Path) -> None:
    root.mkdir()
    (root / "train.csv").write_text(text)
    with pytest.raises(DataError, match=r"train\.csv: " + message):
        cls_of("miniimagenet")(path=root)


def test_characters_are_small_white_on_black_and_rotated(root: Path) -> None:
    drawing = np.full((105, 105), 255, np.uint8)
    drawing[:30, 50:60] = 0  # a stroke at the top
    file = root / "images_background" / "Angelic" / "character01" / "0965_07.png"
    file.parent.mkdir(parents=True)
    Image.fromarray(drawing).convert("1").save(file)
    data = cls_of("omniglot")(path=root)
    assert data.class_names[1] == "Angelic/character01/rot090"
    assert data.metadata["alphabet"] == ("Angelic",) * 4
    assert data.metadata["drawer"] == ("07",) * 4
    small = np.asarray(Image.fromarray(drawing).resize((28, 28), Image.Resampling.BOX))
    for quarters in range(4):
        wanted = np.rot90(255 - small, quarters)
        assert np.array_equal(data.image(quarters), np.repeat(wanted[..., None], 3, axis=2))
    assert data.image(1)[13, 0, 0] == 255  # rotated left, the top is on the left
    plain = cls_of("omniglot")(path=root, split="lake")
    assert plain.class_names == ("Angelic/character01",)
    assert plain.about is not None
    assert plain.about.counts["train"] == (964, 19280)


def test_contexts_and_textures_are_metadata(root: Path) -> None:
    data = cls_of("metacoco")(path=make("metacoco", "folders", root))
    assert set(data.metadata["context"]) == {"on grass", "in snow"}
    assert all(c in k for c, k in zip(data.metadata["context"], data.keys, strict=True))
    cue = cls_of("cue-conflict")(path=make("cue-conflict", "folders", root / "cue"))
    for column in ("texture", "context", "words"):
        assert set(cue.metadata[column]) == {"oven"}


def test_files_that_the_pattern_does_not_match_are_reported(root: Path) -> None:
    save(root / "cat" / "plain.png")
    data = cls_of("cue-conflict")(path=root)
    assert data.metadata["texture"] == ("",)
    assert any("does not match 1 file: " in problem for problem in data.problems())


def test_concepts_named_train_are_not_a_split(root: Path) -> None:
    for concept in ("train", "dog"):
        save(root / concept / "on grass" / "1.png")
    assert cls_of("metacoco")(path=root).class_names == ("dog", "train")
    save(root / "b" / "train" / "train" / "on grass" / "1.png")
    save(root / "b" / "test" / "rat" / "on grass" / "1.png")
    data = cls_of("metacoco")(path=root / "b")
    assert data.splits == {"train": ("train",), "test": ("rat",)}


def test_cifar_from_pickles_of_python(root: Path) -> None:
    classes = members("cifar-fs")
    layout = declaration("cifar-fs").layouts[1]
    make_cifar(layout, root / "bin", classes, "", binary=True)
    make_cifar(layout, root / "py", classes, "", binary=False)
    binary, python = (cls_of("cifar-fs")(path=root / part) for part in ("bin", "py"))
    assert binary.keys == python.keys
    assert np.array_equal(binary.images(range(24), 32), python.images(range(24), 32))
    # Both parts have the same random rows: image 0 of the first class is row 0 of train.
    assert np.array_equal(binary.image(0), pixels(12, 32)[0])
    (root / "bin" / "train.bin").write_bytes(b"\0" * 5000)
    with pytest.raises(DataError, match=r"train\.bin: .*multiple of 3,074 bytes, not 5,000"):
        cls_of("cifar-fs")(path=root / "bin")


def test_classes_that_a_pickle_only_numbers_are_named_after_the_split(root: Path) -> None:
    root.mkdir()
    content = {"data": pixels(8), "labels": [64] * 4 + [65] * 4}
    file = root / "miniImageNet_category_split_val.pickle"
    file.write_bytes(pickle.dumps(content, protocol=4))
    data = cls_of("miniimagenet")(path=root)
    assert data.splits == {"val": ("val/64", "val/65")}
    assert "classes are numbered because the files do not name them" in data.problems()
    assert np.array_equal(data.image(5), content["data"][5])
    file.write_bytes(pickle.dumps({**content, "labels": [1]}))
    with pytest.raises(DataError, match=r"contains 8 images but 1 labels"):
        cls_of("miniimagenet")(path=root)
    file.write_bytes(pickle.dumps({"pictures": 3}))
    with pytest.raises(DataError, match=r"must contain images.*, not pictures"):
        cls_of("miniimagenet")(path=root)


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
    plain = np.full((84, 84, 3), 9, np.uint8)
    content = [plain, *pixels(2 * PER_CLASS)[1:]]
    encoded = [png(image) for image in content]
    assert len(encoded[0]) < 256 < len(encoded[1])
    for part in ("train", "val", "test"):
        file = next(root.glob(f"{part}_images*"))
        file.write_bytes(write([encoded[i % len(encoded)] for i in range(2 * PER_CLASS)]))
    folder = cls_of("tieredimagenet")(path=root)
    archive = cls_of("tieredimagenet")(path=zipped(root, tmp_path / "data.zip"))
    assert folder.keys == archive.keys
    for index in range(2 * PER_CLASS):
        assert np.array_equal(folder.image(index), content[index])
        assert np.array_equal(archive.image(index), content[index])


def test_labels_may_be_bytes(root: Path) -> None:
    root.mkdir()
    content = {"data": pixels(4), "labels": [b"n01532829"] * 2 + [b"n01558993"] * 2}
    file = root / "miniImageNet_category_split_train_phase_train.pickle"
    file.write_bytes(pickle.dumps(content, protocol=4))
    assert cls_of("miniimagenet")(path=root).labels.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("name", "layout"),
    [("miniimagenet", "cache pickles"), ("tieredimagenet", "arrays"), ("cifar-fs", "CIFAR-100")],
)
def test_pixels_are_read_on_request(name: str, layout: str, root: Path) -> None:
    make(name, layout, root)
    data = cls_of(name)(path=root)
    before = data.image(0)
    raw = before.transpose(2, 0, 1).tobytes() if "CIFAR" in layout else before.tobytes()
    file = next(f for f in root.glob("*train*") if raw in f.read_bytes())
    content = file.read_bytes()
    with file.open("r+b") as stream:
        stream.seek(content.index(raw))
        stream.write(bytes(len(raw)))
    assert not data.image(0).any()


def test_a_damaged_layout_next_to_a_complete_one_is_a_problem(root: Path) -> None:
    make("miniimagenet", "folders", root)
    (root / "train.csv").write_text("a,b\n")
    data = cls_of("miniimagenet")(path=root)
    assert data.layout == "folders"
    assert any(
        p.startswith("another layout is not used: ") and "train.csv: row 1 must name" in p
        for p in data.problems()
    )


def test_labels_without_their_images_are_reported(root: Path) -> None:
    make("tieredimagenet", "arrays", root)
    (root / "val_images.npz").unlink()
    (root / "test_images.npz").write_bytes((root / "test_images.npz").read_bytes()[:500])
    with pytest.raises(DataError, match=r"test_images\.npz: not a complete zip archive"):
        cls_of("tieredimagenet")(path=root)
    (root / "test_images.npz").unlink()
    problems = cls_of("tieredimagenet")(path=root).problems()
    assert "val_labels.pkl needs val_images.npz, which is missing" in problems


def test_a_pickle_that_asks_for_more_is_refused(root: Path) -> None:
    root.mkdir()
    content = {"image_data": pixels(4), "class_dict": {"n01532829": range(4)}}
    (root / "mini-imagenet-cache-train.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(
        DataError, match=r"cache-train\.pkl: this pickle is not read: it asks for builtins\.range"
    ):
        cls_of("miniimagenet")(path=root)


# --- splits as published ------------------------------------------------------------------------


def rows_of(file: Path) -> Iterator[list[str]]:
    with file.open(newline="") as stream:
        yield from csv.reader(stream, skipinitialspace=True)


def classes_of(name: str, split: str) -> dict[str, list[str]]:
    return {part: list(names) for part, names in declaration(name).splits[split].members.items()}


@pytest.mark.shared_data
def test_miniimagenet_is_ravis_split(shared: Path) -> None:
    split = declaration("miniimagenet").splits["ravi"]
    for part in ("train", "val", "test"):
        rows = list(rows_of(shared / f"data/splits/miniimagenet_ravi/{part}.csv"))[1:]
        assert list(split.members[part]) == list(dict.fromkeys(label for _, label in rows))
        carried = {(file, label) for label in split.members[part] for file in split.files[label]}
        assert carried == {(file, label) for file, label in rows}
        assert split.counts[part] == (len(split.members[part]), len(rows))


@pytest.mark.shared_data
def test_splits_of_classes_are_the_published_ones(shared: Path) -> None:
    data = shared / "data" / "splits"
    parts = ("train", "val", "test")

    def jsons(folder: str) -> dict[str, Any]:
        return {part: json.loads((data / folder / f"{part}.json").read_text()) for part in parts}

    tiered = {p: [r[0] for r in rows_of(data / f"tieredimagenet/{p}.csv")] for p in parts}
    assert classes_of("tieredimagenet", "ren") == tiered
    cifar = jsons("cifar_fs")
    assert classes_of("cifar-fs", "bertinetto") == {p: [c for _, c in cifar[p]] for p in parts}
    coarse = {fine: top for part in cifar.values() for top, fine in part}
    fc100 = classes_of("fc100", "oreshkin")
    assert {p: sorted({coarse[c] for c in fc100[p]}) for p in parts} == {
        p: sorted(tops) for p, tops in jsons("fc100").items()
    }
    assert {p: len(names) for p, names in fc100.items()} == {"train": 60, "val": 20, "test": 20}
    vinyals = {p: (data / f"omniglot/vinyals_{p}.txt").read_text().split() for p in parts}
    turned = declaration("omniglot").splits["vinyals"]
    assert {
        p: [f"{c}/rot{turn:03d}" for c in names for turn in turned.rotations]
        for p, names in turned.members.items()
    } == vinyals
    torchmeta = {
        p: {
            f"{a}/{c}"
            for half in json.loads((data / f"omniglot/torchmeta_{p}.json").read_text()).values()
            for a, cs in half.items()
            for c in cs
        }
        for p in parts
    }
    assert {p: set(c) for p, c in classes_of("omniglot", "torchmeta").items()} == torchmeta


@pytest.mark.shared_data
def test_splits_of_meta_dataset_are_the_published_ones(shared: Path) -> None:
    files = {
        "aircraft": "aircraft",
        "cub": "cu_birds",
        "dtd": "dtd",
        "fungi": "fungi",
        "mscoco": "mscoco",
        "quickdraw": "quickdraw",
        "traffic-signs": "traffic_sign",
        "vgg-flower": "vgg_flower",
    }
    for name, stem in files.items():
        raw = json.loads((shared / f"data/splits/meta_dataset/{stem}_splits.json").read_text())
        raw["val"] = raw.pop("valid")
        assert classes_of(name, "meta-dataset") == {p: c for p, c in raw.items() if c}, name


@pytest.mark.shared_data
def test_splits_of_cub_are_the_published_ones(shared: Path) -> None:
    feat = {
        part: sorted({row[1] for row in list(rows_of(shared / f"data/cub/feat_{part}.csv"))[1:]})
        for part in ("train", "val", "test")
    }
    assert classes_of("cub", "feat") == feat
    chen: dict[str, set[str]] = {}
    for image, _, part in list(rows_of(shared / "data/cub/closer_look_split.csv"))[1:]:
        chen.setdefault(part, set()).add(image.partition("/")[0])
    assert {p: set(c) for p, c in classes_of("cub", "chen").items()} == chen
    ours = classes_of("cub", "fewstab")
    assert ours["test"] == feat["test"]
    assert set(ours["train"]) > set(feat["train"])
    counts = declaration("cub").splits["fewstab"].counts
    printed = list(rows_of(shared / "published/fewstab_splits_s1.csv"))[1:]
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
        wanted = {
            part: (int(row[2 + i]), int(row[6 + i]))
            for i, part in enumerate(("train", "val", "test"))
            if row[2 + i]
        }
        assert cls_of(name).about.counts == wanted, name  # type: ignore[union-attr]
    for name in ("stanford-dogs", "stanford-cars", "cropdiseases"):
        title = {"stanford-dogs": "Stanford Dogs", "stanford-cars": "Stanford Cars"}.get(name)
        row = printed[title or "CropDiseases"]
        assert cls_of(name).about.counts == {"all": (int(row[1]), int(row[5]))}  # type: ignore[union-attr]
        drawn = declaration(name).splits
        (split,) = drawn.values()
        assert isinstance(split, Split)
        assert split.draw == tuple(int(n or 0) for n in row[2:5])
    concepts: dict[str, dict[str, int]] = {}
    for part, concept, images in list(rows_of(shared / "published/metacoco_table4_concepts.csv"))[
        1:
    ]:
        concepts.setdefault(part, {})[concept] = int(images)
    assert list(declaration("metacoco").splits["zhang"].members.values()) == list(concepts.values())


# --- real data ----------------------------------------------------------------------------------


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["cifar-fs", "fc100"])
def test_sixty_images_per_class_of_cifar(name: str, shared: Path) -> None:
    data = cls_of(name)(path=shared / "data" / "cifar100_small.zip")
    about = data.about
    assert about is not None
    assert {s: len(c) for s, c in data.splits.items()} == {
        s: n for s, (n, _) in about.counts.items()
    }
    assert data.problems() == [
        f"split {s}: {60 * n:,} images of {n} classes, published {600 * n:,} of {n}"
        for s, (n, _) in about.counts.items()
    ]
    assert data.image(0).shape == (32, 32, 3)


@pytest.mark.shared_data
@pytest.mark.parametrize("split", ["vinyals", "torchmeta", "lake"])
def test_complete_omniglot_has_no_problems(split: str, shared: Path) -> None:
    data = cls_of("omniglot")(path=shared / "data" / "omniglot.zip", split=split)
    assert data.problems() == []
    assert data.about is not None
    for part, (classes, images) in data.about.counts.items():
        assert (len(data.splits[part]), len(data.split_indices(part))) == (classes, images)
    assert set(np.bincount(data.labels)) == {20}
    assert data.images([0, 700, -1], 28).shape == (3, 28, 28, 3)


@pytest.mark.shared_data
@pytest.mark.parametrize("split", ["shapes", "all"])
def test_complete_cue_conflict_has_no_problems(split: str, shared: Path) -> None:
    data = cls_of("cue-conflict")(path=shared / "data" / "cue_conflict_84.zip", split=split)
    assert data.problems() == []
    assert set(data.metadata["context"]) == set(data.class_names)
    assert data.pool("test").class_sizes.tolist() == [80] * len(data.splits["test"])


@pytest.mark.parametrize("label", [1.5, float("nan"), None])
def test_a_label_that_is_neither_a_number_nor_a_name_is_refused(label: object) -> None:
    with pytest.raises(DataError, match=r"train\.pkl: the label .* is neither a whole number"):
        _rows_of_classes({"labels": [0, label]}, "train.pkl", 2)
    assert _rows_of_classes({"labels": [1.0, 0, 1]}, "train.pkl", 3) == {0: [1], 1: [0, 2]}
