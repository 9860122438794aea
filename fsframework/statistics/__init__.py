"""From outcomes to estimates with intervals, and their comparison."""
