"""What is on disk: measurements, run records and what asv reads of them. The one place that knows files."""
