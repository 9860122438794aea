"""Building, training and evaluating models."""
