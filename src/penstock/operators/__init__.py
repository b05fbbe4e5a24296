"""The public verbs over streaming DataFrames: they build plans and compute nothing."""
