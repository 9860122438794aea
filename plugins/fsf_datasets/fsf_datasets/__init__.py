"""Data sets of fsframework: published ones, yours from a folder or a table, and rendered ones."""

from fsf_datasets._declared import Declared, declared
from fsf_datasets.csv_table import CsvTable
from fsf_datasets.folder import Folder
from fsf_datasets.planted import Planted

__all__ = ["CsvTable", "Declared", "Folder", "Planted", "declared"]

__version__ = "0.1.0"
