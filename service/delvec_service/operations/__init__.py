"""What clients ask the service for, over HTTP or from this process: one function per operation."""
