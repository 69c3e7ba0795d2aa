"""Object store credentials for engines: short-lived, and each for one table."""
