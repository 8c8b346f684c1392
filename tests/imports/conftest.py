"""Sessions on the source are those of ``tests/postgres``."""

from __future__ import annotations

from tests.postgres.conftest import connection, guest

__all__ = ["connection", "guest"]
