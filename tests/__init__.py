"""Tests. A package, so that no other one of this name is imported in its stead."""
