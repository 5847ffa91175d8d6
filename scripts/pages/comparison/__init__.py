"""A comparison, in the terminal and on pages."""
