"""The command that classifies a user's own images from a few labelled examples per class."""

__version__ = "0.1.0"
