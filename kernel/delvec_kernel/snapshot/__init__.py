"""A table at one version, and the log replay that builds it."""
