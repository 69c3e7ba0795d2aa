"""Deletion vectors: descriptors, the bitmap codec, and packing many into one file."""
