"""A command that trains a backbone for other methods, with or without labels."""

__version__ = "0.1.0"
