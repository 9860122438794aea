"""Published experiments as one command each, the printed values beside the measured ones."""
