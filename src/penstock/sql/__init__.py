"""Standing queries as SQL text: read by us, put together by shape, and never seen by Spark's own parser."""
