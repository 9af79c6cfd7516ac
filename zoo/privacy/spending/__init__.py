"""What releases cost together: totals over any of them, and the budget that a source party spends."""
