"""The files of ``_delta_log``: commits, checkpoints, checksums, clean-up."""
