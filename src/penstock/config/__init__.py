"""The config file: its model, loading it, and keeping its secrets."""
