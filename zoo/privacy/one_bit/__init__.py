"""Mechanisms of one-bit matrix completion."""
