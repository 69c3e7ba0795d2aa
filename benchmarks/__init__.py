"""Benchmarks with a peer beside each figure, measured in one run; ``make bench`` writes docs/benchmarks.md."""
