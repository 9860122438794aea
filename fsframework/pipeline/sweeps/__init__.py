"""Many experiments: described in a file, run by any number of workers, each once."""
