"""What the sections of the config file are made of: base classes, units, secrets, selections of tables."""
