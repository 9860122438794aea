"""Inspect words of images: counts, agreement, merged tables, pages, pictures of tasks."""
