"""A method, a statistic, a sampler and a command for fsframework, from outside its repository."""

__version__ = "0.1.0"
