"""What happens to tables, for those who want to follow it: events, recorded from the logs, and webhooks."""
