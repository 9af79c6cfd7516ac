"""Audits: what runs of a mechanism say about its claim. They yield lower bounds; passing proves nothing."""
