"""Commands that bring data in, and that find what is wrong with them."""

__version__ = "0.1.0"
