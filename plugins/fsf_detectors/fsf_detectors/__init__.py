"""Attribute detectors and the selection of words: captions of images, and words from captions."""

__version__ = "0.1.0"
