"""Standing queries as a service: registered over HTTP, answered by groups, followed by events."""
