"""Models in bounded memory: how often a key occurs, what a join costs."""
