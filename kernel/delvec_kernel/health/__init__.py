"""What a table's files say about the maintenance that it needs."""
