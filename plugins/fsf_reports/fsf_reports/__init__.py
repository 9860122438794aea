"""Figures, tables and reports of finished runs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsf_reports._altair import Altair, chart, vega_lite
    from fsf_reports._citing import cite
    from fsf_reports._declared import print_table
    from fsf_reports._figures import figure
    from fsf_reports._page.writer import HtmlPage
    from fsf_reports._report import Report, report
    from fsf_reports._saving import check_figure, check_tables, save_figure, save_tables
    from fsf_reports._sections.data import DataAndWords
    from fsf_reports._sections.figures import Figures
    from fsf_reports._sections.findings import Findings
    from fsf_reports._sections.leaderboard import Leaderboard
    from fsf_reports._sections.notes import Notes
    from fsf_reports._sections.pairs import HarmfulPairs
    from fsf_reports._sections.provenance import Provenance
    from fsf_reports._sections.slices import FailingSlices
    from fsf_reports._sections.submission import Submission
    from fsf_reports._sections.tasks import Tasks
    from fsf_reports._sections.training import Training
    from fsf_reports._table_files import PlainTables
    from fsf_reports._tables import table

__all__ = [
    "Altair",
    "DataAndWords",
    "FailingSlices",
    "Figures",
    "Findings",
    "HarmfulPairs",
    "HtmlPage",
    "Leaderboard",
    "Notes",
    "PlainTables",
    "Provenance",
    "Report",
    "Submission",
    "Tasks",
    "Training",
    "chart",
    "check_figure",
    "check_tables",
    "cite",
    "figure",
    "print_table",
    "report",
    "save_figure",
    "save_tables",
    "table",
    "vega_lite",
]

__version__ = "0.1.0"

_HOME = {
    "Altair": "_altair",
    "DataAndWords": "_sections.data",
    "FailingSlices": "_sections.slices",
    "Figures": "_sections.figures",
    "Findings": "_sections.findings",
    "HarmfulPairs": "_sections.pairs",
    "HtmlPage": "_page.writer",
    "Leaderboard": "_sections.leaderboard",
    "Notes": "_sections.notes",
    "PlainTables": "_table_files",
    "Provenance": "_sections.provenance",
    "Report": "_report",
    "Submission": "_sections.submission",
    "Tasks": "_sections.tasks",
    "Training": "_sections.training",
    "chart": "_altair",
    "check_figure": "_saving",
    "check_tables": "_saving",
    "cite": "_citing",
    "figure": "_figures",
    "print_table": "_declared",
    "report": "_report",
    "save_figure": "_saving",
    "save_tables": "_saving",
    "table": "_tables",
    "vega_lite": "_altair",
}
"""The module that defines each name; asking for one name imports no other module."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
