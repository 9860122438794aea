"""Task sets under names, so that papers can say which tasks they evaluated."""

__version__ = "0.1.0"
