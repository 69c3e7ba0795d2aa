"""Checkpoints, checksums, log clean-up, checks and health."""
