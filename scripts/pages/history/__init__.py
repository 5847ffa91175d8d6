"""The page of a machine's histories."""
