"""Driving asv: rounds, the state and the record of a run, two sides in turns, profiles."""
