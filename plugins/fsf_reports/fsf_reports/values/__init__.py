"""Tables and figures as values, and the blocks of a report."""

from fsf_reports.values.blocks import Block, Gallery, ImageGroup, Listing, TaskBrowser, Text
from fsf_reports.values.columns import TableColumn, shown_columns
from fsf_reports.values.figures import FigureDeclaration, Mark, Panel, Point, Series
from fsf_reports.values.quantities import Quantity
from fsf_reports.values.tables import Entry, TableDeclaration, table_of_headline

__all__ = [
    "Block",
    "Entry",
    "FigureDeclaration",
    "Gallery",
    "ImageGroup",
    "Listing",
    "Mark",
    "Panel",
    "Point",
    "Quantity",
    "Series",
    "TableColumn",
    "TableDeclaration",
    "TaskBrowser",
    "Text",
    "shown_columns",
    "table_of_headline",
]
