"""Commands on data, words of images and the cache, beyond those that a run needs."""

__version__ = "0.1.0"
