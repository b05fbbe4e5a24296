"""Joins of a stream with a table on disk by a shared cyclic scan (Polyzotis et al., TKDE 2008)."""
