"""Checks of the suite itself: its timing, noise, advice and histories, measured and judged."""
