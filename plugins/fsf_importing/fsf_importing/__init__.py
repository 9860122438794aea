"""Commands that make runs from models trained with other libraries."""

__version__ = "0.1.0"
