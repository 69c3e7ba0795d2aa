"""Authorization: principals, the roles granted to them, and the role that each request needs."""
