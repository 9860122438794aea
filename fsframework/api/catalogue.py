"""The data sets that the user has added, and how data differ from those published."""

from __future__ import annotations

from fsframework.components.catalogue import ADDED_VERSION, Added, added_folder, read_added
from fsframework.pipeline.published_counts import SplitCounts, data_problems, split_counts

__all__ = [
    "ADDED_VERSION",
    "Added",
    "SplitCounts",
    "added_folder",
    "data_problems",
    "read_added",
    "split_counts",
]
