"""How it is said: text, tables, figures and pages of what analysis knows."""
