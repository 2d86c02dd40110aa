"""Benchmarks against peers, run by `covey bench`."""
