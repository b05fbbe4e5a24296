"""One window join that serves many queries, each with a window of its own; one file for each scheduler."""
