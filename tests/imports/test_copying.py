"""A copier's own steps, one at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.postgres.connection import Connection
from tests.imports.test_resuming import Left


@pytest.fixture
def left(database: str, tmp_path: Path, connection: Connection) -> Left:
    return Left(database, tmp_path / "p", connection)


def test_a_chunk_that_says_late_that_its_table_changed_does_not_bring_a_copy_back_that_was_handed_over(
    left: Left, connection: Connection
) -> None:
    left.read_all()
    for _ in range(2):
        left.first.advance(connection)
    manifest = left.handover.manifest(left.id)
    assert manifest is not None
    assert manifest.state == "catching_up"
    left.first.layout_changed("It was rewritten.")
    left.joins()
    left.first.advance(connection)
    assert (left.first.ended, left.job.state) == (True, "streaming")
