"""Checkpoints, checksums, log cleanup, checks and health."""
