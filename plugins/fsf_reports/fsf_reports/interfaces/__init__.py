"""The contracts of sections, pages, renderers and writers of tables."""

from fsf_reports.interfaces.page import PageWriter, ReportPage, ReportPart
from fsf_reports.interfaces.renderer import Renderer
from fsf_reports.interfaces.section import ReportedData, ReportedRun, ReportedRuns, Section
from fsf_reports.interfaces.table import TableWriter

__all__ = [
    "PageWriter",
    "Renderer",
    "ReportPage",
    "ReportPart",
    "ReportedData",
    "ReportedRun",
    "ReportedRuns",
    "Section",
    "TableWriter",
]
