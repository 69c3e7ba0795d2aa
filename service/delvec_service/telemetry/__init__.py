"""What the service tells of itself while it works: metrics and traces."""
