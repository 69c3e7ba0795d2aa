"""Table features: which a table may use, and which protocol they need."""
