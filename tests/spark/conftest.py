"""One Spark session for all tests: starting a JVM costs seconds. ``tests/end_to_end`` uses it as well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.settings.sections import SparkSettings
from penstock.spark.session import close_session, open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session(SparkSettings(master="local[2]"))
    yield session
    close_session(session)
