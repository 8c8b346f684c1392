"""The event formats, one module each."""
