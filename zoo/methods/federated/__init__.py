"""Federated learning as pure functions: what clients do on copies of their own, what they send, what a server makes of it."""
