"""Transforms of samples: the interface, and those that come with covey."""
