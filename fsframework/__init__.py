"""Measure how much few-shot image classifiers lean on spurious attributes."""

__version__ = "0.1.0"
