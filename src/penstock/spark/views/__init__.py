"""A view on Spark: delta queries, files and their manifest, change logs, and what decides when to refresh."""
