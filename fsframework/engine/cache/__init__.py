"""The cache that runs share."""
