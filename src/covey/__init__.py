"""Clustered federated learning over wireless networks, with differential privacy."""
