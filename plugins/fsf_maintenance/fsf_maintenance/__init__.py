"""Commands for the size and cleaning of the cache, and for shell completion."""

__version__ = "0.1.0"
