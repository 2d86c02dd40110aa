"""Bit-for-bit comparison of two checkouts: cases, runner and file comparison."""
