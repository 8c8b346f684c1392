"""A look at what tests leave behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing.conditions import wait_until
from tests.recovery.process_under_test import survivors


@pytest.fixture
def nothing_left_running() -> Iterator[None]:
    """No process of a pipeline survives the test that started it, not even for a moment as an orphan's child."""
    yield
    wait_until(lambda: not survivors(), timeout=30, what="all processes of the pipeline to be gone")
