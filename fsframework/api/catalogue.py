"""The data sets that the user has added, and how data differ from those published."""

from __future__ import annotations

from fsframework.components.catalogue import Added, added_folder, change_added, read_added
from fsframework.pipeline.published_counts import SplitCounts, data_problems, split_counts

__all__ = [
    "Added",
    "SplitCounts",
    "added_folder",
    "change_added",
    "data_problems",
    "read_added",
    "split_counts",
]
