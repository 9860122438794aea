"""Inspect words of images: counts, agreement, merged tables, pages, pictures of tasks."""

__version__ = "0.1.0"
