"""What runs say, of a benchmark or without one, as tables, figures and pages."""
