"""A table at one version, and the replay that makes it."""
