"""What to run: settings, configuration files, recipes and stages of training."""
