"""The values that flow between stages: frozen, array-backed, validated, with ``save`` and ``load``.

``ImagePool`` -> ``AttributeTable`` -> ``TaskSet`` -> ``Outcomes`` -> ``Estimate``. Only NumPy is
imported here; PyArrow is imported with the first column of text, safetensors by ``save`` and
``load``.

``open_file``, ``read_file``, ``read_csv`` and ``read_parquet`` read files of a user and refuse
pipes, devices and what is too large; ``check_file`` only checks. ``atomic_write`` and
``atomic_path`` write whole or not at all. ``text_lines``, ``parse_json`` and ``parse_toml`` bound
length and depth.
"""

from fsframework._digest import digest_of
from fsframework._files import atomic_path, atomic_write, locked
from fsframework._reading import (
    check_file,
    open_file,
    parse_json,
    parse_number,
    parse_toml,
    read_file,
    text_lines,
)
from fsframework._tables import data_frame, first_rows, footnotes, html_table, text_table
from fsframework._text import csv_text, inert_cell, printable
from fsframework.values._arrays import BoolArray, FloatArray, IntArray, UInt8Array
from fsframework.values._formats import SCHEMA_VERSION, read_csv, read_parquet
from fsframework.values._texts import Texts, normalize
from fsframework.values._words import WordReader
from fsframework.values.arms import ArmOutcomes, Arms, Contrast, label_in_arms
from fsframework.values.attributes import AttributeTable
from fsframework.values.estimate import Estimate, Estimates, measure_name, table_of
from fsframework.values.limits import demand_disk, demand_memory, size_text
from fsframework.values.outcomes import AccuracyOutcomes, Outcomes, QueryBatch, Scope
from fsframework.values.pool import ImagePool, ImageRecord
from fsframework.values.seeds import task_entropy, task_rng, watched_tasks
from fsframework.values.tasks import TaskSet

__all__ = [
    "SCHEMA_VERSION",
    "AccuracyOutcomes",
    "ArmOutcomes",
    "Arms",
    "AttributeTable",
    "BoolArray",
    "Contrast",
    "Estimate",
    "Estimates",
    "FloatArray",
    "ImagePool",
    "ImageRecord",
    "IntArray",
    "Outcomes",
    "QueryBatch",
    "Scope",
    "TaskSet",
    "Texts",
    "UInt8Array",
    "WordReader",
    "atomic_path",
    "atomic_write",
    "check_file",
    "csv_text",
    "data_frame",
    "demand_disk",
    "demand_memory",
    "digest_of",
    "first_rows",
    "footnotes",
    "html_table",
    "inert_cell",
    "label_in_arms",
    "locked",
    "measure_name",
    "normalize",
    "open_file",
    "parse_json",
    "parse_number",
    "parse_toml",
    "printable",
    "read_csv",
    "read_file",
    "read_parquet",
    "size_text",
    "table_of",
    "task_entropy",
    "task_rng",
    "text_lines",
    "text_table",
    "watched_tasks",
]
