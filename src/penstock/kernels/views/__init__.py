"""Keeping a view within a promised answer time: which table's changes to process now, and which to let wait."""
