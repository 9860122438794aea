"""From names and options to components: the registry, options, resolution, added data."""
