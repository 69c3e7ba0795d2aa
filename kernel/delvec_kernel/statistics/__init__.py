"""Statistics of files, and the bounds that they give."""
