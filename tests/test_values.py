"""Values check themselves, survive a file unchanged, and notice a file that was changed."""

import dataclasses
import errno
import json
import math
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsframework._files import atomic_write
from fsframework.errors import DataError, FsfError
from fsframework.testing import toy_pool
from fsframework.values import (
    SCHEMA_VERSION,
    AccuracyOutcomes,
    AttributeTable,
    Estimate,
    ImagePool,
    Outcomes,
    TaskSet,
    digest_of,
    task_rng,
)

few = settings(max_examples=25, deadline=None, derandomize=True)


# --- digests and randomness -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("ab", "c"), ("a", "bc")),
        ((["ab", "c"],), (["a", "bc"],)),
        ((["a"], ["b"]), (["a", "b"],)),
        ((np.zeros(2, np.int64),), (np.zeros(2, np.int32),)),
        ((np.zeros((2, 3)),), (np.zeros((3, 2)),)),
        ((np.array([]),), ()),
    ],
)
def test_a_digest_tells_parts_apart(left, right):
    assert digest_of(*left) != digest_of(*right)


def test_a_digest_sees_values_and_not_their_layout():
    array = np.arange(12).reshape(3, 4)
    assert digest_of(array) == digest_of(np.asfortranarray(array)) == digest_of(array[::-1][::-1])


def test_a_task_is_drawn_from_seed_number_and_stream_alone():
    def numbers(*key):
        return task_rng(*key).integers(1 << 60, size=3).tolist()

    assert numbers(1, 5) == numbers(1, 5)
    keys = [(1, 5), (1, 6), (2, 5), (5, 1), (1, 5, "fewstab")]
    assert len({tuple(numbers(*key)) for key in keys}) == len(keys)


def test_the_generator_of_a_task_stays_what_it_is():
    """Saved seeds must go on meaning the same tasks."""
    assert task_rng(0, 0).integers(1000, size=4).tolist() == [76, 940, 27, 606]
    assert task_rng(7, 3, "fewstab").integers(1000, size=4).tolist() == [800, 762, 223, 848]


# --- attribute tables -------------------------------------------------------------------------

WORDS = [{"Müsli", "dog"}, set(), {"dog"}, {"雪", "grass", "dog"}]


@pytest.fixture
def table():
    captions = ("a dog; with Müsli", "", "a dog", "a dog in 雪, on grass")
    keys = ["a.png", "b/ü.png", "c.png", "d.png"]
    return AttributeTable.from_words(keys, WORDS, {"detector": "blip"}, captions)


def same_table(left, right):
    assert left.keys == right.keys
    assert left.words == right.words
    assert np.array_equal(left.indptr, right.indptr)
    assert np.array_equal(left.indices, right.indices)
    assert left.captions == right.captions
    assert dict(left.provenance) == dict(right.provenance)
    assert left.fingerprint == right.fingerprint


def test_a_table_by_hand(table):
    assert table.words == ("Müsli", "dog", "grass", "雪")
    dense = [[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 1]]
    assert table.rows([0, 1, 2, 3]).astype(int).tolist() == dense
    assert table.column(1).tolist() == [True, False, True, True]
    assert table.words_of(3) == ("dog", "grass", "雪")
    assert (len(table), table.indptr.tolist()) == (4, [0, 2, 2, 3, 6])
    assert table.csr(np.array([3, 0]))[1].tolist() == [1, 2, 3, 0, 1]
    assert table.csr(np.array([], int))[0].tolist() == [0]
    with pytest.raises(DataError, match="1 collections of words for 2 images"):
        AttributeTable.from_words(["a", "b"], [{"dog"}])


@few
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 2**32))
def test_rows_columns_and_csr_agree_with_a_dense_table(n_images, n_words, seed):
    dense = np.random.default_rng(seed).random((n_images, n_words)) < 0.3
    keys = tuple(map(str, range(n_images)))
    words = [f"{w:03}" for w in range(n_words)]
    own = [[words[i] for i in np.flatnonzero(row)] for row in dense]
    table = AttributeTable.from_words(keys, [[*row, *row] for row in own])
    dense = dense[:, dense.any(axis=0)]
    n_words = dense.shape[1]
    assert np.array_equal(table.rows(np.arange(n_images)), dense)
    for word in range(n_words):
        assert np.array_equal(table.column(word), dense[:, word])
    indptr, indices = table.csr(np.arange(n_images)[::-1])
    assert np.array_equal(np.diff(indptr), dense[::-1].sum(axis=1))
    assert np.array_equal(indices, np.nonzero(dense[::-1])[1])


@pytest.mark.slow
def test_a_table_as_large_as_tiered_imagenet_fits_10_mb():
    n_images, n_words = 206_000, 2_532
    keys = tuple(f"n{i:08}.jpg" for i in range(n_images))
    words = [f"word{w:05}" for w in range(n_words)]
    rng = np.random.default_rng(0)
    own = ([words[i] for i in row] for row in rng.integers(n_words, size=(n_images, 8)))
    tracemalloc.start()
    try:
        table = AttributeTable.from_words(keys, own)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert table.indptr.nbytes + table.indices.nbytes <= held <= 10e6
    assert peak < 6 * held  # a block of lists at a time


def test_a_table_survives_its_file_with_words_that_no_image_has(table, tmp_path):
    for value in (table, table.aligned(["c.png"])):
        value.save(tmp_path / "a.parquet")
        same_table(AttributeTable.load(tmp_path / "a.parquet"), value)


@few
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        st.tuples(
            st.frozensets(st.text(st.characters(exclude_categories=["Cs"]), min_size=1)),
            st.text(st.characters(exclude_categories=["Cs"])),
        ),
        max_size=6,
    )
)
def test_any_table_survives_its_file(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.parquet"
    words, captions = ([entry[i] for entry in content.values()] for i in (0, 1))
    table = AttributeTable.from_words(list(content), words, captions=captions or None)
    table.save(path)
    same_table(AttributeTable.load(path), dataclasses.replace(table, provenance={}))


def test_a_table_is_brought_into_another_order(table):
    part = table.aligned(["d.png", "unknown.png", "a.png"])
    assert part.keys == ("d.png", "unknown.png", "a.png")
    assert [part.words_of(i) for i in range(3)] == [("dog", "grass", "雪"), (), ("Müsli", "dog")]
    assert part.captions == ("a dog in 雪, on grass", "", "a dog; with Müsli")
    assert table.aligned(table.keys) is table
    assert table.aligned(list(table.keys)).fingerprint == table.fingerprint


@pytest.mark.parametrize("list_type", [pa.list_, pa.large_list])
def test_a_foreign_file_needs_two_columns(tmp_path, list_type):
    words = pa.array([["sofa", None, ""], None, ["dog", "sofa"]], list_type(pa.string()))
    pq.write_table(pa.table({"words": words, "key": ["a", "b", "c"]}), tmp_path / "f.parquet")
    table = AttributeTable.load(tmp_path / "f.parquet")
    assert [table.words_of(i) for i in range(3)] == [("sofa",), (), ("dog", "sofa")]
    assert table.captions is None
    assert dict(table.provenance) == {"file": "f.parquet"}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": ["a"]}, "has no column 'words'; it has ['key']"),
        ({"image": ["a"]}, "has no column 'key', 'words'"),
        ({"key": ["a"], "words": ["x;y"]}, "the column 'words' must be a list of strings"),
        ({"key": ["a", "a"], "words": [[""], [""]]}, "the key 'a' appears twice"),
    ],
)
def test_a_foreign_file_says_what_it_lacks(tmp_path, columns, message):
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table(columns), path)
    with pytest.raises(DataError) as caught:
        AttributeTable.load(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


# --- pools ------------------------------------------------------------------------------------


@pytest.fixture
def pool():
    return ImagePool(
        ("a.png", "ü.png", "c.png", "d.png"),
        np.array([1, 0, 1, 1]),
        ("Ähre", "dog"),
        {"context": ("snow", "sand", "", "snow")},
    )


def test_a_pool_by_hand(pool, tmp_path):
    assert len(pool) == 4
    assert pool.class_sizes.tolist() == [1, 3]
    assert [pool.members(c).tolist() for c in (0, 1)] == [[1], [0, 2, 3]]
    pool.save(tmp_path / "p.parquet")
    loaded = ImagePool.load(tmp_path / "p.parquet")
    for name in ("fingerprint", "keys", "class_names", "metadata"):
        assert getattr(loaded, name) == getattr(pool, name)
    assert loaded.labels.tolist() == [1, 0, 1, 1]
    with pytest.raises(DataError, match="holds 'an image pool', not outcomes"):
        Outcomes.load(tmp_path / "p.parquet")


def test_a_pool_cannot_be_changed(pool):
    """A sampler that shuffles members in place would change every later draw."""
    for array in (pool.labels, pool.class_sizes, pool.members(1)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(TypeError):
        pool.metadata["context"] = ()
    labels = np.array([0, 1])
    copied = ImagePool(("a", "b"), labels, ("x", "y"))
    labels[0] = 1
    assert copied.labels.tolist() == [0, 1]


def test_the_fingerprint_sees_every_change(pool):
    changes = [
        {"keys": ("A.png", "ü.png", "c.png", "d.png")},
        {"labels": [0, 1, 1, 1]},
        {"class_names": ("Ähre", "cat")},
        {"metadata": {}},
        {"metadata": {"context": ("snow", "sand", "sand", "snow")}},
        {"metadata": {"ground": ("snow", "sand", "", "snow")}},
    ]
    changed = {dataclasses.replace(pool, **change).fingerprint for change in changes}
    assert len(changed | {pool.fingerprint}) == 1 + len(changes)


def test_attributes_come_in_the_order_of_the_pool(pool):
    table = AttributeTable.from_words(["d.png", "a.png"], [{"dog"}, {"sofa"}])
    with pytest.raises(DataError, match="use with_attributes"):
        dataclasses.replace(pool, attributes=table)
    rich = pool.with_attributes(table)
    assert [rich.attributes.words_of(i) for i in range(4)] == [("sofa",), (), (), ("dog",)]
    assert rich.fingerprint == pool.fingerprint
    with pytest.raises(DataError, match=r"none of .* 2 keys.*'1\.png'.*'a\.png'"):
        pool.with_attributes(AttributeTable.from_words(["1.png", "2.png"], [{"dog"}, {"sofa"}]))


# --- tasks ------------------------------------------------------------------------------------


@pytest.fixture
def big():
    return toy_pool(4, 6, 5)


@pytest.fixture
def tasks(big):
    classes = np.array([[0, 2], [3, 1], [1, 0]])
    images = np.stack([[big.members(c)[:4] for c in row] for row in classes])
    drawn = TaskSet.of(
        big,
        classes,
        images[..., :1],
        images[..., 1:],
        sampler="hand",
        options={"n_way": 2, "weights": [0.5, 1], "name": "ü"},
        seed=7,
    )
    return drawn.with_attributes(
        big.attributes,
        attribute=np.array([[0, 4], [1, -1], [2, 3]]),
        relaxed=np.array([[0, 1], [0, 0], [0, 0]]),
    )


ARRAYS = "classes", "support", "query", "attribute", "relaxed"


def test_classes_with_other_numbers_of_queries_are_refused(pool):
    with pytest.raises(DataError, match="every class must have as many"):
        TaskSet.of(pool, [[0, 1]], [[[0], [2]]], [[[1], []]], sampler="any", options={}, seed=0)


def test_tasks_by_hand(tasks, big):
    assert (len(tasks), tasks.n_way, tasks.n_shot, tasks.n_query) == (3, 2, 1, 3)
    assert tasks.images[0].tolist() == [0, 12, 1, 2, 3, 13, 14, 15]
    assert tasks.n_images == 16
    assert tasks.reuses_images
    assert not tasks[:2].reuses_images
    assert tasks.pool_fingerprint == big.fingerprint
    assert tasks.attributes_fingerprint == big.attributes.fingerprint
    tasks.verify(big)
    with pytest.raises(DataError, match="2 ways, not 1"):
        dataclasses.replace(tasks, **{name: getattr(tasks, name)[:, :1] for name in ARRAYS})


@few
@given(
    st.integers(0, 5), st.integers(2, 4), st.integers(1, 3), st.integers(1, 3), st.integers(0, 99)
)
def test_any_tasks_survive_their_file(tmp_path_factory, count, way, shot, n_query, seed):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    pool = toy_pool(5, 7, 0)
    rng = np.random.default_rng(seed)
    classes = np.array([rng.permutation(5)[:way] for _ in range(count)]).reshape(count, way)
    images = 7 * classes[:, :, None] + rng.permutation(7)[: shot + n_query]
    parts = images[..., :shot], images[..., shot:]
    tasks = TaskSet.of(pool, classes, *parts, sampler="any", options={"way": way}, seed=seed)
    tasks.save(path)
    loaded = TaskSet.load(path)
    loaded.verify(pool)
    assert (loaded.digest, len(loaded)) == (tasks.digest, count)
    for field in dataclasses.fields(TaskSet):
        left, right = getattr(loaded, field.name), getattr(tasks, field.name)
        assert np.array_equal(left, right), field.name
        assert field.name not in ARRAYS or left.dtype == right.dtype


def test_a_digest_is_that_of_the_tasks_in_their_order(tasks):
    other = dataclasses.replace(tasks, sampler="other", seed=0, attribute=tasks.attribute * 0)
    assert other.digest == tasks[::-1][::-1].digest == tasks.digest
    changed = [dataclasses.replace(tasks, key_digest="other"), tasks[::-1]]
    for name in ("classes", "support", "query"):
        array = np.array(getattr(tasks, name))
        array[-1, -1] += 100
        changed.append(dataclasses.replace(tasks, **{name: array}))
    assert len({one.digest for one in (tasks, *changed)}) == 6


@pytest.mark.parametrize("name", ARRAYS)
def test_a_byte_changed_in_an_array_is_noticed(tasks, tmp_path, name):
    path = tmp_path / "t.safetensors"
    tasks.save(path)
    raw = bytearray(path.read_bytes())
    size = int.from_bytes(raw[:8], "little")
    start, _ = json.loads(raw[8 : 8 + size])[name]["data_offsets"]
    raw[8 + size + start] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DataError, match=r"t\.safetensors: (was changed|.*appears twice|.*must)"):
        TaskSet.load(path)


def edited(path, **changes):
    """Change the JSON header of a task file, as an editor could."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    outer = json.loads(raw[8 : 8 + size])
    header = json.loads(outer["__metadata__"]["fsframework"]) | changes
    kept = {key: value for key, value in header.items() if value is not ...}
    outer["__metadata__"]["fsframework"] = json.dumps(kept)
    text = json.dumps(outer).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size :])


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 8},
        {"sampler": "fewstab"},
        {"options": {"n_way": 2}},
        {"words": ["a", "b", "c", "d", "e"]},
        {"key_digest": "0"},
        {"pool_fingerprint": "0"},
        {"attributes_fingerprint": None},
        {"checksum": "0"},
    ],
)
def test_a_change_in_the_header_is_noticed(tasks, tmp_path, change):
    path = tmp_path / "t.safetensors"
    tasks.save(path)
    edited(path)
    TaskSet.load(path)
    edited(path, **change)
    with pytest.raises(DataError, match="was changed after it was written"):
        TaskSet.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": SCHEMA_VERSION + 1}, "written by a newer fsframework; this one reads"),
        ({"schema_version": SCHEMA_VERSION - 1}, "written by an older fsframework"),
        ({"what": "a model"}, "holds 'a model', not a task set"),
        ({"seed": ...}, "its header is damaged .*missing required field .seed."),
        ({"checksum": ...}, "missing required field .checksum."),
    ],
)
def test_a_header_that_cannot_be_read_says_why(tasks, tmp_path, change, message):
    path = tmp_path / "t.safetensors"
    tasks.save(path)
    edited(path, **change)
    with pytest.raises(DataError, match=message):
        TaskSet.load(path)


def test_what_is_no_task_file_is_refused(tasks, tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "t.safetensors"
    tasks.save(path)
    whole = path.read_bytes()
    for keep in (0, 5, 100, -1):
        path.write_bytes(whole[:keep])
        with pytest.raises(DataError, match="not a task file"):
            TaskSet.load(path)
    for metadata in (None, {"fsframework": "[]"}, {"fsframework": "{"}):
        save_file({"classes": np.zeros(3)}, path, metadata=metadata)
        with pytest.raises(DataError, match="not a task set|header is (not|damaged)"):
            TaskSet.load(path)


def test_tasks_of_another_pool_are_refused(tasks, big):
    with pytest.raises(DataError, match="drawn from other data"):
        tasks.verify(toy_pool(4, 7, 5))
    relabelled = dataclasses.replace(big, labels=np.roll(big.labels, 1))
    with pytest.raises(
        DataError,
        match=r"task 0: support image 'class-00/000\.png' of way 0 is a 'class-03', not a",
    ):
        tasks.verify(relabelled)


def test_a_foreign_class_or_image_is_named(tasks, big):
    for label in (4, -1):
        classes = np.array(tasks.classes)
        classes[1, 0] = label
        with pytest.raises(DataError, match=r"classes must be in 0\.\.3"):
            dataclasses.replace(tasks, classes=classes).verify(big)
    query = np.array(tasks.query)
    query[0, 0, 0] = 24
    with pytest.raises(DataError, match="image index 24 is not in a pool of 24"):
        dataclasses.replace(tasks, query=query).verify(big)


# --- outcomes ---------------------------------------------------------------------------------

PREDICTIONS = np.array([[[0, 1, 0], [1, 1, 1]], [[1, 1, 1], [0, 1, 0]], [[0, 0, 0], [1, 0, 1]]])


@pytest.fixture
def outcomes():
    return Outcomes(PREDICTIONS, "digest", 16, True)


def test_class_accuracy_by_hand(tasks):
    outcomes = Outcomes.of(tasks, PREDICTIONS)
    assert outcomes.class_accuracy == pytest.approx(np.array([[2 / 3, 1], [0, 1 / 3], [1, 2 / 3]]))
    assert (len(outcomes), outcomes.n_way, outcomes.n_images) == (3, 2, 16)
    assert outcomes.scope == "closed"
    assert Outcomes.of(tasks[:2], PREDICTIONS[:2]).scope == "open"
    with pytest.raises(ValueError, match="read-only"):
        outcomes.class_accuracy[0] = 0
    with pytest.raises(DataError, match=r"shape \(2, 2, 3\)"):
        Outcomes.of(tasks, PREDICTIONS[:2])


@few
@given(st.integers(0, 4), st.integers(2, 5), st.integers(1, 4), st.integers(0, 99))
def test_any_outcomes_survive_their_file(tmp_path_factory, count, way, n_query, seed):
    path = tmp_path_factory.getbasetemp() / "any-outcomes.parquet"
    predictions = np.random.default_rng(seed).integers(way, size=(count, way, n_query))
    outcomes = Outcomes(predictions, "digest", 9, True)
    outcomes.save(path)
    loaded = Outcomes.load(path)
    assert np.array_equal(loaded.predictions, predictions)
    assert loaded.predictions.dtype == np.int16
    for name in ("task_digest", "n_images", "reuses_images"):
        assert getattr(loaded, name) == getattr(outcomes, name)


def test_accuracies_of_whole_tasks_are_outcomes_without_predictions(tmp_path):
    whole = Outcomes(np.array([[[0, 1], [1, 1]], [[0, 0], [1, 1]]]), "digest", 6, False)
    bare = AccuracyOutcomes(whole.task_accuracy, "digest", 0, True)
    assert bare.task_accuracy.tolist() == [0.75, 1.0]
    assert (len(bare), bare.scope, bare.query_batch) == (2, "closed", "task")
    for name in ("predictions", "class_accuracy", "n_way"):
        with pytest.raises(DataError, match="measured elsewhere; without predictions"):
            getattr(bare, name)
    bare.save(tmp_path / "outcomes.parquet")
    again = Outcomes.load(tmp_path / "outcomes.parquet")
    assert isinstance(again, AccuracyOutcomes)
    assert again.task_accuracy.tolist() == bare.task_accuracy.tolist()
    assert (again.task_digest, again.n_images, again.scope) == ("digest", 0, "closed")


def test_damaged_outcomes_are_noticed(tasks, tmp_path):
    path = tmp_path / "o.parquet"
    Outcomes.of(tasks, PREDICTIONS).save(path)
    table = pq.read_table(path)
    pq.write_table(table.slice(0, 5), path)
    with pytest.raises(DataError, match="15 predictions do not fill whole tasks"):
        Outcomes.load(path)
    pq.write_table(table.sort_by([("way", "ascending")]), path)
    with pytest.raises(DataError, match="not in the order of tasks and ways"):
        Outcomes.load(path)
    pq.write_table(table.replace_schema_metadata({}), path)
    with pytest.raises(DataError, match="not outcomes written by fsframework"):
        Outcomes.load(path)


# --- estimates --------------------------------------------------------------------------------


@pytest.fixture
def estimate():
    return Estimate("wacc", 0.5, 0.45, 0.55, 0.95, "closed", True, "student-t", 600, 9000)


def test_an_estimate_without_an_interval_is_json_still(estimate):
    alone = dataclasses.replace(estimate, low=math.nan, high=math.nan, n_tasks=1)
    raw = json.loads(json.dumps(alone.to_json()), parse_constant=pytest.fail)
    assert raw["low"] is None
    assert math.isnan(Estimate.from_json(raw).half_width)
    assert Estimate.from_json(estimate.to_json()) == estimate
    assert estimate.half_width == 0.05
    with pytest.raises(DataError, match="not an estimate"):
        Estimate.from_json({"statistic": "acc"})


@pytest.mark.parametrize(
    ("value", "change", "message"),
    [
        ("table", {"keys": ("a", "a", "b", "c")}, "'a' appears twice"),
        ("table", {"keys": ("a",)}, "indptr must rise from 0 to 6 in 2 values"),
        ("table", {"words": ("dog", "Müsli", "grass", "雪")}, "sorted"),
        ("table", {"words": ("", "dog", "grass", "雪")}, "empty string"),
        ("table", {"indptr": [0, 3, 2, 3, 6]}, "indptr must rise"),
        ("table", {"indices": [0, 1, 1, 1, 2, 4]}, r"must rise in 0\.\.3"),
        ("table", {"indices": [1, 0, 1, 1, 2, 3]}, "indices of each image must rise"),
        ("table", {"captions": ("one",)}, "1 captions for 4 images"),
        ("pool", {"labels": [0, 1]}, "2 labels for 4 images"),
        ("pool", {"labels": [0, 1, 1, 2]}, r"labels .* 0\.\.1, not 0\.\.2"),
        ("pool", {"labels": [0, 1, 1, -1]}, r"labels .* 0\.\.1, not -1\.\.1"),
        ("pool", {"labels": [0.5, 1, 1, 1]}, "labels .* int64"),
        ("pool", {"labels": [math.nan, 1, 1, 1]}, "labels .* int64"),
        ("pool", {"labels": ["a", "b", "c", "d"]}, "labels .* int64"),
        ("pool", {"labels": [[0, 1, 1, 1]]}, r"labels .* \(1, 4\)"),
        ("pool", {"keys": ("a", "b", "a", "c")}, "'a' appears twice"),
        ("pool", {"class_names": ("dog", "dog")}, "'dog' appears twice"),
        ("pool", {"class_names": ("Ähre", "dog", *"efgh")}, "'e', 'f', 'g' and 1 more"),
        ("pool", {"metadata": {"context": ("x",)}}, "'context' has 1 entries for 4 images"),
        ("tasks", {"classes": [[0, 2], [1, 1], [1, 0]]}, "task 1: a class appears twice"),
        ("tasks", {"classes": [[0], [1], [2]]}, r"support has \(3, 2\)"),
        ("tasks", {"attribute": np.full((3, 2), 5)}, r"attribute .* -1\.\.4"),
        ("tasks", {"attribute": np.full((3, 2), -2)}, r"attribute .* -1\.\.4"),
        ("tasks", {"relaxed": np.full((3, 2), 2)}, "relaxed .* bool"),
        ("tasks", {"query": np.zeros((3, 2, 0))}, "query"),
        ("tasks", {"support": np.full((3, 2, 1), -1)}, "negative"),
        ("tasks", {"query": np.full((3, 2, 3), 7)}, "task 0: an image appears twice"),
        ("tasks", {name: np.zeros((3, 1, 1)) for name in ("support", "query")}, "support|query"),
        ("outcomes", {"predictions": PREDICTIONS + 1}, r"predictions .* 0\.\.1"),
        ("outcomes", {"predictions": PREDICTIONS - 1}, r"predictions .* 0\.\.1"),
        ("outcomes", {"predictions": PREDICTIONS + 65536}, "predictions .* int16"),
        ("outcomes", {"predictions": PREDICTIONS + 0.5}, "predictions .* int16"),
        ("outcomes", {"predictions": PREDICTIONS[0]}, "predictions .* 3 dimensions"),
        ("estimate", {"level": 95}, "level .* 95"),
        ("estimate", {"value": 0.6}, r"0\.6 .* 0\.45\.\.0\.55"),
    ],
)
def test_a_value_checks_itself(request, value, change, message):
    made = request.getfixturevalue(value)
    with pytest.raises(DataError, match=message):
        dataclasses.replace(made, **change)


@pytest.mark.parametrize(
    ("accuracy", "message"),
    [([0.5, np.nan], "task 1"), ([1.5], "task 0"), ([-0.1], "task 0"), ([[0.5]], "dimensions")],
)
def test_accuracies_check_themselves(accuracy, message):
    with pytest.raises(DataError, match=message):
        AccuracyOutcomes(accuracy, "digest", 0, False)


# --- writing ----------------------------------------------------------------------------------


def test_a_full_disk_is_one_sentence_and_leaves_the_old_file(tmp_path, tasks, big, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    path = tmp_path / "file"
    path.write_text("old")
    for value in (big.attributes, Outcomes.of(tasks, PREDICTIONS), big, tasks):
        with pytest.raises(FsfError, match=f"cannot write {path}: no space left on the device"):
            value.save(path)
        assert path.read_text() == "old"
        assert [*tmp_path.iterdir()] == [path]


def test_a_file_gets_the_rights_a_new_file_has(tmp_path):
    (tmp_path / "theirs").write_bytes(b"x")
    with pytest.raises(FsfError, match=r"cannot write .*theirs/t"):
        atomic_write(tmp_path / "theirs" / "t", "text")
    atomic_write(tmp_path / "ours", b"x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "theirs").stat().st_mode


def test_values_can_be_copied_and_sent_to_other_processes():
    """Copying goes by the same protocol as sending."""
    import copy

    table = AttributeTable.from_words(["a", "b"], [{"x"}, set()], {"source": "hand"})
    pool = ImagePool(("a", "b"), np.array([0, 1]), ("k", "l"), {"m": ("1", "2")}, table)
    again = copy.deepcopy(pool)
    assert again.fingerprint == pool.fingerprint
    assert again.attributes.fingerprint == table.fingerprint
    assert dict(again.metadata) == {"m": ("1", "2")}
    assert again.attributes.indices is not table.indices
