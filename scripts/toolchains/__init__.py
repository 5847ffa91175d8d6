"""Toolchains (one torch with one numpy) as a history that asv can track."""
