"""The commands that make runs of models which were trained with other libraries."""

__version__ = "0.1.0"
