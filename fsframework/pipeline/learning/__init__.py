"""Models: built, trained, evaluated."""
