"""``type: file``: a directory of event files."""
