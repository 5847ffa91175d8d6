"""Files on disk: measurements, run records, and asv's results made from them. No other package
knows their layout."""
