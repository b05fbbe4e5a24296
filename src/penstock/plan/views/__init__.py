"""What a view is: its SQL as a tree of our own, checked against the tables it names."""
