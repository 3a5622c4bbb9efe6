"""Sources of examples: one file for each format in which a dataset is published. Each returns a `Dataset`."""
