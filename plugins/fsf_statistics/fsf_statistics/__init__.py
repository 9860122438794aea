"""Acc and wAcc, and what outcomes say beyond an estimate: breakdowns, words that hurt, plans."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_statistics._accuracy import Accuracy
    from fsf_statistics._answers import rank_agreements
    from fsf_statistics._headline_table import HeadlineEntry, HeadlineTable
    from fsf_statistics._worst_class import WorstClassAccuracy
    from fsf_statistics.accuracies import Reading, read_accuracies
    from fsf_statistics.bias_words import KeywordRow, Keywords, keywords
    from fsf_statistics.breakdowns import Breakdown, breakdown
    from fsf_statistics.cautions import cautions_of
    from fsf_statistics.comparing import (
        Comparison,
        MeasureComparison,
        Pair,
        compare,
        letters_shown,
        letters_told,
    )
    from fsf_statistics.equal_tasks import labelled, labels_of, measures_named
    from fsf_statistics.error_slices import SliceRow, Slices, kept_slices, slices
    from fsf_statistics.estimating import method_result, statistic_of_run, statistics_of
    from fsf_statistics.given import collect_results, finished_of, results_of
    from fsf_statistics.harm import LEAST_HARM, MOST_WRONG, HarmfulPairs, harmful_pairs, kept_pairs
    from fsf_statistics.headlines import (
        ComparedHeadline,
        HeadlineRow,
        headline,
        headline_of_runs,
        limits_of,
    )
    from fsf_statistics.imported_runs import import_accuracies
    from fsf_statistics.means import mean_interval
    from fsf_statistics.path_names import PathNames
    from fsf_statistics.planning import TaskSupply, best_queries
    from fsf_statistics.queries import QueryPlan, plan_queries
    from fsf_statistics.query_variance import QueryVariance, pilot_of
    from fsf_statistics.ranking import (
        FEWEST_RANKED,
        RankAgreement,
        rank,
        rank_correlations,
        spearman,
    )
    from fsf_statistics.robustness import EffectiveRobustness, effective_robustness
    from fsf_statistics.sources import labelled_results
    from fsf_statistics.task_sets import (
        facts_of,
        head_of_fact,
        options_of_tasks,
        sets_of,
        tasks_told_apart,
        told_value,
    )
    from fsf_statistics.worst import WorstGroup, WorstGroups, worst_groups

__all__ = [
    "FEWEST_RANKED",
    "LEAST_HARM",
    "MOST_WRONG",
    "Accuracy",
    "Breakdown",
    "ComparedHeadline",
    "Comparison",
    "EffectiveRobustness",
    "HarmfulPairs",
    "HeadlineEntry",
    "HeadlineRow",
    "HeadlineTable",
    "KeywordRow",
    "Keywords",
    "MeasureComparison",
    "Pair",
    "PathNames",
    "QueryPlan",
    "QueryVariance",
    "RankAgreement",
    "Reading",
    "SliceRow",
    "Slices",
    "TaskSupply",
    "WorstClassAccuracy",
    "WorstGroup",
    "WorstGroups",
    "best_queries",
    "breakdown",
    "cautions_of",
    "collect_results",
    "compare",
    "effective_robustness",
    "facts_of",
    "finished_of",
    "harmful_pairs",
    "head_of_fact",
    "headline",
    "headline_of_runs",
    "import_accuracies",
    "kept_pairs",
    "kept_slices",
    "keywords",
    "labelled",
    "labelled_results",
    "labels_of",
    "letters_shown",
    "letters_told",
    "limits_of",
    "mean_interval",
    "measures_named",
    "method_result",
    "options_of_tasks",
    "pilot_of",
    "plan_queries",
    "rank",
    "rank_agreements",
    "rank_correlations",
    "read_accuracies",
    "results_of",
    "sets_of",
    "slices",
    "spearman",
    "statistic_of_run",
    "statistics_of",
    "tasks_told_apart",
    "told_value",
    "worst_groups",
]

__version__ = "0.1.0"

_HOME = {
    "Accuracy": "_accuracy",
    "Breakdown": "breakdowns",
    "ComparedHeadline": "headlines",
    "Comparison": "comparing",
    "EffectiveRobustness": "robustness",
    "FEWEST_RANKED": "ranking",
    "HarmfulPairs": "harm",
    "HeadlineEntry": "_headline_table",
    "HeadlineRow": "headlines",
    "HeadlineTable": "_headline_table",
    "KeywordRow": "bias_words",
    "Keywords": "bias_words",
    "LEAST_HARM": "harm",
    "MOST_WRONG": "harm",
    "MeasureComparison": "comparing",
    "Pair": "comparing",
    "PathNames": "path_names",
    "QueryPlan": "queries",
    "QueryVariance": "query_variance",
    "RankAgreement": "ranking",
    "Reading": "accuracies",
    "SliceRow": "error_slices",
    "Slices": "error_slices",
    "TaskSupply": "planning",
    "WorstClassAccuracy": "_worst_class",
    "WorstGroup": "worst",
    "WorstGroups": "worst",
    "best_queries": "planning",
    "breakdown": "breakdowns",
    "cautions_of": "cautions",
    "collect_results": "given",
    "compare": "comparing",
    "effective_robustness": "robustness",
    "facts_of": "task_sets",
    "finished_of": "given",
    "harmful_pairs": "harm",
    "head_of_fact": "task_sets",
    "headline": "headlines",
    "headline_of_runs": "headlines",
    "import_accuracies": "imported_runs",
    "kept_pairs": "harm",
    "kept_slices": "error_slices",
    "keywords": "bias_words",
    "labelled": "equal_tasks",
    "labelled_results": "sources",
    "labels_of": "equal_tasks",
    "letters_shown": "comparing",
    "letters_told": "comparing",
    "limits_of": "headlines",
    "mean_interval": "means",
    "measures_named": "equal_tasks",
    "method_result": "estimating",
    "options_of_tasks": "task_sets",
    "pilot_of": "query_variance",
    "plan_queries": "queries",
    "rank": "ranking",
    "rank_agreements": "_answers",
    "rank_correlations": "ranking",
    "read_accuracies": "accuracies",
    "results_of": "given",
    "sets_of": "task_sets",
    "slices": "error_slices",
    "spearman": "ranking",
    "statistic_of_run": "estimating",
    "statistics_of": "estimating",
    "tasks_told_apart": "task_sets",
    "told_value": "task_sets",
    "worst_groups": "worst",
}
"""The module that defines each name; asking for one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
