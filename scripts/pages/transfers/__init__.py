"""Transfers on a machine's page."""
