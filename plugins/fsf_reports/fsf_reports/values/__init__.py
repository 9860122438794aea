"""Figures, columns of tables, and the blocks of a report."""

from fsf_reports.values.blocks import Block, Gallery, ImageGroup, Listing, TaskBrowser, Text
from fsf_reports.values.columns import TableColumn, shown_columns
from fsf_reports.values.figures import FigureDeclaration, Mark, Panel, Point, Series

__all__ = [
    "Block",
    "FigureDeclaration",
    "Gallery",
    "ImageGroup",
    "Listing",
    "Mark",
    "Panel",
    "Point",
    "Series",
    "TableColumn",
    "TaskBrowser",
    "Text",
    "shown_columns",
]
