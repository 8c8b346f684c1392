"""Capture: the one reader of the replication slot."""
