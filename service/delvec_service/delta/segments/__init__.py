"""The live files of a version in segments, which memory and database share and commits do not copy."""
