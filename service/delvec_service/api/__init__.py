"""HTTP: one module per resource."""
