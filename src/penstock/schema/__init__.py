"""Definitions of tables and types, how they change, and the DDL that makes them."""
