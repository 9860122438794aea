"""Harmful pairs in a simulated world, and the parts of their statistics."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest
from scipy import special, stats

from fsf_statistics.harm import harmful_pairs, without_other_classes
from fsf_statistics.pooling import Effects, pooled, shares_wrong, simes
from fsf_statistics.tails import Sample, differences, upper_tail
from fsframework.errors import DataError, OptionError
from fsframework.values import (
    ArmOutcomes,
    Arms,
    AttributeTable,
    Contrast,
    FloatArray,
    ImagePool,
    Outcomes,
    TaskSet,
)

N_CLASSES, N_IMAGES, WORDS = 6, 40, ("bush", "grass", "lake", "sand", "sofa")


def world(seed: int = 0) -> ImagePool:
    """Six classes of 40 images, which have each of five words with probability 0.3."""
    rng = np.random.default_rng(seed)
    keys = tuple(f"{i:03}" for i in range(N_CLASSES * N_IMAGES))
    has = rng.random((len(keys), len(WORDS))) < 0.3
    table = AttributeTable.from_words(keys, [np.array(WORDS)[row] for row in has])
    labels = np.repeat(np.arange(N_CLASSES), N_IMAGES)
    return ImagePool(keys, labels, tuple("abcdef"), {}, table)


def drawn(pool: ImagePool, n_tasks: int, seed: int) -> Arms:
    """Random tasks, and tasks with a word tied to each class."""
    rng = np.random.default_rng(seed)
    found = {}
    for arm in ("random", "biased"):
        classes = np.stack([rng.permutation(N_CLASSES)[:3] for _ in range(n_tasks)])
        images = np.stack(
            [[rng.choice(pool.members(c), 6, replace=False) for c in row] for row in classes]
        )
        support, query = images[:, :, :1], images[:, :, 1:]
        tasks = TaskSet.of(pool, classes, support, query, sampler=arm, options={}, seed=seed)
        if arm == "biased":
            assert pool.attributes is not None
            words = np.stack([rng.permutation(len(WORDS))[:3] for _ in range(n_tasks)])
            tasks = tasks.with_attributes(pool.attributes, words)
        found[arm] = dataclasses.replace(tasks, arm=arm, uniform=arm == "random")
    return Arms(found, Contrast("random", "biased"))


def answered(
    pool: ImagePool, arms: Arms, seed: int, *, present: float = 0.0, tied: float = 0.0
) -> ArmOutcomes:
    """Answers that are right with probability 0.9 less what two words cost.

    ``grass`` in a query costs class a, ``sofa`` tied in the support class b.
    """
    rng, grass, sofa = np.random.default_rng(seed), WORDS.index("grass"), WORDS.index("sofa")
    assert pool.attributes is not None
    found = {}
    for arm, tasks in arms.items():
        grassy = pool.attributes.column(grass)[tasks.query]
        hurt = present * (grassy & (tasks.classes == 0)[..., None])
        hurt = hurt + tied * ((tasks.attribute == sofa) & (tasks.classes == 1))[..., None]
        right = rng.random(tasks.query.shape) < 0.9 - hurt
        truth = np.arange(3)[None, :, None]
        found[arm] = Outcomes.of(tasks, np.where(right, truth, (truth + 1) % 3))
    return ArmOutcomes(found, arms)


POOL = world()
ARMS = drawn(POOL, 300, 0)
HARM = answered(POOL, ARMS, 0, present=0.3, tied=0.3)


def test_the_two_words_that_hurt_are_found_and_no_other() -> None:
    found = harmful_pairs(HARM, pool=POOL)
    names = {(row.names, row.question) for row in found.rows}
    assert names == {(("a", "grass"), "present"), (("b", "sofa"), "tied")}
    for row in found.rows:
        assert row.estimate.low <= 0.3 <= row.estimate.high
        assert row.with_word == pytest.approx(0.6, abs=0.08)
        assert row.without == pytest.approx(0.9, abs=0.1)
        assert row.p < 1e-3
    assert found.p_any < 1e-3


def test_numbers_behind_a_pair_by_hand() -> None:
    rows = {(row.names, row.question): row for row in harmful_pairs(HARM, pool=POOL).tested}
    biased, random = ARMS["biased"], ARMS["random"]
    task, way = np.nonzero((biased.classes == 1) & (biased.attribute == WORDS.index("sofa")))
    tied = rows[("b", "sofa"), "tied"]
    assert (tied.n_tasks, tied.n_queries) == (len(task), 5 * len(task))
    assert tied.n_images == len(np.unique(biased.support[task, way]))
    assert POOL.attributes is not None
    has = POOL.attributes.column(WORDS.index("grass"))[random.query]
    has &= (random.classes == 0)[..., None]
    present = rows[("a", "grass"), "present"]
    assert present.n_queries == has.sum()
    assert present.n_tasks == has.any(axis=(1, 2)).sum()
    assert present.n_images == len(np.unique(random.query[has]))


def test_nothing_is_reported_where_no_word_hurts() -> None:
    found = [harmful_pairs(answered(POOL, ARMS, 100 + seed), pool=POOL) for seed in range(40)]
    reported = sum(len(one) > 0 for one in found)
    # 5 % of 40 reports are 2; 7 or more have a chance of 0.3 %.
    assert reported < 7


def test_one_question_is_corrected_for_both() -> None:
    both = harmful_pairs(HARM, pool=POOL)
    for question in ("tied", "present"):
        one = harmful_pairs(HARM, question, pool=POOL)
        assert one.tested == tuple(row for row in both.tested if row.question == question)
        assert one.questions == (question,)


def _told(outcomes: ArmOutcomes, pool: ImagePool) -> dict:
    found = harmful_pairs(outcomes, pool=pool).tested
    values = [(r.estimate.value, r.p, r.p_corrected, float(r.harmful)) for r in found]
    names = [(r.names, r.question) for r in found]
    return {name: pytest.approx(v, abs=1e-6) for name, v in zip(names, values, strict=True)}


def test_the_order_of_tasks_and_of_classes_changes_nothing() -> None:
    order = np.random.default_rng(1).permutation(300)
    new = np.array([3, 0, 5, 1, 4, 2])  # new label of each class
    names = tuple(np.array(list("abcdef"))[np.argsort(new)])
    pool = ImagePool(POOL.keys, new[POOL.labels], names, {}, POOL.attributes)
    fields = ("support", "query", "attribute", "relaxed")
    tasks = {
        arm: dataclasses.replace(
            own, classes=new[own.classes[order]], **{f: getattr(own, f)[order] for f in fields}
        )
        for arm, own in ARMS.items()
    }
    outcomes = {arm: Outcomes.of(tasks[arm], o.predictions[order]) for arm, o in HARM.items()}
    changed = _told(ArmOutcomes(outcomes, Arms(tasks, ARMS.contrast)), pool)
    kept = _told(HARM, POOL)
    assert changed.keys() == kept.keys()
    assert all(changed[name].expected == kept[name] for name in kept)


def test_pairs_in_few_tasks_or_images_are_not_looked_at() -> None:
    few = Arms({arm: tasks[:4] for arm, tasks in ARMS.items()}, ARMS.contrast)
    outcomes = {arm: Outcomes.of(few[arm], o.predictions[:4]) for arm, o in HARM.items()}
    found = harmful_pairs(ArmOutcomes(outcomes, few), pool=POOL)
    assert not any(row.question == "tied" for row in found.tested)
    assert any("in enough tasks" in note for note in found.notes)


def test_perfect_answers_hurt_nobody() -> None:
    right = np.broadcast_to(np.arange(3)[None, :, None], ARMS["random"].query.shape)
    perfect = {arm: Outcomes.of(tasks, right) for arm, tasks in ARMS.items()}
    found = harmful_pairs(ArmOutcomes(perfect, ARMS), pool=POOL)
    assert len(found) == 0
    assert all(abs(row.estimate.value) < 1e-9 for row in found.tested)


def test_one_query_per_class_is_enough() -> None:
    arms = Arms(
        {a: dataclasses.replace(t, query=t.query[:, :, :1]) for a, t in ARMS.items()}, ARMS.contrast
    )
    found = harmful_pairs(answered(POOL, arms, 0, present=0.6), "present", pool=POOL)
    assert found.rows[0].names == ("a", "grass")


def test_pairs_show_themselves() -> None:
    found = harmful_pairs(HARM, pool=POOL)
    assert "<td>grass</td>" in found._repr_html_()
    assert repr(found).startswith("class  word")
    assert len(json.loads(json.dumps(found.to_json()))["rows"]) == len(found.tested)


def test_options_are_checked() -> None:
    for options in ({"level": 1.0}, {"least": -0.1}, {"wrong": 0.0}, {"question": "there"}):
        with pytest.raises(OptionError, match=next(iter(options))):
            harmful_pairs(HARM, **options, pool=POOL)  # type: ignore[arg-type]
    bare = ImagePool(POOL.keys, POOL.labels, POOL.class_names)
    with pytest.raises(DataError, match="have no words"):
        harmful_pairs(HARM, pool=bare)


def test_other_classes_are_removed_by_ridge_regression() -> None:
    tasks = ARMS["biased"]
    rng = np.random.default_rng(0)
    accuracy = rng.random(tasks.classes.shape)
    rest, lost = without_other_classes(tasks, accuracy, tasks.attribute >= 0, N_CLASSES)
    task, way = np.nonzero(tasks.classes == 2)
    design = np.zeros((len(task), N_CLASSES))
    for row, t in enumerate(task):
        design[row, tasks.classes[t]] = 1
    design[:, 2] = 0
    design -= design.mean(axis=0)
    y = accuracy[task, way] - accuracy[task, way].mean()
    hat = design @ np.linalg.inv(design.T @ design + 5 * np.eye(N_CLASSES)) @ design.T
    assert rest[task, way] == pytest.approx(y - hat @ y)
    assert lost[2] == pytest.approx(np.trace(hat))
    few = without_other_classes(tasks[:4], accuracy[:4], tasks.attribute[:4] >= 0, 50)
    assert np.isfinite(few[0]).all()  # more classes than tasks


def _samples(values: FloatArray, has: FloatArray) -> tuple[Sample, Sample]:
    one = np.zeros(len(values), np.int64)
    return Sample.of(one, values, 1), Sample.of(one[has], values[has], 1)


def test_p_is_nearly_that_of_all_permutations() -> None:
    values = np.array([1, 1, 1, 0.9, 0.9, 1, 0.8, 1, 0.7, 1, 0.9, 1, 0.4, 0.6, 1, 0.8])
    for chosen in ([12, 13, 8], [12, 6, 3], [0, 8, 13]):
        whole, having = _samples(values, np.array(chosen))
        found = differences(whole, having, whole.variance)
        sums = [values[list(c)].sum() for c in itertools.combinations(range(16), 3)]
        exact = np.mean(np.array(sums) <= values[chosen].sum() + 1e-9)
        assert found.p[0] == pytest.approx(exact, rel=0.6, abs=2e-3)
        rest = np.delete(values, chosen)
        assert found.value[0] == pytest.approx(rest.mean() - values[chosen].mean())
        spread = 50 * values.var(ddof=1)  # as of 50 more values of each group
        variance = sum(
            ((len(of) - 1) * of.var(ddof=1) + spread) / (len(of) + 49) / len(of)
            for of in (values[chosen], rest)
        )
        assert found.error[0] == pytest.approx(np.sqrt(variance))


def test_upper_tail_is_pearsons_type_iii() -> None:
    z = np.linspace(-2, 4, 7)
    for skew in (-1.5, -0.4, 0.4, 1.5):
        expected = stats.pearson3.sf(z, skew)
        assert upper_tail(z, np.full(7, skew)) == pytest.approx(expected, abs=1e-9)
    assert upper_tail(z, np.zeros(7)) == pytest.approx(special.ndtr(-z), abs=1e-3)


def test_pooling_shrinks_noise_keeps_large_effects_and_learns_from_a_kind() -> None:
    rng = np.random.default_rng(0)
    truth = np.zeros(300)
    truth[:30] = 0.1  # every effect of kind 0
    truth[40] = 0.4
    error = np.full(300, 0.04)
    value = truth + error * rng.standard_normal(300)
    found = pooled(Effects(value, error, np.arange(300) // 30, np.ones(300)))
    assert np.mean((found.mean - truth) ** 2) < 0.3 * np.mean((value - truth) ** 2)
    assert found.mean[40] > 0.3
    assert found.mean[:30].std() < 0.5 * value[:30].std()
    low, high = found.quantile(0.025), found.quantile(0.975)
    assert np.mean((low <= truth) & (truth <= high)) > 0.9
    assert found.below(low) == pytest.approx(0.025, abs=1e-6)


def test_shares_wrong_and_simes_by_hand() -> None:
    assert shares_wrong(np.array([0.2, 0.1])).tolist() == pytest.approx([0.15, 0.1])
    assert simes(np.array([0.04, 0.03, 0.9])) == pytest.approx(0.06)
    assert simes(np.empty(0)) == 1.0
