"""Commands that compare results, rank methods, plan studies, draw curves and import accuracies."""

__version__ = "0.1.0"
