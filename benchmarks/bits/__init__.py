"""Comparing two checkouts bit by bit: what is run, how it is run, how results are compared."""
