"""Commands that add data sets, find problems in them and decode their images in advance."""

__version__ = "0.1.0"
