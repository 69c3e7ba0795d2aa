"""The loops, retries and transaction boundaries behind each resource."""
