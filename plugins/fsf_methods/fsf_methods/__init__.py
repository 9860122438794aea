"""Few-shot methods that need PyTorch alone, one subpackage per family."""

__version__ = "0.1.0"
