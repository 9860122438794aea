"""Plugins of fsframework."""

__version__ = "0.1.0"
