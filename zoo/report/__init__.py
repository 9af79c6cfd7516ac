"""What a benchmark's runs say, as tables, figures and pages."""
