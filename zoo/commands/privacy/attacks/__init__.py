"""Attacks on releases and on client updates: measurements, not bounds."""
