"""Code in rules: ``sql``, ``python`` and ``python_frame``."""
