"""The join of two streams over a sliding window, under a memory budget; one file for each policy."""
