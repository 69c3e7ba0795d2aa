"""Conversion of Delta tables to Iceberg: schemas, partitions, metrics, manifests, deletes and table metadata, without I/O."""
