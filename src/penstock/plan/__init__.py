"""Frozen descriptions of what is to run, checked before anything does."""
