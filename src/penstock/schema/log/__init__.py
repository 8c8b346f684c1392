"""The schema log: DDL commands of the source, recorded by event triggers and read back in order."""
