"""`fsf`, the command line."""
