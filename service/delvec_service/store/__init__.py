"""Object storage and SQL; every SQL statement lives here."""
