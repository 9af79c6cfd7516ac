"""Attacks: what somebody learns of people from what a mechanism releases or a client sends. Measurements, no bounds."""
