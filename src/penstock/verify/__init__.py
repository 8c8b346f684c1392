"""``penstock verify``: whether a sink holds what the source does. Begin to read in ``comparison.py``."""
