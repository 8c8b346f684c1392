"""Rules checked against the source's tables before anything runs."""
