"""A command that trains a backbone for other methods, with or without labels."""
