"""Breakdowns of a run: accuracies per class, word, pair and context, and which words hurt."""

from __future__ import annotations

from pathlib import Path

from fsframework.api.running import Run, load_run
from fsframework.errors import OptionError, argument
from fsframework.statistics.breakdown import Breakdown, Part, Question, breakdown_of
from fsframework.statistics.harm import (
    LEAST_HARM,
    MOST_WRONG,
    HarmfulPairs,
    harmful_pairs_of,
)
from fsframework.values import ArmOutcomes, ImagePool

__all__ = ["Breakdown", "HarmfulPairs", "breakdown", "harmful_pairs"]


def breakdown(
    run: Run | ArmOutcomes | str | Path,
    by: Part,
    *,
    question: Question = "tied",
    column: str = "context",
    level: float = 0.95,
    pool: ImagePool | None = None,
    runs_dir: str | Path | None = None,
) -> Breakdown:
    """Return the accuracy of each part of a run in each arm, and the gap between the arms.

    The accuracy of a part is the share of its queries that are answered correctly, each query
    counted as often as it is asked. Its interval is that of a ratio of sums over tasks, since the
    queries of a task share a support; a gap has Welch's interval, or that of pairs of tasks where
    the arms are paired. p of the gaps is two-sided and corrected for their number by Holm. Over
    training seeds, the value is the mean over the models, and seeds and tasks are crossed random
    effects as in ``Runs.over_seeds``.

    Caveats: intervals cover other tasks, and other images only where no image is in two tasks. The
    parts differ in more than their name: biased tasks choose queries by their words, so that two
    words are not answers to the same queries. For what a word costs, see ``harmful_pairs``.

    Args:
        run: a run, runs over seeds, the folder or name of a run, or what ``fsframework.evaluate``
            returned.
        by: ``class``; ``attribute``, a word; ``pair``, a class and a word; or ``context``.
        question: for words, ``tied`` takes the queries of classes whose support is tied to the
            word, ``present`` the queries that have it. In a placebo, a query has the words of
            another image of its class.
        column: for ``context``, the metadata column that holds the contexts of the images.
        level: confidence level, 0 < level < 1.
        pool: of outcomes: the images that the tasks were drawn from, with their words.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.

    Raises:
        DataError: the images have no words or no such column, or cannot be found.
        OptionError: an option is out of range, or no class is tied to a word.
        RecordError: the run does not exist or has no outcomes.

    Source: Cochran 1977, section 6 (ratio estimates); FewSTAB, section 4.1 (class accuracy).

    >>> import fsframework as fsf
    >>> data = {"name": "planted", "n_per_class": 12, "size": 16}
    >>> arms = fsf.draw("random", fsf.pool(data), tasks=30, way=2, shot=1, queries=4)
    >>> found = fsf.breakdown(fsf.evaluate(fsf.model("ncc"), arms, data), "class",
    ...                       pool=fsf.pool(data))
    >>> found.row_names, found.rows[0].names, found.rows[0].arm
    (('class',), ('shape_080',), 'random')
    """
    others: list[ArmOutcomes] = []
    if isinstance(run, Run):
        run, *more = run.runs
        others = [one.outcomes for one in more]
    outcomes, images = _opened(run, pool, runs_dir)
    return breakdown_of(
        outcomes, images, by, question=question, column=column, level=level, other_seeds=others
    )


def harmful_pairs(
    run: Run | ArmOutcomes | str | Path,
    question: Question | None = None,
    *,
    level: float = 0.95,
    least: float = LEAST_HARM,
    wrong: float = MOST_WRONG,
    pool: ImagePool | None = None,
    runs_dir: str | Path | None = None,
) -> HarmfulPairs:
    """Return which words hurt which classes, corrected for how many pairs were looked at.

    Two questions are asked about a class and a word. *Tied*: the accuracy of the class in tasks
    whose support ties it to the word, against its uniformly drawn tasks, if the queries were the
    same images; what the other classes of a task do to it is removed first. Without uniformly drawn
    tasks it is compared with its tasks that tie it to other words. *Present*: the accuracy of the
    class's images that have the word, as queries, against its images without it; each answer is
    compared with those to the other queries of the class in the same task, each image counts once,
    and what the other words of the images do is removed, also of those that stand in the place of
    the word where it is absent. Only uniformly drawn arms are used for *present*, since other
    samplers choose queries by their words.

    How pairs are judged, in three steps:

    1. Each pair has an estimate, a standard error over tasks (tied) or images (present), and p of a
       permutation test. Whether words make any difference at all is tested by Simes' test of all
       pairs and by a permutation test of the sum of squares for each question. If p (``p_any``,
       corrected for the number of tests) is above ``1 - level``, no pair is reported: of reports
       about nothing, such as placebos, at most this share shows any pair.
    2. What a pair costs is estimated given all pairs of the question (adaptive shrinkage): a word
       that hurts many classes is likely to hurt another, and a difference that rests on few tasks
       or images counts for little. ``estimate`` and its interval are those of this distribution;
       ``with_word`` is what was observed, ``without`` that plus the difference before shrinkage.
    3. Pairs are reported, the most certain first, as long as the expected share of those without
       harm among them is at most ``wrong`` (``p_corrected``), if they cost at least ``least``.

    Caveats: this is about these images and this model. A word stands for whatever occurs together
    with it and is not a word of its own; a counterfactual image is the only proof. Words of other
    classes hurt as well: half of the errors that these draw to themselves are not counted for
    *tied*. On the embedded data set, some nineteen in twenty reported pairs cost anything and nine
    in ten more than 2 points; half to nine in ten cost more than 10 points: to be sure of these,
    choose a ``least`` of 0.1 and accept that fewer are found. With 150 tasks, or words in ten
    images of a class, expect to miss most.
    ``docs/words-that-hurt.md`` states how often reports were right.

    Args:
        run: a run, its folder or name, or what ``fsframework.evaluate`` returned.
        question: ``tied`` or ``present``; by default both. The correction is for both in any case.
        level: of intervals, and one minus the p below which anything is reported; between 0 and 1.
        least: share of correct answers that a reported word costs, at least 0.
        wrong: expected share of pairs without harm among those reported, between 0 and 1.
        pool: of outcomes: the images that the tasks were drawn from, with their words.
        runs_dir: folder of runs given by name; by default ``FSF_RUNS``, else ``./runs``.

    Raises:
        DataError: the images have no words, or cannot be found.
        OptionError: an option is out of range, or there are several models: words that hurt one
            need not hurt another that was trained alike.
        RecordError: the run does not exist or has no outcomes.

    Source: Simes 1986; Goeman et al. 2004; Stephens 2017, False discovery rates: a new deal;
    FewSTAB, Definition 1.
    """
    if isinstance(run, Run) and len(run.runs) > 1:
        raise OptionError(
            f"harmful_pairs is about one model, and these are {len(run.runs)} training seeds: "
            f"give one of the runs, such as {run.name}; breakdown gives accuracies over all seeds"
        )
    outcomes, images = _opened(run, pool, runs_dir)
    return harmful_pairs_of(outcomes, images, question, level=level, least=least, wrong=wrong)


def _opened(
    run: Run | ArmOutcomes | str | Path, pool: ImagePool | None, runs_dir: str | Path | None
) -> tuple[ArmOutcomes, ImagePool]:
    """Return the answers of a run and the images of its tasks."""
    if isinstance(run, ArmOutcomes):
        if pool is None:
            raise OptionError(
                f"outcomes do not hold the images of their tasks: give {argument('pool')}"
            )
        return run, pool
    if not isinstance(run, Run):
        run = load_run(run, runs_dir)
    return run.outcomes, run.pool if pool is None else pool
