"""Commands that add data sets, find problems in them, decode and embed images in advance."""
