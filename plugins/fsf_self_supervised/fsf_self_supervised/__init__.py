"""Learning without labels: methods on views, pretext tasks, makers of views, `fsf pretrain`."""

__version__ = "0.1.0"
