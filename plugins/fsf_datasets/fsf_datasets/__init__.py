"""Data sets of fsframework: rendered, from a folder and from a table."""

from fsf_datasets.csv_table import CsvTable
from fsf_datasets.folder import Folder
from fsf_datasets.planted import Planted

__all__ = ["CsvTable", "Folder", "Planted"]

__version__ = "0.1.0"
