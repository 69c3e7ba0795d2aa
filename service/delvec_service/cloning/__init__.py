"""CLONE and CONVERT: tables created from existing files."""
