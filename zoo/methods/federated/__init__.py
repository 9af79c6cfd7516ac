"""Federated learning: local computation of clients, their updates, and aggregation at the server."""
