"""Delta tables as Iceberg tables: schemas, partitions, metrics, manifests, deletes and table metadata, without any I/O."""
