"""Words of images: read, detected, filtered."""
