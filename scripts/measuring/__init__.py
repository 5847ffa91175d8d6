"""Driving asv: one runner with its journal, profiles, two sides in turns, a fleet."""
