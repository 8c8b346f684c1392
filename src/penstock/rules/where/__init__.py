"""``where`` of rules: conditions, compiled to vectorised filters."""
