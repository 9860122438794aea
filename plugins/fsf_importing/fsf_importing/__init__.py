"""Runs made from models that other libraries trained; the checkpoints of LibFewShot."""

__version__ = "0.1.0"
