"""Reads a table's rows from the source in chunks."""
