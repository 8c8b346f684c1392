"""What sinks that mirror tables have in common."""
