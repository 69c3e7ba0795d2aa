"""ALTER TABLE: applies a list of changes to the metadata and protocol of a version."""
