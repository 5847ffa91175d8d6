"""The engine: how a cell is prepared, timed, probed and logged. Families and the catalogue lie
beside it.
"""
