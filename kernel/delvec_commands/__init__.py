"""What a command does on any engine and any service, and the port through which it speaks to the service."""
