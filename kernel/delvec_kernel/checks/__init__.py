"""What must be true of every table, and findings where it is not."""
