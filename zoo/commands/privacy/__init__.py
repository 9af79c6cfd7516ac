"""What an engineer answers for: plan a budget, show a record, audit a mechanism, draw its curve."""
