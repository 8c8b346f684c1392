"""One Spark session for all tests of delivery here, and a look at what they leave behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.settings.sections import SparkSettings
from penstock.spark.session import close_session, open_session
from penstock.testing.conditions import wait_until
from tests.recovery.process_under_test import survivors


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session(SparkSettings(master="local[2]"))
    yield session
    close_session(session)


@pytest.fixture
def nothing_left_running() -> Iterator[None]:
    """No process of a pipeline survives the test that started it, not even for a moment as an orphan's child."""
    yield
    wait_until(lambda: not survivors(), timeout=30, what="all processes of the pipeline to be gone")
