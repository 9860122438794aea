"""Finished runs in experiment trackers: MLflow and Weights & Biases."""

__version__ = "0.1.0"
