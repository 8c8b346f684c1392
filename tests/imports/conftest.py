"""The one Spark session is that of ``tests/spark``; sessions on the source are those of ``tests/postgres``."""

from __future__ import annotations

from tests.postgres.conftest import connection, guest
from tests.spark.conftest import spark

__all__ = ["connection", "guest", "spark"]
