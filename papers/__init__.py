"""The papers' figures, run again: one folder for each family, one file for each figure."""
