"""Whether a table keeps what Delta and Delvec promise of it."""
