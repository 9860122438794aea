"""An example of a package of plugins for fsframework that lives outside its repository."""

__version__ = "0.1.0"
