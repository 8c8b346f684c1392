"""Postgres's text form of a value, cast to typed Arrow columns.

One small file per family of types, all of one shape (``family.Family``), registered in ``registry.FAMILIES``.
``casting`` holds the two verbs. The text must be written under these settings: DateStyle ISO, IntervalStyle postgres,
extra_float_digits above 0, bytea_output hex, TimeZone UTC, client_encoding UTF8.
"""

from penstock.pgoutput.types.casting import Unrepresentable, arrow_type, typed

__all__ = ["Unrepresentable", "arrow_type", "typed"]
