"""Measurements side by side with what covey replaces; `covey bench` runs them."""
