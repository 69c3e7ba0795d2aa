"""Who may what: principals, the roles that they were granted, and the role that each request needs."""
