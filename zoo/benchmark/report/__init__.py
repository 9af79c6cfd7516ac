"""Reports: tables, figures and pages of finished runs."""
