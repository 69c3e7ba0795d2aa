"""The actions of a commit, and their JSON (PROTOCOL.md, "Actions")."""
