"""Commands that add data sets, find problems in them, decode and embed images in advance."""

__version__ = "0.1.0"
