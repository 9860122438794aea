"""Commands that add data sets and find problems in them."""

__version__ = "0.1.0"
