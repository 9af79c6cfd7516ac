"""Mechanisms that train on ratings: noisy gradients, and the count of their steps."""
