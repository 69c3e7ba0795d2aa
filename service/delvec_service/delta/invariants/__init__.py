"""What must be true of every table: of its log, version by version, and of its live files."""
